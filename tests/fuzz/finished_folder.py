"""The contents of a finished run's folder, but for the times that were measured."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from hf_recurrent.hub import CardData, lint_card, render_card

# a checkpoint's state is compared by its weights: it holds times, and zip archives with them
STATES = ("trainer_state.json", "progress.json")
TIMES = {"date": "2000-01-01", "wall_time": 1.0, "seconds": 1.0}
ARCHIVES = (".pt", ".pth", ".bin", ".pkl")


def contents(folder: Path) -> dict[str, Any]:
    """Path in `folder` -> what is there: weights bit by bit, the card without its date and the seconds of training.

    Raises:
        ValueError: the card is not the one that its data is rendered to.
    """
    lint_card(folder)
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = content(path)
    # as a card without times is rendered
    found["README.md"] = render_card(CardData.from_dict(found["card.json"]))
    return found


def content(path: Path) -> Any:
    if path.name in ("card.json", "halting_stats.json"):
        return without_times(json.loads(path.read_text()))
    if path.name == "timing.json":
        return shape(json.loads(path.read_text()))
    if path.suffix == ".safetensors":
        return {
            name: (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes())
            for name, tensor in load_file(path).items()
        }
    if path.parent.name.startswith("checkpoint-"):
        # times, and archives with times
        return None
    return path.read_bytes()


def without_times(value: Any) -> Any:
    """`value` with the same in the place of each date and of each number of seconds."""
    if isinstance(value, dict):
        return {name: TIMES.get(name, without_times(item)) for name, item in value.items()}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """The keys and lengths of `value`, without its numbers."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    return len(value) if isinstance(value, list) else type(value).__name__


def differences(actual: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """One line for each path that is missing, too much, or holds something else."""
    lines = [f"{path} is missing" for path in sorted(expected.keys() - actual.keys())]
    lines += [f"{path} is left over" for path in sorted(actual.keys() - expected.keys())]
    return lines + [
        f"{path} differs: {first_difference(actual[path], expected[path])}"
        for path in sorted(actual.keys() & expected.keys())
        if actual[path] != expected[path]
    ]


def first_difference(actual: Any, expected: Any) -> str:
    if isinstance(actual, dict) and isinstance(expected, dict):
        for name in sorted(actual.keys() | expected.keys()):
            if actual.get(name) != expected.get(name):
                return f"{name}: {first_difference(actual.get(name), expected.get(name))}"
    if isinstance(actual, (bytes, str)) and type(actual) is type(expected):
        lines = zip(actual.splitlines(), expected.splitlines(), strict=False)
        actual, expected = next((pair for pair in lines if pair[0] != pair[1]), (actual[-80:], expected[-80:]))
    return f"{actual!r:.120} instead of {expected!r:.120}"
