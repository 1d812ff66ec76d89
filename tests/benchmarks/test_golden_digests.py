"""Generated rows never change: published data sets and the numbers on cards are of these."""

import json
from pathlib import Path

import pytest

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.export import rows_digest
from hf_recurrent.benchmarks.registry import BENCHMARKS, get_benchmark

GOLDEN = json.loads(Path(__file__).with_name("golden_digests.json").read_text())
LARGE_PICTURES = ("pathfinder64", "pathfinder128", "pathfinder256")


def generated():
    """Benchmarks and configs whose rows are drawn here: other ones follow the texts of Python's library, or files."""
    for name in BENCHMARKS:
        for config in get_benchmark(name).info.configs:
            member = get_benchmark(name, config)
            if member.generated and member.info.synthetic:
                yield name, config


@pytest.mark.parametrize(("name", "config"), list(generated()))
def test_rows_are_those_of_before(name, config, cache):
    info = get_benchmark(name, config).info
    train, other = (3, 2) if config in LARGE_PICTURES else (120, 20)
    sizes = {"num_train": train, "num_validation": other, "num_test": other}
    params = {key: value for key, value in sizes.items() if key in info.parameters[config]}
    digest = rows_digest(load_benchmark(name, config, cache_dir=cache, **params), info.label_names)
    assert digest == GOLDEN[f"{name}/{config}"]


# parameters with which each has several shards and, where rows may repeat, rows that do
MANY = {"num_train": 1200, "num_validation": 40, "num_test": 60}
SHALLOW = {"max_train_depth": 2, "max_test_depth": 4}
PROCESSES = {
    "listops": MANY,
    "logical_inference": MANY,
    "flip_flop": {**MANY, "num_train": 500, "train_length": 12, "p_ignore": 0.5, "test_lengths": [12]},
    "simple_arithmetic": MANY,
    "listops_depth": {**MANY, **SHALLOW},
}
# a pool of rows is drawn to its size, and so depends on it
POOLS = ("listops", "logical_inference")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSES)
def test_rows_do_not_depend_on_processes_and_sizes(name, tmp_path):
    params = PROCESSES[name]
    alone, parallel = (load_benchmark(name, cache_dir=tmp_path / str(n), num_proc=n, **params) for n in (1, 2))
    assert list(alone) == list(parallel)
    for split, rows in alone.items():
        assert rows.to_list() == parallel[split].to_list()
    other = load_benchmark(name, cache_dir=tmp_path / "1", **{**params, "seed": 1})
    assert other["train"].to_list() != alone["train"].to_list()
    if name not in POOLS:
        fewer = load_benchmark(name, cache_dir=tmp_path / "1", **{**params, "num_train": 25})
        assert all(rows.to_list() == alone[split].to_list() for split, rows in fewer.items() if split != "train")
