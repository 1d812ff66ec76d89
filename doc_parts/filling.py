"""The parts of a page that code fills in, and which code fills them in."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from . import benchmark_parts, checkpoint_parts, config_parts, paper_parts

DOCS = Path(__file__).parents[1] / "docs"
PART = re.compile(r"<!-- fill: (?P<call>[^\n]*?) -->\n.*?<!-- filled -->", re.DOTALL)
KINDS: dict[str, Callable[..., str]] = {
    "config": config_parts.own_fields,
    "common-config": config_parts.common_fields,
    "presets": config_parts.presets,
    "work": checkpoint_parts.counted_work,
    "checkpoints": checkpoint_parts.of_architecture,
    "reached": checkpoint_parts.of_benchmark,
    "depth-table": checkpoint_parts.steps_by_difficulty,
    "exit-table": checkpoint_parts.exit_against_fixed_depth,
    "benchmark": benchmark_parts.facts,
    "columns": benchmark_parts.columns,
    "parameters": benchmark_parts.parameters,
    "examples": benchmark_parts.shown_examples,
    "paper": paper_parts.table_of,
    "differences": paper_parts.differences_of_recipes,
    "states": paper_parts.summary,
    "stored": checkpoint_parts.stored_table,
}


def pages_with_parts() -> list[Path]:
    """The pages with a part to fill in."""
    return sorted(path for path in DOCS.rglob("*.md") if PART.search(path.read_text(encoding="utf-8")))


def part(call: str) -> str:
    """The text of one part: its kind and arguments, in quotes where they have spaces.

    Raises:
        ValueError: there is no such kind.
    """
    kind, *arguments = shlex.split(call)
    if kind not in KINDS:
        raise ValueError(f"a page asks for a part {kind!r}: expected one of {', '.join(KINDS)}")
    return KINDS[kind](*arguments)


def filled(text: str) -> str:
    """A page with all its parts filled in."""
    return PART.sub(lambda found: f"<!-- fill: {found['call']} -->\n\n{part(found['call'])}\n\n<!-- filled -->", text)
