"""Store the results that docs/performance.md shows, and draw it.

    python -m perf record
    python -m perf record --scripts counted
    python -m perf record --dynamic-halt FOLDER --ndr FOLDER --sut FOLDER

Each script runs in a process of its own, with the options below; `reference` if folders with the authors' code are
given, see there.
"""

import argparse
import subprocess
import sys

from . import page

RECORDED = {
    "albert": [],
    "counted": [],
    "packing": ["--rows", "32", "--batch-size", "8", "--repeats", "3"],
    "halting": ["--num-steps", "10", "--batch-size", "16", "--length", "48", "--repeats", "3"],
    "exits": [],
    "plain": [],
    "profile": ["--seconds", "1", "--repeats", "3"],
    "sut": ["--batch-size", "16", "--repeats", "3"],
    "ouro": ["--repeats", "3"],
    "evaluation": [],
    "compiled": [],
    "static_cache": ["--num-steps", "2", "--batch-sizes", "4", "--tokens", "32", "--repeats", "3"],
    "training": [],
    "scaling": [],
}
FOLDERS = ("dynamic-halt", "ndr", "sut")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m perf record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", nargs="+", choices=RECORDED, help="all of them by default")
    for origin in FOLDERS:
        parser.add_argument(f"--{origin}", metavar="FOLDER", help="of the authors' code")
    args = parser.parse_args(arguments)
    folders = {origin: getattr(args, origin.replace("-", "_")) for origin in FOLDERS}
    given = [part for origin, folder in folders.items() if folder for part in (f"--{origin}", folder)]
    names = args.scripts or ([] if given else RECORDED)
    runs = {name: RECORDED[name] for name in names} | ({"reference": given} if given else {})
    for name, options in runs.items():
        subprocess.run([sys.executable, "-m", "perf", name, *options, "--store"], check=True)
    page.main([])
