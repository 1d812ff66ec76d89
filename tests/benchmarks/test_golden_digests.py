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
