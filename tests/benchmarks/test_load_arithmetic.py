"""`load_benchmark("simple_arithmetic", ...)`: splits, what they share, determinism, bad parameters."""

import pytest
from data_router_files import counts

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.simple_arithmetic.benchmark import SimpleArithmetic, requests
from hf_recurrent.benchmarks.simple_arithmetic.expressions import make_example

NAMES = ["train", "validation", "validation_ood", "test", "test_ood"]
SMALL = {"num_train": 700, "num_validation": 40, "num_test": 60}


def load(cache, **kwargs):
    return load_benchmark("simple_arithmetic", cache_dir=cache, **kwargs)


def plan(**params):
    """The texts of all splits."""
    params = SimpleArithmetic().resolve("original", params)
    return {
        split: [text for shard in shards for text in shard.arguments[0]]
        for split, shards in SimpleArithmetic().plan("original", params).items()
    }


def test_splits(cache):
    loaded = load(cache, **SMALL)
    assert {split: len(rows) for split, rows in loaded.items()} == dict(zip(NAMES, (700, 40, 40, 60, 60), strict=True))
    for rows in loaded.values():
        assert rows.column_names == ["text", "label", "depth", "length", "num_operators"]
        for row in rows:
            assert row == make_example(row["text"].replace(" ", ""))
    depths = {split: counts(rows["depth"]) for split, rows in loaded.items()}
    assert depths == {
        "train": dict.fromkeys("12345", 140),
        "validation": dict.fromkeys("2345", 10),
        "validation_ood": {"6": 40},
        "test": dict.fromkeys("2345", 15),
        "test_ood": {"7": 30, "8": 30},
    }
    texts = [text for rows in loaded.values() for text in rows["text"]]
    assert len(set(texts)) == len(texts)
    # no order by depth
    assert len(set(loaded["train"]["depth"][:20])) > 2


def test_the_paper_s_sizes():
    params = SimpleArithmetic().resolve("original", {})
    found = {request.split: request.sizes for request in requests(params)}
    even = dict.fromkeys(range(2, 6), 250)
    assert found == {
        "train": {1: 200, **dict.fromkeys(range(2, 6), 25_000)},
        "validation": even,
        "test": even,
        "validation_ood": {6: 1000},
        "test_ood": {7: 500, 8: 500},
    }
    overlapping = requests({**params, "disjoint": False, "num_test": 1200})
    assert {request.split: request.sizes for request in overlapping}["test"] == {1: 200, **even}


def test_train_and_held_out_rows():
    """Disjoint, whatever sizes a call asks for; as the authors have it, they overlap."""
    apart, other = plan(num_train=20_000), plan(num_train=9000, num_validation=3, num_test=5)
    for split in ("validation", "test"):
        assert not set(other["train"]) & set(apart[split])
        assert not set(apart["train"]) & set(apart[split])
        assert len(set(other[split]) & set(apart[split])) == len(other[split])
    together = plan(num_train=20_000, disjoint=False)
    assert len(set(together["train"]) & set(together["test"])) > 250
    assert len(set(together["test"]) & set(together["validation"])) >= 200
    assert all(len(set(texts)) == len(texts) for texts in together.values())
    # what is deeper than train does not depend on what train is
    for split in ("validation_ood", "test_ood"):
        assert together[split] == apart[split]


def test_other_depths():
    found = plan(
        max_train_depth=3,
        valid_extra_depth=2,
        max_test_depth=7,
        max_length=33,
        num_train=900,
        num_validation=40,
        num_test=20,
    )
    depths = {split: counts(make_example(text)["depth"] for text in texts) for split, texts in found.items()}
    assert depths == {
        "train": {"1": 200, "2": 350, "3": 350},
        "validation": {"2": 20, "3": 20},
        "validation_ood": {"4": 20, "5": 20},
        "test": {"2": 10, "3": 10},
        "test_ood": {"6": 10, "7": 10},
    }
    assert max(len(text) for texts in found.values() for text in texts) == 33
    assert list(plan(num_train=0, num_validation=4, num_test=0)) == ["validation", "validation_ood"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_test_depth": 6}, "max_test_depth=6: no depth is left for test_ood, .* = 6; expected at least 7"),
        (
            {"max_test_depth": 13},
            "max_length=50: an expression of max_test_depth=13 operations on a chain has at least 53 tokens; raise",
        ),
        ({"max_length": 32}, "max_length=32: an expression of max_test_depth=8 .* at least 33 tokens"),
        (
            {"max_train_depth": 2, "num_train": 64_201},
            r"num_train=64201: split 'train' can have 64200 examples at most, of depth 1 to 2 and up to 50 tokens; ask",
        ),
        (
            {"max_train_depth": 2, "num_train": 66_201, "disjoint": False},
            "num_train=66201: split 'train' can have 66200 examples at most",
        ),
        (
            {"max_train_depth": 2, "num_test": 66_001},
            "num_test=66001: split 'test' can have 66000 examples at most, of dep",
        ),
        ({"num_test": 10**30}, "num_test=10{30}: split 'test' can have .* examples at most"),
    ],
)
def test_bad_parameters(cache, params, message):
    with pytest.raises(ValueError, match=message):
        load(cache, **params)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
