"""The contents of a finished run's folder, but for measured times and what depends on the last bit of weights."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from hf_recurrent.hub import lint_card
from support.compare import assert_close

# the card's digest is checked to be that of the weights
VARYING = {"date": "2000-01-01", "wall_time": 1.0, "seconds": 1.0, "weights": "0" * 64}
# relative to the largest value: a resumed run has its tensors elsewhere in memory
TOLERANCE = 1e-4
LONGEST = 300


def contents(folder: Path) -> dict[str, Any]:
    """Path in `folder` -> what is there: weights as tensors, the card without what varies.

    Raises:
        ValueError: the card is not the one that its data is rendered to.
    """
    lint_card(folder)
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = content(path)
    return found


def content(path: Path) -> Any:
    if path.name in ("card.json", "halting_stats.json"):
        return without_varying(json.loads(path.read_text()))
    if path.name == "timing.json":
        return shape(json.loads(path.read_text()))
    if path.suffix == ".safetensors":
        return load_file(path)
    # archives hold times; the card is checked to be the rendering of its data; figures are drawn from numbers
    if path.parent.name.startswith("checkpoint-") or path.name == "README.md" or path.suffix == ".png":
        return None
    return path.read_bytes()


def without_varying(value: Any) -> Any:
    """`value` with the same in the place of each date, number of seconds and digest."""
    if isinstance(value, dict):
        return {name: VARYING.get(name, without_varying(item)) for name, item in value.items()}
    return [without_varying(item) for item in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """The keys and lengths of `value`, without its numbers."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return len(value) if isinstance(value, list) else type(value).__name__


def differences(actual: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """One line for each path that is missing, too much, or holds something else."""
    lines = [f"{path} is missing" for path in sorted(expected.keys() - actual.keys())]
    lines += [f"{path} is left over" for path in sorted(actual.keys() - expected.keys())]
    for path in sorted(actual.keys() & expected.keys()):
        try:
            assert_close(actual[path], expected[path], TOLERANCE)
        except AssertionError as error:
            lines.append(f"{path} differs: {' '.join(str(error).split())[:LONGEST]}")
    return lines
