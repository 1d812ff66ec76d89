"""Every door with every architecture, and the table of what they did: docs/compatibility.md.

    cd tests; python -m doors.table                 # all of them
    cd tests; python -m doors.table Trainer LoRA    # some, whose rows are replaced
    cd tests; python -m doors.table --architecture gut  # all of one architecture, whose outcomes are replaced

Nothing is written unless all end as they are declared. The exit status is then 1.
"""

import argparse
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from hf_recurrent import ARCHITECTURES

from .catalogue import DOORS
from .door import EXTRA, WORKS, Door

FILE = Path(__file__).parents[2] / "docs" / "compatibility.md"
TESTS = Path(__file__).with_name("test_doors.py")
INTRODUCTION = """# Compatibility

Each row is an integration, tried with a tiny model of each of the {number} architectures. The last column names the
architectures that do not support the integration, and links to the error message that they raise. `make compatibility`
runs `tests/doors` and writes this page.
"""
HEAD = "| integration | tested with | works in | not supported by |"
# of a message, which may have accents of its own
QUOTE = "``"
# plugins of tools are imported with these, before pytest
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ["-m", "nightly", "-n", "auto", "-o", "processor_seconds=0", "-W", IMPORTED]


class Row(NamedTuple):
    """What a door did, with the versions of the packages that it is about: an outcome of each architecture."""

    packages: str
    outcomes: dict[str, str]


class Outcomes:
    """A plugin of pytest that gathers what the doors did."""

    def __init__(self):
        self.by_door: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report) -> None:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "door":
                door, architecture, outcome = value
                self.by_door.setdefault(door, {})[architecture] = outcome


def versions(door: Door) -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in door.packages)


def render(rows: Mapping[str, Row]) -> str:
    """The page, from the rows of all doors by their names."""
    numbers: dict[str, int] = {}
    text = INTRODUCTION.format(number=len(ARCHITECTURES))
    for group, doors in itertools.groupby(DOORS, key=lambda door: door.group):
        text += f"\n## {group}\n\n{HEAD}\n|---|---|---:|---|\n"
        for door in doors:
            row = rows[door.name]
            refused = [
                f"`{name}`[^{numbers.setdefault(row.outcomes[name], len(numbers) + 1)}]"
                for name in ARCHITECTURES
                if row.outcomes[name] != WORKS
            ]
            works = len(ARCHITECTURES) - len(refused)
            text += f"| {escaped(door.name)} | {row.packages} | {works} | {', '.join(refused)} |\n"
    notes = (f"[^{number}]: {QUOTE} {message} {QUOTE}\n" for message, number in numbers.items())
    return f"{text}\n{''.join(notes)}"


def escaped(name: str) -> str:
    return name.replace("|", r"\|")


def parse(text: str) -> dict[tuple[str, str], Row]:
    """The rows of a page, by group and name."""
    notes = dict(re.findall(rf"^(\[\^\d+\]): {QUOTE} (.*) {QUOTE}$", text, re.MULTILINE))
    rows = {}
    group = ""
    for line in text.splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif cells and line != HEAD and set(cells[0]) != {"-"}:
            name, packages, _, refused = cells
            messages = {name: notes[note] for name, note in re.findall(r"`(\w+)`(\[\^\d+\])", refused)}
            rows[group, name] = Row(packages, dict.fromkeys(ARCHITECTURES, WORKS) | messages)
    return rows


def main(argv: Sequence[str]) -> int:
    names = {door.name: door for door in DOORS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("doors", nargs="*", help=f"names, all by default: {', '.join(names)}")
    parser.add_argument("--architecture", choices=ARCHITECTURES, help="all architectures by default")
    options = parser.parse_args(argv)
    chosen = options.doors or list(names)
    architectures = list(ARCHITECTURES) if options.architecture is None else [options.architecture]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"there is no door {unknown[0]!r}: choose from {', '.join(names)}")
    missing = sorted({package for name in chosen for package in names[name].missing})
    if missing:
        parser.error(f"{', '.join(missing)} not installed: pip install '{EXTRA}', or run `make compatibility`")
    tests = [f"{TESTS}::test_door[{name}-{architecture}]" for name in chosen for architecture in architectures]
    found = Outcomes()
    status = pytest.main([*OPTIONS, *tests], plugins=[found])
    if status != pytest.ExitCode.OK:
        print(f"{FILE.name} is left as it is", file=sys.stderr)
        return 1
    kept = {name: row for (_, name), row in parse(FILE.read_text()).items()} if FILE.exists() else {}
    for name, outcomes in found.by_door.items():
        others = kept[name].outcomes if name in kept else {}
        kept[name] = Row(versions(names[name]), others | outcomes)
    FILE.write_text(render(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
