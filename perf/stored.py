"""Stored results: what was measured, where and with what, and the page that shows them."""

import argparse
import json
import os
import platform
import shlex
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from .core import Table, as_markdown

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
HEAD = """# Performance

Drawn by `python -m perf page` from what `python -m perf record` stored in `perf/results`; `python -m perf SCRIPT
--help` says how a script measures. Ways are taken in turns in one process; `ms` is the median over the rounds, of
processor time on one thread of a CPU, and `ratio` the median ratio to the base in the same round, with its quartiles.
Products are multiply-accumulates, counted as they are executed. Times differ by a few percent from run to run, counted
work does not.
"""


class Stored(NamedTuple):
    """The tables of one run of a script."""

    script: str
    date: str
    machine: dict[str, Any]
    versions: dict[str, str]
    arguments: list[str]
    tables: list[Table]

    @classmethod
    def of(cls, script: str, arguments: list[str], args: argparse.Namespace) -> "Stored":
        machine = {
            "processor": processor_name(),
            "cores": os.cpu_count(),
            "threads": args.threads,
            "device": args.device if args.device == "cpu" else torch.cuda.get_device_name(args.device),
            "dtype": args.dtype,
        }
        versions = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        return cls(script, date.today().isoformat(), machine, versions, public(arguments), [])

    @classmethod
    def read(cls, path: Path) -> "Stored":
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**found, "tables": [Table(**table) for table in found["tables"]]})

    def write(self, path: Path) -> None:
        content = {**self._asdict(), "tables": [table._asdict() for table in self.tables]}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def table(self, title: str) -> Table:
        return next(table for table in self.tables if table.title == title)


def path_of(script: str) -> Path:
    return RESULTS / f"{script}.json"


def processor_name() -> str:
    """The model that Linux tells, or what Python knows."""
    path = Path("/proc/cpuinfo")
    names = path.read_text().splitlines() if path.is_file() else []
    return next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), platform.machine())


def public(arguments: list[str]) -> list[str]:
    """Arguments without what keeps results, and without where this machine has its folders."""
    kept = [argument for argument in arguments if argument != "--store"]
    return [Path(argument).name if os.path.isabs(argument) else argument for argument in kept]


def setting(found: Stored) -> str:
    machine, versions = found.machine, found.versions
    place = f"{machine['dtype']} on {machine['device']}, {machine['processor']}"
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{place}, {machine['threads']} of {machine['cores']} cores; {packages}; {found.date}"


def page() -> str:
    """The page of all stored results."""
    sections = [HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        found = Stored.read(path)
        command = shlex.join(["python", "-m", "perf", found.script, *found.arguments])
        sections += [f"## {found.script}\n\n`{command}`: {setting(found)}.\n", *map(as_markdown, found.tables)]
    return "\n".join(sections)
