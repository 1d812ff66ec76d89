"""Dependency depth: what an operation depends on, on the authors' rows, on small lists and on random trees."""

import json
import random
from itertools import product
from pathlib import Path

import naive_listops as naive
import pytest

from hf_recurrent.benchmarks import describe_example, normalize_expression, render_example
from hf_recurrent.benchmarks.listops_depth.expressions import analyse, make_example
from hf_recurrent.benchmarks.listops_depth.rules import MIDDLES, arrangements

DATA = Path(__file__).with_name("data") / "listops_depth"


@pytest.mark.parametrize("name", ["train", "iid", "valid", "test_depth"])
def test_the_authors_rows(name):
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    assert len(lines) == 100
    for line in lines:
        theirs = json.loads(line)
        ours = make_example(theirs["input"].split())
        assert ours == {
            "text": theirs["input"],
            "label": int(theirs["target"]),
            "depth": theirs["dependency_depth_code"] - 1,
            "structural_depth": theirs["depth_code"] - 1,
            "length": theirs["n_tokens"],
            "num_operators": theirs["length_code"] - theirs["n_tokens"],
        }


@pytest.mark.parametrize(
    ("text", "value", "depth"),
    [
        ("7", 7, 0),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9, 1),
        ("[SM 2 9 [MIN 4 7 ] 0 ]", 5, 2),
        # of equal values the first counts
        ("[MAX 5 [MIN 5 9 ] ]", 5, 1),
        ("[MAX [MIN 5 9 ] 5 ]", 5, 2),
        ("[MIN 5 [MIN 5 9 ] ]", 5, 1),
        ("[MIN [MIN 5 9 ] 5 ]", 5, 2),
        ("[MED [MIN 5 9 ] 5 5 ]", 5, 1),
        ("[MED 5 [MIN 5 9 ] 5 ]", 5, 2),
        # both middle ones count
        ("[MED 1 [SM 4 4 ] 3 9 ]", 5, 2),
        ("[MED 1 [SM 5 4 ] 3 9 ]", 6, 2),
        ("[MED 1 9 3 [SM 5 4 ] ]", 6, 1),
        ("[MED [SM 1 1 ] 7 ]", 4, 2),
    ],
)
def test_what_an_operation_depends_on(text, value, depth):
    row = make_example(text.split())
    assert (row["label"], row["depth"]) == (value, depth)
    assert naive.evaluate(naive.parse(text)) == (value, depth + 1)


def test_random_trees():
    rng = random.Random(0)
    differ = 0
    for _ in range(3000):
        tree = naive.sample(3, 5, rng, 0.6)
        text = naive.spell(tree)
        value, depth = naive.evaluate(tree)
        row = make_example(text.split())
        assert (row["label"], row["depth"], row["structural_depth"]) == (value, depth - 1, naive.levels(tree) - 1)
        assert row["length"] + row["num_operators"] == naive.size(tree)
        assert analyse(text.split())[-1] == (value, depth - 1)
        differ += row["depth"] < row["structural_depth"]
    assert differ > 1000


RELATIONS = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}


@pytest.mark.parametrize("operator", ["[MIN", "[MAX", "[MED"])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_list_has_one_arrangement(operator, size):
    for values in product(range(4), repeat=size):
        found = [
            (low, high)
            for low, high, others in arrangements(operator, size)
            if (values[low] < values[high] or (values[low] == values[high] and low <= high))
            and all(
                RELATIONS[name](values[place], values[high if name in ("gt", "ge") else low]) for place, name in others
            )
        ]
        ranked = sorted(range(size), key=values.__getitem__)
        expected = {
            "[MIN": (values.index(min(values)),) * 2,
            "[MAX": (values.index(max(values)),) * 2,
            "[MED": (ranked[(size - 1) // 2], ranked[size // 2]),
        }
        assert found == [expected[operator]]


def test_middles():
    pairs = [(low, high) for low in range(10) for high in range(low, 10)]
    assert sorted(pair for middles in MIDDLES for pair in middles) == pairs
    assert all((low + high) // 2 == value for value, middles in enumerate(MIDDLES) for low, high in middles)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MAX 2 [AVG 3 4 ] ]", r"token 3 is '\[AVG'; expected one of \[MIN \[MAX \[MED \[SM \] 0 1"),
        ("[MAX 2 11 ]", "token 3 is '11'"),
        ("[MAX 2 ] 3", r"the expression ends before token 4 \('3'\)"),
        ("[MAX 2 [MIN ] ]", r"token 4 closes '\[MIN', which has no arguments"),
        ("2 ]", r"ends before token 2"),
        ("]", r"token 1 is '\]' but no list is open"),
        ("[MAX 2 [MIN 3 ]", r"1 list\(s\) are not closed; the innermost is '\[MAX'"),
        ("", "the expression is empty"),
    ],
)
def test_malformed_text(text, message):
    with pytest.raises(ValueError, match=message):
        make_example(text.split())
    with pytest.raises(ValueError, match=message):
        normalize_expression(text, "listops_depth")
    with pytest.raises(ValueError, match=message):
        render_example("listops_depth", {"text": text})


def test_tree():
    text = "[MED 1 9 [MAX [SM 5 4 ] [MIN 9 9 9 ] ] ]"
    row = make_example(text.split())
    described = describe_example("listops_depth", row)
    assert described.tree.splitlines() == [
        "MED = 9 (depth 1)",
        "  1 9",
        "  MAX = 9 (depth 2)",
        "    SM = 9 (depth 1)",
        "      5 4",
        "    MIN = 9 (depth 1)",
        "      9 9 9",
    ]
    assert described.answer == "its value is 9"
    assert described.difficulty == {"depth": 1, "structural_depth": 3, "length": 15, "num_operators": 4}
    assert render_example("listops_depth", {"text": "[max 3[MIN 4 7]0]"}) == (
        "MAX = 4 (depth 2)\n  3\n  MIN = 4 (depth 1)\n    4 7\n  0"
    )
    assert render_example("listops_depth", {"text": "3"}) == "3"
