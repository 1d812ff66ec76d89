"""What stands in for the arena offline: digits, reviews, and passages of the standard library."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from long_document_files import write_files, write_zip
from lra_files import contents, planned_rows

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.benchmarks.lra.pathfinder import benchmark as pathfinder
from hf_recurrent.benchmarks.lra_stand_in import images, passages
from hf_recurrent.benchmarks.lra_stand_in.reviews import ToyReviews
from hf_recurrent.benchmarks.pixels import parse_pixels

DIGITS, TOY_REVIEWS, TOY_PASSAGES = images.Digits(), ToyReviews(), passages.Passages()
SHARES = {"seed": 0, "validation_share": 0.1, "test_share": 0.2}
REVIEWS = {**SHARES, "max_bytes": 4096}
ONE_SPLIT = REVIEWS | {"validation_share": 0, "test_share": 0}
PASSAGES = {"seed": 0, "num_train": 40, "num_validation": 20, "num_test": 20, "max_bytes": 500}


def test_digits():
    splits = planned_rows(DIGITS, SHARES)
    assert list(splits) == DIGITS.split_names("digits", SHARES) == ["train", "validation", "test"]
    images = np.array([parse_pixels(row["pixels"]) for rows in splits.values() for row in rows])
    labels = np.array([row["label"] for rows in splits.values() for row in rows])
    assert images.shape == (1797, 8, 8)
    # facts about the data that scikit-learn brings
    assert images.max() == 16
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert images.sum() == 561718
    # five standard deviations
    assert len(splits["validation"]) / 1797 == pytest.approx(0.1, abs=0.036)
    assert len(splits["test"]) / 1797 == pytest.approx(0.2, abs=0.048)
    # all kinds of digits in all splits: the data have them in turns
    assert all(len({row["label"] for row in rows}) == 10 for rows in splits.values())
    places = {seed: DIGITS.plan("digits", SHARES | {"seed": seed})["test"][0].arguments[0] for seed in (0, 1)}
    assert places[0] != places[1]
    assert list(DIGITS.plan("digits", SHARES | {"validation_share": 0})) == ["train", "test"]


def test_digits_need_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    images._digits.cache_clear()
    with pytest.raises(
        ValueError, match=r"scikit-learn, which brings the images .*pip install 'hf-recurrent\[digits\]'"
    ):
        DIGITS.plan("digits", SHARES)


def test_shares_of_digits():
    with pytest.raises(ValueError, match=r"validation_share=1e-06, .*: no image falls into validation"):
        DIGITS.plan("digits", SHARES | {"validation_share": 1e-6})
    with pytest.raises(ValueError, match="add up to more than 1"):
        DIGITS.split_names("digits", SHARES | {"test_share": 0.95})


DRAWINGS = {"seed": 0, "num_train": 20, "num_validation": 0, "num_test": 0, "contour_length": 5}


def drawn(monkeypatch, per_shard, **changes):
    monkeypatch.setattr(pathfinder, "EXAMPLES_PER_SHARD", per_shard)
    params = benchmark_info("lra_stand_in").parameters["pathfinder16"] | DRAWINGS | changes
    return planned_rows(images.Drawings(), images.Drawings().resolve("pathfinder16", params))["train"]


def test_contours_of_several_lengths_take_turns(monkeypatch):
    rows = drawn(monkeypatch, 250, min_contour_length=3)
    assert [row["contour_length"] for row in rows] == [3, 4, 5] * 6 + [3, 4]
    for place, length in enumerate((3, 4, 5)):
        mine = rows[place::3]
        assert mine == drawn(monkeypatch, 250, contour_length=length)[: len(mine)]
    # wherever shards begin
    for per_shard in (1, 7):
        assert drawn(monkeypatch, per_shard, min_contour_length=3) == rows
    assert drawn(monkeypatch, 250, min_contour_length=5) == drawn(monkeypatch, 250)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (6, "min_contour_length=6 is more than contour_length=5: give a number up to it, or None"),
        (1, "min_contour_length=1: expected None or an integer from 2 to 64"),
    ],
)
def test_wrong_shortest_contours(value, message):
    with pytest.raises(ValueError, match=message):
        images.Drawings().resolve("pathfinder16", DRAWINGS | {"min_contour_length": value})


FILES = {f"{folder}/{i}.txt": f"{folder} {i} é".encode("latin-1") for folder in ("neg", "pos") for i in range(20)}
BESIDE = {"README": b"x", "pos/readme.md": b"x", "neg/.hidden.txt": b"x", "pos/deeper/1.txt": b"x"}


def test_reviews_wherever_they_are(tmp_path):
    write_files(tmp_path / "in", FILES | BESIDE)
    write_zip(tmp_path / "in.zip", {f"corpus/{name}": content for name, content in (FILES | BESIDE).items()})
    splits = planned_rows(TOY_REVIEWS, REVIEWS, tmp_path / "in")
    found = sorted((content, row["label"]) for rows in splits.values() for row in rows for content in contents([row]))
    assert found == sorted((content, int(name.startswith("pos"))) for name, content in FILES.items())
    assert splits["train"][0]["length"] == splits["train"][0]["full_length"] == len(contents(splits["train"])[0])
    # the folder above, and a zip file
    assert planned_rows(TOY_REVIEWS, REVIEWS, tmp_path) == splits
    assert planned_rows(TOY_REVIEWS, REVIEWS, tmp_path / "in.zip") == splits
    (row,) = [
        row
        for row in planned_rows(TOY_REVIEWS, ONE_SPLIT | {"max_bytes": 6}, tmp_path / "in")["train"]
        if "g 7" in row["text"]
    ]
    assert (row["text"], row["length"], row["full_length"]) == ("neg 7 ", 6, 7)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pos/1.txt": "x", "pos/2.txt": "x"}, r"has no neg/\*\.txt: expected texts in neg and pos, there or in one"),
        ({"a/pos/1.txt": "x"}, r"has no a/neg/\*\.txt: expected"),
        ({"README": "x", "a/b/neg/1.txt": "x"}, r"has no neg/\*\.txt, pos/\*\.txt: expected"),
        ({"train/pos/1.txt": "x", "test/neg/1.txt": "x"}, r"in several places \(test/, train/\): give one of them"),
        ({"pos/1.txt": "x", "train/neg/1.txt": "x"}, r"in several places \(itself, train/\): give one of them"),
        ({"pos/1.txt": "", "neg/1.txt": "x"}, r"pos/1\.txt is empty: is the data set whole"),
    ],
)
def test_bad_reviews(files, message, tmp_path):
    write_files(tmp_path, files)
    with pytest.raises(ValueError, match=message):
        planned_rows(TOY_REVIEWS, ONE_SPLIT, tmp_path)


def test_reviews_are_given(tmp_path):
    with pytest.raises(
        ValueError, match=r"'reviews' reads your own texts: give data_dir, .*neg/\*\.txt and pos/\*\.txt"
    ):
        TOY_REVIEWS.default_folder("reviews", REVIEWS)
    write_files(tmp_path, {"neg/1.txt": "x", "pos/1.txt": "x"})
    with pytest.raises(ValueError, match=r"none of 2 texts falls into the validation split \(seed=0"):
        TOY_REVIEWS.plan_files("reviews", REVIEWS, tmp_path)


@pytest.fixture(scope="module")
def library():
    return TOY_PASSAGES.default_folder("passages", PASSAGES)


def modules_in(shard):
    return shard.arguments[2]


def modules_of(plan):
    return {split: [module.name for module in modules_in(shards[0])] for split, shards in plan.items()}


def content_of(module, library):
    return b"".join((library / part).read_bytes() for part in module.parts)


def test_passages(library):
    plan, splits = TOY_PASSAGES.plan_files("passages", PASSAGES, library), planned_rows(TOY_PASSAGES, PASSAGES, library)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 40, "validation": 20, "test": 20}
    for split, rows in splits.items():
        sources = [content_of(module, library) for module in modules_in(plan[split][0])]
        assert [row["label"] for row in rows] == [0, 1] * (len(rows) // 2)
        for row, first, second in zip(rows, contents(rows), contents(rows, "text_pair"), strict=True):
            assert len(first) == len(second) == row["length"] == row["length_pair"] == 500
            together = [source for source in sources if first in source and second in source]
            assert bool(together) == bool(row["label"])
            if not row["label"]:
                assert any(first in source for source in sources)
                assert any(second in source for source in sources)
            elif all(source.count(passage) == 1 for source in together for passage in (first, second)):
                assert all(abs(source.index(first) - source.index(second)) >= 500 for source in together)


def test_test_modules_are_unseen(library):
    plan = TOY_PASSAGES.plan_files("passages", PASSAGES, library)
    names = modules_of(plan)
    together = [name for members in names.values() for name in members]
    assert len(set(together)) == len(together) > 60
    assert set(together) <= sys.stdlib_module_names
    assert len(names["validation"]) / len(together) == pytest.approx(0.1, abs=0.01)
    assert len(names["test"]) / len(together) == pytest.approx(0.2, abs=0.01)
    assert modules_of(TOY_PASSAGES.plan_files("passages", PASSAGES | {"seed": 1}, library)) != names
    # what the cache hashes: every file, once
    files = [path for shards in plan.values() for path in shards[0].paths]
    assert len(set(files)) == len(files)
    assert all(Path(path).is_file() for path in files)


def test_a_pair_depends_on_its_place_alone(library):
    splits = planned_rows(TOY_PASSAGES, PASSAGES, library)
    other = planned_rows(TOY_PASSAGES, PASSAGES | {"num_train": 3, "num_validation": 0}, library)
    assert list(other) == ["train", "test"]
    assert other["train"] == splits["train"][:3]
    assert other["test"] == splits["test"]
    assert len({row["text"] for row in splits["train"]}) == 40
    assert planned_rows(TOY_PASSAGES, PASSAGES | {"seed": 1}, library)["test"] != splits["test"]


def test_one_passage_alone_says_nothing():
    """Either passage is from any module, and any part of it, as often with one label as with the other."""
    sources = [bytes([module]) * 10 + bytes([module + 100]) * 10 for module in range(4)]
    for label in (passages.UNRELATED, passages.RELATED):
        rng = random.Random(label)
        drawn = [passages.draw(sources.__getitem__, 4, label, 10, rng) for _ in range(4000)]
        for side in (0, 1):
            found = [pair[side][0] for pair in drawn]
            # an eighth each; five standard deviations
            assert all(
                found.count(half) / 4000 == pytest.approx(1 / 8, abs=0.027) for half in (0, 1, 2, 3, 100, 101, 102, 103)
            )
        assert all((first[0] % 100 == second[0] % 100) == bool(label) for first, second in drawn)
        assert label == passages.UNRELATED or all(first != second for first, second in drawn)


def test_bad_sizes_of_passages(library):
    with pytest.raises(ValueError, match="every split has 0 examples"):
        TOY_PASSAGES.plan_files("passages", PASSAGES | {"num_train": 0, "num_validation": 0, "num_test": 0}, library)
    with pytest.raises(ValueError, match=r"max_bytes=10000000: the train split has 0 modules .*give less"):
        TOY_PASSAGES.plan_files("passages", PASSAGES | {"max_bytes": 10_000_000}, library)
