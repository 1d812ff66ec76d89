"""Rows of generated Pathfinder splits, and pictures as text."""

import numpy as np
import pytest

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.benchmarks.lra.pathfinder import benchmark as pathfinder
from hf_recurrent.benchmarks.lra.pathfinder import contours
from hf_recurrent.benchmarks.lra.pathfinder.generate import generate
from hf_recurrent.benchmarks.pixels import format_pixels, parse_pixels

SMALL = {"num_train": 5, "num_validation": 3, "num_test": 4, "contour_length": 4}


def params(**changes):
    return {**benchmark_info("lra").parameters["pathfinder32"], **SMALL, **changes}


def rows(config="pathfinder32", **changes):
    planned = pathfinder.Pathfinder(config).plan(config, params(**changes))
    return {split: [row for shard in shards for row in shard.examples()] for split, shards in planned.items()}


def test_rows_say_what_is_in_the_picture():
    found = rows(distractor_length=2, num_distractors=3)
    assert {split: len(each) for split, each in found.items()} == {"train": 5, "validation": 3, "test": 4}
    (shard,) = pathfinder.Pathfinder("pathfinder32").plan(
        "pathfinder32", params(distractor_length=2, num_distractors=3)
    )["train"]
    (settings,), *place = shard.arguments
    pictures = generate(settings, pathfinder.example_keys(settings, *place))
    for number, row in enumerate(found["train"]):
        np.testing.assert_array_equal(parse_pixels(row["pixels"]), pictures.images[number])
        assert row["label"] == pictures.labels[number]
        assert row["num_placed"] == pictures.placed[number]
        assert row["marker_distance"] == round(np.linalg.norm(np.subtract(*pictures.markers[number].tolist())))
        assert (row["contour_length"], row["distractor_length"], row["num_distractors"]) == (4, 2, 3)
        assert all(type(value) is int for name, value in row.items() if name != "pixels")
    assert len({row["pixels"] for each in found.values() for row in each}) == 12


def test_a_row_depends_on_its_place_and_the_parameters_alone(monkeypatch):
    first = rows()
    # neither on how many rows there are, nor on how they are cut into shards
    monkeypatch.setattr(pathfinder, "EXAMPLES_PER_SHARD", 2)
    more = rows(num_train=7, num_test=0)
    assert list(more) == ["train", "validation"]
    assert more["train"][:5] == first["train"]
    assert more["validation"] == first["validation"]
    for change in ({"seed": 1}, {"num_distractors": 1}, {"continuity": 0.9}):
        other = rows(num_validation=0, num_test=0, **change)["train"]
        assert not {row["pixels"] for row in other} & {row["pixels"] for row in first["train"]}


def test_what_cannot_be_planned(monkeypatch):
    with pytest.raises(ValueError, match="every split has 0 examples"):
        pathfinder.Pathfinder("pathfinder32").plan("pathfinder32", params(num_train=0, num_validation=0, num_test=0))
    monkeypatch.setattr(contours, "PROBE", 1000)
    # said before any row is made
    with pytest.raises(ValueError, match="contour_length=50: two such contours were not found"):
        pathfinder.Pathfinder("pathfinder32").plan("pathfinder32", params(contour_length=50))


def test_pixels_come_back():
    picture = np.arange(256, dtype=np.uint8).reshape(16, 16)
    text = format_pixels(picture)
    assert text.startswith("0 1 2 ")
    assert text.endswith(" 254 255")
    found = parse_pixels(text)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, picture)
    assert parse_pixels("7").tolist() == [[7]]
    assert format_pixels(np.array([[16, 0], [3, 9]])) == "16 0 3 9"


BAD_TEXTS = [
    ("1 2 3", "3 values"),
    ("1 2 x 4", "value 2 is 'x'"),
    ("256", "'256'"),
    ("", "value 0 is ''"),
    ("-1", "-1"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS)
def test_texts_that_are_no_pictures(text, message):
    with pytest.raises(ValueError, match=message):
        parse_pixels(text)
