"""`load_benchmark("compositional_table_lookup", ...)`: splits, sizes, seeds, other depths, bad parameters."""

import pytest
from data_router_files import counts, deviation

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.compositional_table_lookup.benchmark import CompositionalTableLookup
from hf_recurrent.benchmarks.compositional_table_lookup.expressions import make_example

FULL = {
    "train": 53_704,
    "validation": 4000,
    "validation_ood": 1000,
    "test": 4000,
    "test_ood": 1000,
    "test_basic": 88,
    "test_new_primitive_1": 1000,
    "test_new_primitive_2": 1000,
    "test_new_composition": 608,
}


def load(cache, config=None, **kwargs):
    return load_benchmark("compositional_table_lookup", config, cache_dir=cache, **kwargs)


def plan(config="forward", **params):
    """The texts of all splits."""
    params = CompositionalTableLookup().resolve(config, params)
    return {
        split: [text for shard in shards for text in shard.arguments[0]]
        for split, shards in CompositionalTableLookup().plan(config, params).items()
    }


def test_held_out_parts_are_alike():
    """Unlike the authors', whose validation split lacks commands of two functions."""
    found = plan()
    depths = [counts(make_example(text)["depth"] for text in found[split]) for split in ("validation", "test")]
    assert all(set(part) == set("2345") for part in depths)
    assert deviation(*depths) < 4
    pool = counts(make_example(text)["depth"] for text in found["train"] if len(text.split()) > 2)
    assert all(deviation(part, pool) < 4 for part in depths)
    assert not set(found["validation"]) & set(found["test"])


@pytest.mark.slow
def test_fewer_rows_are_the_first_ones(tmp_path):
    sizes = {"num_train": 1100, "num_validation": 30, "num_test": 100}
    alone, parallel = (load(tmp_path / str(n), "backward", num_proc=n, **sizes) for n in (1, 2))
    expected = {split: sizes[f"num_{split.split('_')[0]}"] if split != "test_basic" else 88 for split in FULL}
    assert {split: len(rows) for split, rows in alone.items()} == expected
    whole = plan("backward")
    for split in alone:
        assert alone[split].to_dict() == parallel[split].to_dict()
        assert alone[split]["text"][:] == whole[split][: expected[split]]
    # the first rows are no easier than the others
    assert len(set(alone["test_new_composition"]["depth"][:40])) > 2
    assert next(iter(plan(num_train=0, num_validation=0, num_test=3))) == "test"


def test_seeds():
    first, second = plan(), plan(seed=1)
    for split in ("validation_ood", "test_ood", "test_new_primitive_1"):
        assert first[split] == second[split]
    for split in ("test_basic", "test_new_composition"):
        assert first[split] != second[split]
        assert sorted(first[split]) == sorted(second[split])
    for split in ("validation", "test", "test_new_primitive_2"):
        assert len(set(first[split]) & set(second[split])) < len(first[split]) / 2
    rows = [sorted([*texts["train"], *texts["validation"], *texts["test"]]) for texts in (first, second)]
    assert rows[0] == rows[1]
    assert first["train"][:50] != second["train"][:50]


@pytest.mark.parametrize("depth", [2, 4])
def test_other_depths(depth):
    found = plan(max_train_depth=depth, valid_extra_depth=1, max_test_depth=depth + 3)
    depths = {split: {make_example(text)["depth"] for text in texts} for split, texts in found.items()}
    trained = set(range(2, depth + 1))
    assert depths == {
        "train": {1, *trained},
        "validation": trained,
        "validation_ood": {depth + 1},
        "test": trained,
        "test_ood": {depth + 2, depth + 3},
        "test_basic": {1},
        "test_new_primitive_1": trained,
        "test_new_primitive_2": trained,
        "test_new_composition": {0, 1, *trained},
    }
    assert len(found["validation_ood"]) == len(found["test_ood"]) == 1000
    for split, texts in found.items():
        assert len(set(texts)) == len(texts) - 480 * (split == "train")
    assert all("j" in text for text in found["test_new_primitive_1"])
    assert all("k" in text and "j" not in text for text in found["test_new_primitive_2"])
    train = set(found["train"])
    assert not train & {*found["validation"], *found["test"], *found["test_ood"], *found["validation_ood"]}
    assert not set(found["validation"]) & set(found["test"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        # refused at once: each of its commands would be cut from as many draws
        ({"max_test_depth": 10**9}, "max_test_depth=1000000000: expected an integer from 4 to 100"),
        ({"valid_extra_depth": 5}, "max_test_depth=10: no depth is left for test_ood, .* = 10; expected at least 11"),
        ({"num_train": 53_705}, "num_train=53705: with max_train_depth=5, .* train 53704; ask for fewer, or None"),
        ({"num_validation": 4001}, "num_validation=4001: .*: validation 4000, validation_ood 1000; ask"),
        ({"num_test": 4001}, "num_test=4001: .*: test 4000, test_ood 1000, test_basic 88, test_new_primitive_1 1000"),
        ({"max_train_depth": 2, "num_train": 800}, "num_train=800: with max_train_depth=2, .* train 778"),
        ({"split": "validation_iid"}, "unknown split 'validation_iid' .*available: train, validation, validation_ood"),
    ],
)
def test_bad_parameters(cache, params, message):
    with pytest.raises(ValueError, match=message):
        load(cache, **params)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
