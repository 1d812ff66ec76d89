"""Arrays of JSON objects that are read piece by piece."""

import json
import re

import pytest

from hf_recurrent.benchmarks import json_array
from hf_recurrent.benchmarks.json_array import array_items

ITEMS = [{"a": ']},{\\"é', "b": [1, {"c": None}]}, {}, {"d": -2.5e3, "e": "\u2028\n"}]


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_items_are_those_of_json(block, indent, ascii_only, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ITEMS, indent=indent, ensure_ascii=ascii_only) + "\n", encoding="utf-8")
    assert list(array_items(str(path), block)) == ITEMS


def test_white_space_may_follow(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ITEMS) + " \n\t\n", encoding="utf-8")
    assert list(array_items(str(path), 2)) == ITEMS


def test_no_items(tmp_path):
    (tmp_path / "a.json").write_text(" [ ]")
    assert list(array_items(str(tmp_path / "a.json"))) == []


def test_items_come_before_the_rest_is_read(tmp_path):
    """What stands behind an item does not matter until it is asked for, so that little is in memory."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ITEMS[:2])[:-1] + ", broken")
    items = array_items(str(path), 8)
    assert [next(items), next(items)] == ITEMS[:2]
    with pytest.raises(ValueError, match=re.escape("expected '{', got 'bro")):
        next(items)


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
        ('[{"a": ', "an object is damaged, not whole, or larger"),
        ("[{a}]", "an object is damaged, not whole, or larger"),
        ('[{}, {"a": [{"b": 1, "b": 2}]}]', "an object has ['b'] more than once"),
        ("[{}]\n[{}]", "expected the end after ']', got '["),
        ("[] x", "expected the end after ']', got 'x'"),
    ],
)
def test_damaged_files(text, message, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    for block in (1, 100):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            list(array_items(str(path), block))
        assert str(path) in str(caught.value)


def test_a_damaged_object_is_not_waited_for_forever(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_RECURRENT_MAX_JSON_BYTES", "100")
    path = tmp_path / "a.json"
    path.write_text("[{a" + " " * 1000 + '}, {"b": 1}]')
    read = []
    monkeypatch.setattr(json_array.json.JSONDecoder, "raw_decode", counted(read))
    with pytest.raises(ValueError, match="an object is damaged"):
        list(array_items(str(path), 10))
    assert 5 < len(read) < 20


def counted(calls, decode=json.JSONDecoder.raw_decode):
    def raw_decode(self, text, place):
        calls.append(len(text))
        return decode(self, text, place)

    return raw_decode


def test_not_utf8(tmp_path):
    (tmp_path / "a.json").write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(ValueError, match=r"a\.json: expected UTF-8 text"):
        list(array_items(str(tmp_path / "a.json")))
