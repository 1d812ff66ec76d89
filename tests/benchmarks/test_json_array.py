"""Arrays of JSON objects that are read piece by piece."""

import io
import json
import re

import pytest

from hf_recurrent.benchmarks.json_array import read_items

ITEMS = [{"a": ']},{\\"é', "b": [1, {"c": None}]}, {}, {"d": -2.5e3, "e": "\u2028\n"}]


def items(text, block=1 << 20):
    return read_items(io.StringIO(text), "a.json", block)


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_items_are_those_of_json(block, indent):
    text = json.dumps(ITEMS, indent=indent, ensure_ascii=False)
    assert list(items(f"{text} \n\t\n", block)) == ITEMS
    assert list(items(" [ ]", block)) == []


def test_items_come_before_the_rest_is_read():
    """What stands behind an item does not matter until it is asked for, so that little is in memory."""
    found = items(json.dumps(ITEMS[:2])[:-1] + ", broken", 8)
    assert [next(found), next(found)] == ITEMS[:2]
    with pytest.raises(ValueError, match=re.escape("expected '{', got 'bro")):
        next(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends where '[' was expected"),
        ('{"a": 1}', "expected '[', got"),
        ("[1]", "expected '{' or ']', got '1"),
        ("[{}", "ends where ',' or ']' was expected"),
        ("[{},", "ends where '{' was expected"),
        ("[{},]", "expected '{', got ']'"),
        ("[{} {}]", "expected ',' or ']', got '{"),
        ('[{"a": ', "an object is damaged or not whole"),
        ("[{a}]", "an object is damaged or not whole"),
        ("[{}]\n[{}]", "expected the end after ']', got '["),
        ("[] x", "expected the end after ']', got 'x'"),
    ],
)
def test_damaged_files(text, message):
    for block in (1, 100):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            list(items(text, block))
        assert "a.json" in str(caught.value)
