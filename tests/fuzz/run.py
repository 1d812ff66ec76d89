"""All campaigns one after the other, each a process of its own.

    cd tests; python -m fuzz.run --seconds 600 --seed 0
    cd tests; python -m fuzz.run invariances load --seconds 60

The exit status is 1 if one of them found a fault, tried nothing or broke.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
CAMPAIGNS = ("invariances", "kills", "load", "long_contexts")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", nargs="*", help=f"names, all by default: {', '.join(CAMPAIGNS)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="shared out among the campaigns")
    parser.add_argument("--seed", type=int, help="one that has not been tried by default")
    flags = parser.parse_args(argv)
    names = flags.campaigns or CAMPAIGNS
    seed, failed = int(time.time()) if flags.seed is None else flags.seed, []
    for name in names:
        seconds = round(flags.seconds / len(names))
        print(f"== {name}: {seconds} s, seed {seed}", flush=True)
        command = [sys.executable, "-m", f"fuzz.{name}", "--seconds", str(seconds), "--seed", str(seed)]
        failed += [name] * (subprocess.run(command, cwd=FOLDER.parent, check=False).returncode != 0)
    print(
        f"== {len(names) - len(failed)} of {len(names)} campaigns found no fault; failed: {', '.join(failed) or 'none'}"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
