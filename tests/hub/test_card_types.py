"""Whatever is wrong in `card.json`, one message names the file and the place."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hf_recurrent.hub.card import lint_card, read_rendered, write_card
from support.families import slow

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
FOLDERS = sorted(path.parent for path in MODEL_CARDS.glob("*/card.json"))
VALUES = ("x", 7, 0.5, True, None, [], {}, [None], {"a": 1}, float("nan"))
DRAWN = 40


def places(value: Any, place: tuple = ()) -> Iterator[tuple]:
    """The place of every value in nested data, of lists the first item's alone."""
    yield place
    firsts = enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else firsts:
        yield from places(item, (*place, key))


def named(place: tuple) -> str:
    return "card" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)


def replaced(data: Any, place: tuple, value: Any) -> Any:
    if not place:
        return value
    changed = data.copy()
    changed[place[0]] = replaced(data[place[0]], place[1:], value)
    return changed


def problem_of(folder: Path) -> str:
    try:
        read_rendered(folder)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("folder", [FOLDERS[0], *map(slow, FOLDERS[1:])], ids=lambda folder: folder.name)
def test_no_wrong_type_goes_without_a_message(folder, tmp_path):
    """A card is refused by a message with the place, or all that it says can be rendered."""
    data, random = json.loads((folder / "card.json").read_text()), Random(folder.name)
    found, told = list(places(data))[1:], 0
    for place in random.sample(found, min(DRAWN, len(found))):
        value = random.choice(VALUES)
        (tmp_path / "card.json").write_text(json.dumps(replaced(data, place, value)))
        problem = problem_of(tmp_path)
        assert re.fullmatch(r"(card\.json cannot be rendered: .+)?", problem)
        told += named(place) in problem
    assert told > DRAWN / 3


FAULTS = [
    (("max_steps",), "4", "card.max_steps is '4': expected a whole number"),
    (("max_steps",), True, "card.max_steps is True: expected a whole number"),
    (("model_name",), None, "card.model_name is None: expected text"),
    (("results",), {}, "card.results is {}: expected a list"),
    (("results",), [3], "card.results[0] is 3: expected an object"),
    (
        ("results", 0, "table", "accuracy"),
        "high",
        ".table.accuracy is 'high': expected a number or null",
    ),
    (
        ("results", 0, "table", "accuracy"),
        float("inf"),
        "[0].table.accuracy is inf: expected a number or null",
    ),
    (("results", 0, "paper_accuracy"), [], "card.results[0].paper_accuracy is []: expected a number or null"),
    (("results", 0, "table", "slices", "depth"), 1, "card.results[0].table.slices.depth is 1: expected an object"),
    (("training", "versions", "torch"), 2, "card.training.versions.torch is 2: expected text"),
    (("limitations",), ["a", 1], "card.limitations[1] is 1: expected text"),
    (("plots",), None, "card.plots is None: expected a list"),
    (("family",), "bert", "family is 'bert': expected one of xpos_transformer"),
    (("results", 0, "table"), {"fixed_depth": False}, "card.results[0].table.slices is missing: write it again"),
    (
        ("results", 0, "table", "slices", "depth", "rows", 0, "steps"),
        {"p95": 1.0},
        "card.results[0].table.slices.depth.rows[0].steps.mean is missing",
    ),
    (
        ("results", 0, "table", "slices", "depth", "rows"),
        None,
        "card.results[0].table.slices.depth.rows is None: expected a list",
    ),
]


@pytest.mark.parametrize(("place", "value", "message"), FAULTS)
def test_the_field_is_named(place, value, message, card, tmp_path):
    write_card(tmp_path, card)
    data = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps(replaced(data, place, value)))
    with pytest.raises(ValueError, match=re.escape(message)):
        lint_card(tmp_path)
    with pytest.raises(ValueError, match=r"^card\.json cannot be rendered: " + ".*" + re.escape(message)):
        read_rendered(tmp_path)
