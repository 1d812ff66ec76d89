"""`load_benchmark("listops", ...)`: splits, sizes, distribution, determinism, files."""

import json
from collections import Counter
from pathlib import Path

import pytest

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.listops.expressions import analyse

DATA = Path(__file__).parent / "data"


def load(cache, *args, **kwargs):
    return load_benchmark("listops", *args, cache_dir=cache, **kwargs)


def distance(histogram, values):
    """Kolmogorov-Smirnov distance between a stored histogram and a sample."""
    stored = {int(key): count for key, count in histogram.items()}
    sample, total = Counter(values), sum(stored.values())
    largest = below_stored = below_sample = 0
    for value in sorted(stored | sample):
        below_stored += stored.get(value, 0) / total
        below_sample += sample[value] / len(values)
        largest = max(largest, abs(below_stored - below_sample))
    return largest


def check_rows(splits):
    """Columns are right, rows are distinct, splits are disjoint."""
    texts = [text for split in splits.values() for text in split["text"]]
    assert len(set(texts)) == len(texts)
    for split in splits.values():
        assert split.features["label"].names == list("0123456789")
        for row in split.select(range(min(50, len(split)))):
            tokens = row["text"].split()
            found = analyse(tokens)
            assert (row["label"], row["depth"], row["num_operators"], row["max_arguments"]) == found
            assert row["length"] == len(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_original_has_the_authors_distribution(cache, seed):
    splits = load(cache, num_train=0, num_validation=0, num_test=10_000, seed=seed)
    assert list(splits) == ["test"]
    check_rows(splits)
    real = json.loads((DATA / "listops_test_d20s_histograms.json").read_text())
    assert distance(real["lengths"], splits["test"]["length"][:]) <= 0.02
    assert distance(real["depths"], splits["test"]["depth"][:]) <= 0.025


def test_original_splits(cache):
    splits = load(cache, num_train=3000, num_validation=500, num_test=500)
    assert {name: len(rows) for name, rows in splits.items()} == {
        "train": 3000,
        "validation": 500,
        "test": 500,
    }
    check_rows(splits)
    assert max(splits["train"]["length"]) <= 100
    assert max(splits["validation"]["length"]) > 100
    assert max(splits["test"]["depth"]) <= 19
    assert max(splits["test"]["max_arguments"]) == 5


def test_length_generalization(cache):
    splits = load(cache, "length_generalization", num_test=4)
    assert list(splits) == [f"test_{low}_{low + 100}" for low in range(200, 1000, 100)]
    check_rows(splits)
    for name, rows in splits.items():
        low, high = map(int, name.split("_")[1:])
        assert low <= min(rows["length"]) <= max(rows["length"]) <= high
        assert max(rows["max_arguments"]) <= 5
    one = load(cache, "length_generalization", num_test=4, min_length=150, max_length=160)
    assert list(one) == ["test_150_160"]
    assert set(one["test_150_160"]["length"]) <= set(range(150, 161))


def test_argument_generalization(cache):
    splits = load(cache, "argument_generalization", num_test=30)
    assert list(splits) == ["test_arguments_10", "test_arguments_15"]
    check_rows(splits)
    for most, rows in zip((10, 15), splits.values(), strict=True):
        assert 100 <= min(rows["length"]) <= max(rows["length"]) <= 1000
        assert max(rows["depth"]) <= 9
        assert most - 3 <= max(rows["max_arguments"]) <= most
    assert list(load(cache, "argument_generalization", num_test=2, max_arguments=7)) == ["test_arguments_7"]


@pytest.mark.parametrize("config", ["original", "lra"])
def test_depth_balanced(cache, config):
    sizes = {"num_train": 101, "num_validation": 20, "num_test": 40}
    splits = load(cache, config, depth_balanced=True, max_depth=4, min_length=1, max_length=60, **sizes)
    check_rows(splits)
    assert sorted(Counter(splits["train"]["depth"]).items()) == [(1, 26), (2, 25), (3, 25), (4, 25)]
    assert sorted(Counter(splits["test"]["depth"]).items()) == [(1, 10), (2, 10), (3, 10), (4, 10)]
    assert max(splits["train"]["length"]) <= 60


@pytest.mark.slow
def test_depth_balanced_long_trees_skip_impossible_depths(cache):
    splits = load(cache, "length_generalization", depth_balanced=True, num_test=34, max_depth=20)
    counts = Counter(splits["test_200_300"]["depth"])
    # 187 tokens are the most that three levels of five arguments hold
    assert sorted(counts.items()) == [(depth, 2) for depth in range(4, 21)]


def test_small_grammar_can_be_exhausted(cache):
    sizes = {"num_train": 300, "num_validation": 10, "num_test": 100}
    splits = load(cache, max_depth=1, max_arguments=2, **sizes)
    check_rows(splits)
    assert sum(map(len, splits.values())) == 410


def test_operators_and_lengths(cache):
    splits = load(
        cache,
        operators=("max", "[SM"),
        max_length=30,
        max_arguments=3,
        num_train=50,
        num_validation=5,
        num_test=5,
    )
    tokens = {token for text in splits["train"]["text"] for token in text.split()}
    assert {token for token in tokens if token.startswith("[")} == {"[MAX", "[SM"}
    assert max(splits["test"]["length"]) <= 30


def test_splits_of_different_calls_are_disjoint(cache):
    sizes = {"num_train": 1000, "num_validation": 20, "num_test": 100}
    calls = [
        load(cache, **sizes),
        load(cache, seed=1, **sizes),
        load(cache, max_depth=3, depth_balanced=True, **sizes),
    ]
    for trained in calls:
        train = set(trained["train"]["text"])
        assert not any(train & set(call[split]["text"]) for call in calls for split in ("validation", "test"))


def test_long_trees_keep_the_training_limit(cache):
    sizes = {"num_train": 20, "num_validation": 5, "num_test": 5}
    rows = load(cache, min_length=100, max_length=160, max_train_length=120, **sizes)
    assert max(rows["train"]["length"]) <= 120
    assert {name: len(split) for name, split in rows.items()} == {"train": 20, "validation": 5, "test": 5}


def test_one_split_and_slices(cache):
    sizes = {"num_train": 30, "num_validation": 5, "num_test": 5}
    assert len(load(cache, split="test", **sizes)) == 5
    assert len(load(cache, split="train[:10]+test", **sizes)) == 15


def test_authors_file(cache):
    splits = load(cache, data_dir=DATA / "listops")
    assert list(splits) == ["test"]
    assert len(splits["test"]) == 200
    check_rows(splits)


def test_authors_train_file(cache, tmp_path):
    short, long = "3\t3", "1\t" + "( [MIN " * 60 + "1" + " ) ]" * 60
    (tmp_path / "train_d20s.tsv").write_text("\n".join([short] * 999 + [long] * 2 + [short] * 3) + "\n")
    splits = load(cache, data_dir=tmp_path)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 3, "validation": 1000}
    assert len(load(cache, data_dir=tmp_path, max_train_length=None)["train"]) == 4


def test_lra_files_and_stale_caches(cache, tmp_path):
    path = tmp_path / "basic_val.tsv"
    path.write_text("Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n")
    assert load(cache, "lra", data_dir=tmp_path)["validation"]["text"][:] == ["[MAX 2 9 ]"]
    path.write_text("Source\tTarget\n( ( ( [MIN 2 ) 9 ) ] )\t2\n")
    assert load(cache, "lra", data_dir=tmp_path)["validation"]["text"][:] == ["[MIN 2 9 ]"]
