"""`load_benchmark("logical_inference", ...)`: splits, distribution, determinism, files."""

import json
from collections import Counter
from pathlib import Path

import pytest

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.logical_inference.sentences import RELATIONS, make_example

DATA = Path(__file__).parent / "data"
PATTERNS = {
    "split_a": ("( and ( not a ) )",),
    "split_b": ("( and ( not ",),
    "split_c": ("( and ( not ", "( or ( not "),
}


def load(cache, *args, **kwargs):
    return load_benchmark("logical_inference", *args, cache_dir=cache, **kwargs)


def pairs(rows):
    return list(zip(rows["text"], rows["text_pair"], strict=True))


def check_rows(splits):
    found = [pair for rows in splits.values() for pair in pairs(rows)]
    assert len(set(found)) == len(found)
    for rows in splits.values():
        assert rows.features["label"].names == list(RELATIONS)
        for row in rows.select(range(min(50, len(rows)))):
            assert row == make_example(row["text"], row["text_pair"])


def test_original(cache):
    splits = load(cache, num_train=3000, num_validation=300, num_test=1500)
    assert {s: len(rows) for s, rows in splits.items()} == {"train": 3000, "validation": 300, "test": 1500}
    check_rows(splits)
    assert set(splits["train"]["num_operators"]) == set(range(7))
    assert set(splits["test"]["num_operators"]) == set(range(7, 13))


def test_short_pairs_to_test_on_change_no_other_split(cache):
    sizes = {"num_train": 400, "num_validation": 50, "num_test": 60}
    without, splits = load(cache, **sizes), load(cache, **sizes, num_test_short=20)
    assert list(splits) == ["train", "validation", "test", "test_short"]
    assert len(splits["test_short"]) == 20
    check_rows(splits)
    assert max(splits["test_short"]["num_operators"]) <= 6
    assert {split: rows.to_dict() for split, rows in without.items()} == {
        split: splits[split].to_dict() for split in without
    }


def test_too_many_short_pairs_to_test_on(cache):
    sizes = {"num_train": 400, "num_validation": 50, "num_test": 60}
    with pytest.raises(ValueError, match=r"num_test_short is 5000, but train and validation leave \d+ pairs over: ask"):
        load(cache, **sizes, num_test_short=5000)
    with pytest.raises(ValueError, match="num_test_short"):
        load(cache, "split_a", **sizes, num_test_short=5)
    with pytest.raises(
        ValueError, match="num_test_short is 5 and num_train 0: test_short are pairs that training leaves"
    ):
        load(cache, **{**sizes, "num_train": 0}, num_test_short=5)


@pytest.mark.slow
def test_distribution_is_the_authors(cache):
    splits = load(cache, num_train=12_000, num_validation=0, num_test=3000)
    real = json.loads((DATA / "logic_labels.json").read_text())["labels"]
    for split, counts in (("train", range(7)), ("test", range(7, 13))):
        rows = splits[split]
        sizes = {n: sum(real[str(n)].values()) for n in counts}
        operators = Counter(rows["num_operators"])
        for n in counts:
            assert operators[n] / len(rows) == pytest.approx(sizes[n] / sum(sizes.values()), abs=0.025)
        labels = Counter(rows["label"])
        for i, name in enumerate(RELATIONS):
            share = sum(real[str(n)][name] for n in counts) / sum(sizes.values())
            assert labels[i] / len(rows) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("config", PATTERNS)
def test_compositional_splits(cache, config):
    splits = load(cache, config, num_train=400, num_validation=50, num_test=150)
    assert list(splits) == ["train", "validation", "test"]
    check_rows(splits)
    for name, rows in splits.items():
        assert max(rows["num_operators"]) <= 6
        for text, text_pair in pairs(rows):
            held_out = any(pattern in side for pattern in PATTERNS[config] for side in (text, text_pair))
            assert held_out == (name == "test")


def test_other_operator_limit(cache):
    splits = load(cache, num_train=50, num_validation=10, num_test=50, max_train_operators=3)
    assert max(splits["train"]["num_operators"]) == 3
    assert min(splits["test"]["num_operators"]) == 4


def test_authors_files(cache):
    splits = load(cache, data_dir=DATA / "logic")
    train = sum(len((DATA / "logic" / f"train{n}").read_text().splitlines()) for n in range(7))
    assert len(splits["validation"]) == train // 10
    assert len(splits["train"]) == train - train // 10
    assert Counter(splits["test"]["num_operators"]) == dict.fromkeys(range(7, 13), 12)
    check_rows(splits)
    for config in PATTERNS:
        divided = load(cache, config, data_dir=DATA / "logic")
        assert sum(map(len, divided.values())) == train
        check_rows(divided)


def test_short_pairs_of_the_authors_test_files(cache, tmp_path):
    for n in range(7):
        (tmp_path / f"test{n}").write_text("#\ta\tb\n")
    splits = load(cache, data_dir=tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == {"test_short": 7}


def test_splits_without_files_are_left_out(cache, tmp_path):
    for n in range(7):
        (tmp_path / f"train{n}").write_text("#\ta\tb\n")
    # seven pairs have no tenth, so there is nothing to validate on
    assert list(load(cache, data_dir=tmp_path)) == ["train"]
    with pytest.raises(ValueError, match="validation has no examples"):
        load(cache, data_dir=tmp_path, split="validation")
    for n in range(7):
        (tmp_path / f"train{n}").write_text("")
    with pytest.raises(ValueError, match="every split has no examples"):
        load(cache, data_dir=tmp_path)
