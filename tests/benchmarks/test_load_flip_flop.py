"""`load_benchmark("flip_flop", ...)`: splits, distribution, determinism, no duplicates, bad parameters."""

import math

import numpy as np
import pytest
from flip_flop_machine import check_row, run

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.flip_flop import benchmark as flip_flop
from hf_recurrent.benchmarks.flip_flop.benchmark import FlipFlop, Source, draw, requests

TESTS = [(length, percent) for length in (64, 128) for percent in (10, 80, 98)]


def load(cache, **kwargs):
    return load_benchmark("flip_flop", cache_dir=cache, **kwargs)


def only(split, rows, **kwargs):
    return {"num_train": 0, "num_validation": 0, "num_test": 0, **{f"num_{split}": rows}, **kwargs}


def test_small_recipe(cache):
    loaded = load(cache, train_length=64, num_train=200, num_validation=60, num_test=30)
    names = [f"test_{length}_p{percent}" for length, percent in TESTS]
    assert {split: len(rows) for split, rows in loaded.items()} == {
        "train": 200,
        "validation": 60,
        **dict.fromkeys(names, 30),
    }
    for rows in loaded.values():
        assert rows.column_names == ["text", "length", "ignore_percent", "num_reads", "distance"]
        assert {rows.features[name].dtype for name in rows.column_names[1:]} == {"int32"}
        for row in rows:
            check_row(row)
    for name, source in zip(names, TESTS, strict=True):
        assert set(zip(loaded[name]["length"], loaded[name]["ignore_percent"], strict=True)) == {source}
    assert set(zip(loaded["train"]["length"], loaded["train"]["ignore_percent"], strict=True)) == {(64, 80)}
    # the distributions of the tests take turns, so that any beginning of the split is balanced
    found = list(zip(loaded["validation"]["length"], loaded["validation"]["ignore_percent"], strict=True))
    assert found == TESTS * 10


def test_the_paper_s_setting():
    params = FlipFlop().split_names("original", default_params())
    tests = [f"test_{length}_p{percent}" for length in (512, 1024) for percent in (10, 80, 98)]
    assert params == ["train", "validation", *tests]
    sizes = {request.split: request.size for request in requests(default_params())}
    assert sizes == {"train": 160_000, "validation": 6000, **dict.fromkeys(tests, 10_000)}
    (train,) = [request.sources for request in requests(default_params()) if request.split == "train"]
    assert train == (Source(512, 80),)


def default_params(**params):
    return FlipFlop().resolve("original", params)


def test_names_follow_from_parameters(cache):
    given = {"test_lengths": [40, 8, 40], "test_p_ignore": 0.07, "train_length": 20, "p_ignore": np.float64(0.29)}
    loaded = load(cache, num_train=2, num_validation=5, num_test=3, **given)
    assert list(loaded) == ["train", "validation", "test_8_p7", "test_40_p7"]
    assert loaded["train"]["ignore_percent"][0] == 29
    assert loaded["validation"]["length"][:] == [8, 40, 8, 40, 8]
    assert list(load(cache, **only("test", 2, train_length=64, test_p_ignore=[0.5]))) == ["test_64_p50", "test_128_p50"]


def proportion(count, total, expected):
    """Whether a count is within five standard deviations of what is expected."""
    return abs(count - total * expected) < 5 * math.sqrt(total * expected * (1 - expected))


@pytest.mark.parametrize("percent", [10, 80, 98])
def test_distribution(percent):
    (codes,) = draw(Source(64, percent), (0, "x"), 0, 4000)
    instructions, bits = codes[:, ::2], codes[:, 1::2] - 3
    assert (instructions[:, 0] == 0).all()
    assert (instructions[:, -1] == 2).all()
    for column in range(1, 31):
        for code, share in ((1, percent / 100), (0, (1 - percent / 100) / 2), (2, (1 - percent / 100) / 2)):
            assert proportion((instructions[:, column] == code).sum(), 4000, share)
    for column in range(31):
        free = instructions[:, column] != 2
        assert proportion(bits[free, column].sum(), free.sum(), 0.5)
    # instructions do not depend on their bits, nor on the instructions before them
    ignored, ones = instructions[:, 1:-1] == 1, bits[:, 1:-1] == 1
    free = instructions[:, 1:-1] != 2
    assert proportion((ignored & ones).sum(), ignored.sum(), 0.5)
    assert proportion((~ignored & free & ones).sum(), (~ignored & free).sum(), 0.5)
    assert proportion((ignored[:, 1:] & ignored[:, :-1]).sum(), ignored[:, :-1].sum(), percent / 100)


def test_strings_do_not_depend_on_pieces(monkeypatch):
    source, key = Source(22, 40), (7, "train")
    (whole,) = draw(source, key, 0, 300)
    pieces = [block for a, b in ((0, 1), (1, 17), (17, 17), (17, 300)) for block in draw(source, key, a, b)]
    assert (np.concatenate(pieces) == whole).all()
    monkeypatch.setattr(flip_flop, "BLOCK_WORDS", 100)
    blocks = list(draw(source, key, 0, 300))
    assert len(blocks) == 38
    assert (np.concatenate(blocks) == whole).all()
    monkeypatch.undo()
    assert len({codes.tobytes() for codes in whole}) == 300
    for other in ((Source(22, 41), key), (source, (8, "train")), (source, (7, "test"))):
        (drawn,) = draw(*other, 0, 300)
        assert (drawn != whole).any(axis=1).all()


def test_no_string_is_there_twice(cache):
    """1250 strings exist, of which some are frequent and many are asked for."""
    params = {"train_length": 12, "p_ignore": 0.6, "test_lengths": [12], "test_p_ignore": [0.5, 0.6]}
    sizes = {"num_train": 400, "num_validation": 60, "num_test": 50}
    loaded = load(cache, **params, **sizes)
    texts = [text for rows in loaded.values() for text in rows["text"]]
    assert len(texts) == 560
    assert len(set(texts)) == len(texts)
    for rows in loaded.values():
        for row in rows:
            check_row(row)
    # as they are drawn they do repeat
    (drawn,) = draw(Source(12, 60), (0, "train"), 0, 400)
    assert len({codes.tobytes() for codes in drawn}) < 390
    found = list(zip(loaded["validation"]["length"], loaded["validation"]["ignore_percent"], strict=True))
    assert found == [(12, 50), (12, 60)] * 30


def test_all_strings_that_exist(cache):
    loaded = load(cache, **only("train", 10, train_length=6, p_ignore=0.3))
    tokens = ["w 0", "w 1"], ["w 0", "w 1", "i 0", "i 1", "r 0", "r 1"], ["r 0", "r 1"]
    candidates = [f"{a} {b} {c}" for a in tokens[0] for b in tokens[1] for c in tokens[2]]
    possible = [text for text in candidates if all(right for *_, right in run(text))]
    assert len(possible) == 10 == Source(6, 30).count()
    assert sorted(loaded["train"]["text"]) == sorted(possible)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"train_length": 63}, "train_length=63: expected an even integer >= 4"),
        ({"train_length": 64.0}, "train_length=64.0: expected an even integer >= 4"),
        ({"test_lengths": [64, 65]}, r"test_lengths=\[64, 65\]: expected None or a list of even integers >= 4"),
        ({"test_lengths": []}, r"test_lengths=\[\]: expected None or a list"),
        ({"test_lengths": "64"}, "test_lengths='64': expected None or a list"),
        ({"p_ignore": 0}, "p_ignore=0: expected a probability from 0.01 to 0.99, in whole percent"),
        ({"p_ignore": 0.805}, "p_ignore=0.805: expected a probability .* in whole percent"),
        ({"p_ignore": "0.8"}, "p_ignore='0.8': expected a probability"),
        ({"p_ignore": math.nan}, "p_ignore=nan: expected a probability"),
        ({"test_p_ignore": [0.1, 1.5]}, r"test_p_ignore=\[0.1, 1.5\]: expected a list of probabilities"),
        ({"split": "test"}, "unknown split 'test' .*available: train, validation, test_512_p10, .*test_1024_p98"),
        (
            only("train", 11, train_length=6),
            "only 10 different strings of 6 tokens, but the splits need 11 of them; ask",
        ),
        (
            {"train_length": 6, "test_lengths": [6, 8], "num_train": 2, "num_validation": 12, "num_test": 1},
            "only 10 different strings of 6 tokens, but the splits need 11 of them; ask for fewer examples .num_train",
        ),
        (
            only("train", 900, train_length=12, p_ignore=0.99),
            r"split 'train': found only \d+ of 900 new strings of 12 tokens and p_ignore=0.99: .*too rare; ask for",
        ),
    ],
)
def test_bad_parameters(cache, params, message):
    with pytest.raises(ValueError, match=message):
        load(cache, **params)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
