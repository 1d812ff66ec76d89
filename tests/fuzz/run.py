"""All campaigns one after the other, each a process of its own, and how they ended.

    cd tests; python -m fuzz.run --seconds 600 --seed 0
    cd tests; python -m fuzz.run invariances --seconds 60

A campaign is a module of this folder with a function `campaign` that runs as a program with the flags `--seconds` and
`--seed`, shows what it found, and exits with a status other than 0 if that is a fault.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
# the share of the time that a campaign gets, where that is not one
SHARES = {"invariances": 2.0}


def campaign_names() -> list[str]:
    files = sorted(FOLDER.glob("*.py"))
    return [path.stem for path in files if re.search(r"^def campaign\(", path.read_text(), re.MULTILINE)]


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
    lines = []
    for name in names:
        seconds = round(flags.seconds * SHARES.get(name, 1.0) / total)
        print(f"== {name}: {seconds} s, seed {seed}", flush=True)
        command = [sys.executable, "-m", f"fuzz.{name}", "--seconds", str(seconds), "--seed", str(seed)]
        started = time.monotonic()
        status = subprocess.run(command, cwd=FOLDER.parent, check=False).returncode
        ended = "nothing found" if status == 0 else f"FAULTS (status {status})"
        lines.append((status, f"{name:24} {time.monotonic() - started:6.0f} s  {ended}"))
    print("== campaigns", *(line for _, line in lines), sep="\n")
    return int(any(status for status, _ in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
