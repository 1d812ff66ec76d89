"""All campaigns one after the other, each a process of its own, and a table of how they ended.

    cd tests; python -m fuzz.run --seconds 600 --seed 0
    cd tests; python -m fuzz.run invariances load --seconds 60

The exit status is 1 if one of them found a fault, tried nothing or broke.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fuzz.campaigns import summary

FOLDER = Path(__file__).parent
# the share of the time that a campaign gets, where that is not one
SHARES = {"invariances": 2.0}
LAST_LINE = re.compile(re.escape(summary(0, 0)).replace("0", r"(\d+)"))


class Ending(NamedTuple):
    """How a campaign ended; without `cases` and `faults`, it broke."""

    name: str
    status: int
    seconds: float
    cases: str = "-"
    faults: str = "-"

    @property
    def is_sound(self) -> bool:
        return self.status == 0 and self.cases != "-"

    def __str__(self) -> str:
        ended = "ok" if self.is_sound else f"FAILED (status {self.status})"
        return f"{self.name:24}{self.seconds:8.0f}{self.cases:>10}{self.faults:>8}  {ended}"


def campaign_names() -> list[str]:
    files = sorted(FOLDER.glob("*.py"))
    found = [path.stem for path in files if re.search(r"^def campaign\(", path.read_text(), re.MULTILINE)]
    return [name for name in found if not name.startswith("test_")]


def ending(name: str, seconds: int, seed: int) -> Ending:
    """Run a campaign and show what it writes -> how it ended."""
    command = [sys.executable, "-m", f"fuzz.{name}", "--seconds", str(seconds), "--seed", str(seed)]
    started, line = time.monotonic(), ""
    with subprocess.Popen(command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
    last = LAST_LINE.fullmatch(line.strip())
    return Ending(name, process.returncode, time.monotonic() - started, *(last.groups() if last else ()))


def main(argv: Sequence[str]) -> int:
    known = campaign_names()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", help=f"names, all by default: {', '.join(known)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="shared out among the campaigns")
    parser.add_argument("--seed", type=int, help="one that has not been tried by default")
    flags = parser.parse_args(argv)
    unknown = sorted(set(flags.campaigns) - set(known))
    if unknown:
        parser.error(f"there is no campaign {unknown[0]!r}: choose from {', '.join(known)}")
    names = flags.campaigns or known
    seed = int(time.time()) if flags.seed is None else flags.seed
    total = sum(SHARES.get(name, 1.0) for name in names)
    endings = []
    for name in names:
        seconds = round(flags.seconds * SHARES.get(name, 1.0) / total)
        print(f"== {name}: {seconds} s, seed {seed}", flush=True)
        endings.append(ending(name, seconds, seed))
    print(f"== campaigns, seed {seed}", f"{'':24} seconds     cases  faults", *endings, sep="\n")
    return int(not all(each.is_sound for each in endings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
