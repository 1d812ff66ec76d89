"""`load_benchmark("listops_depth", ...)`: splits, balance, determinism, no duplicates, bad parameters, export."""

import naive_listops as naive
import numpy as np
import pytest

from hf_recurrent.benchmarks import load_benchmark

NAME = "listops_depth"
SMALL = {"num_train": 60, "num_validation": 10, "num_test": 15}
# fewer and shallower depths, quick to plan
SHALLOW = {"max_train_depth": 2, "max_test_depth": 4, "length_limit": 24}
COLUMNS = ["text", "label", "depth", "structural_depth", "length", "num_operators"]


def load(cache, **kwargs):
    return load_benchmark(NAME, cache_dir=cache, **kwargs)


def check_row(row):
    tree = naive.parse(row["text"])
    value, depth = naive.evaluate(tree)
    assert (row["label"], row["depth"], row["structural_depth"]) == (value, depth - 1, naive.levels(tree) - 1)
    assert row["length"] == len(row["text"].split(" "))
    assert row["num_operators"] == row["text"].count("[")
    assert naive.size(tree) <= 50


def test_splits_are_balanced(cache):
    loaded = load(cache, **SMALL)
    depths = {
        "train": [1, 2, 3, 4, 5] * 12,
        "validation": [1, 2, 3, 4, 5] * 2,
        "validation_ood": [6] * 10,
        "test": [1, 2, 3, 4, 5] * 3,
        "test_ood": [7, 8] * 7 + [7],
    }
    assert {split: rows["depth"][:] for split, rows in loaded.items()} == depths
    for rows in loaded.values():
        assert rows.column_names == COLUMNS
        assert {rows.features[name].dtype for name in COLUMNS[2:]} == {"int32"}
        for row in rows:
            check_row(row)
    texts = [text for rows in loaded.values() for text in rows["text"]]
    assert len(set(texts)) == len(texts) == 110


def test_held_out_rows_are_not_in_train(cache):
    """Short expressions repeat: of 444,400 with a single operator and of 400 with two digits many are drawn twice."""
    sizes = {"num_train": 2500, "num_validation": 600, "num_test": 600}
    loaded = load(cache, **sizes, max_train_depth=1, max_test_depth=3, length_limit=13)
    texts = [text for rows in loaded.values() for text in rows["text"]]
    assert len(set(texts)) == len(texts) == 2500 + 2 * 600 + 2 * 600
    short = [split for split in ("train", "validation", "test") for n in loaded[split]["length"] if n == 4]
    assert set(short) == {"train", "validation", "test"}


def test_only_some_splits(cache):
    assert list(load(cache, **{**SMALL, **SHALLOW, "num_train": 0, "num_validation": 0})) == ["test", "test_ood"]
    assert load(cache, split="train[:4]", **SMALL, **SHALLOW)["depth"][:] == [1, 2, 1, 2]
    rows = load(cache, **SMALL, valid_extra_depth=2, max_train_depth=1, max_test_depth=np.int64(5), length_limit=30)
    assert set(rows["validation_ood"]["depth"]) == {2, 3}
    assert set(rows["test_ood"]["depth"]) == {4, 5}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_test_depth": 6}, "max_test_depth=6: no depth is left for test_ood, .* expected at least 7"),
        (
            {"max_test_depth": 13},
            "max_test_depth=13: .* length of at least 53, but length_limit=50; raise",
        ),
        ({"length_limit": 32}, "max_test_depth=8: .* length of at least 33, but length_limit=32; raise length_limit"),
        (
            {"num_test": 10**7, "max_train_depth": 1, "max_test_depth": 3, "length_limit": 13},
            "there are only [0-9]+ different expressions that depend on 3 operation.s. with length_limit=13, but the "
            "splits need 10000000 of them; ask for fewer examples .num_train",
        ),
    ],
)
def test_bad_parameters(cache, params, message):
    with pytest.raises(ValueError, match=message):
        load(cache, **params)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
