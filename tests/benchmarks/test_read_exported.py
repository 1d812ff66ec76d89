"""Exports read by the plain `datasets` library, in a process that does not have this package."""

import json
import os
import subprocess
import sys

import datasets
import pyarrow.parquet as pq
import pytest
from small_export import CONFIGS, PARAMS, SMALL

from hf_recurrent.benchmarks import benchmark_info, load_benchmark
from hf_recurrent.benchmarks.export import export_benchmark

pytestmark = pytest.mark.slow  # generates and reads whole data sets

READ = """
import importlib.abc, json, sys

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_recurrent":
            raise ImportError(name)

sys.meta_path.insert(0, NotInstalled())

from datasets import get_dataset_config_names, get_dataset_split_names, load_dataset

folder, filters = sys.argv[1], json.loads(sys.argv[2])
found = {"configs": get_dataset_config_names(folder), "rows": {}, "streamed": {}, "names": []}
found["splits"] = {config: get_dataset_split_names(folder, config) for config in found["configs"]}
for config in found["configs"]:
    for kind, streaming in (("rows", False), ("streamed", True)):
        splits = load_dataset(folder, config, streaming=streaming)
        found["names"] += [rows.features["label"].names for rows in splits.values()]
        found[kind][config] = {split: list(rows) for split, rows in splits.items()}
found["default"] = {split: len(rows) for split, rows in load_dataset(folder).items()}
found["slice"] = len(load_dataset(folder, "original", split="train[:10%]+test"))
for streaming in (False, True):
    options = {"columns": ["label", "depth"], "filters": filters, "streaming": streaming}
    found[f"filtered {streaming}"] = list(load_dataset(folder, "original", split="train", **options))
json.dump(found, sys.stdout)
"""
COLUMN = "num_operators"
FILE = "original/train-00000-of-00001.parquet"


def hardest(folder):
    """A number of operators that no row of one row group has, but some row of the other group."""
    file = pq.ParquetFile(folder / FILE)
    most = [max(file.read_row_group(i, columns=[COLUMN])[COLUMN].to_pylist()) for i in range(2)]
    assert most[0] != most[1]
    return min(most) + 1


@pytest.fixture(scope="module")
def found(exported, tmp_path_factory):
    """Results of a clean process that reads the export."""
    base = tmp_path_factory.mktemp("read")
    filters = json.dumps([[COLUMN, ">=", hardest(exported)]])
    environment = os.environ | {"HF_HOME": str(base / "home"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(exported), filters],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    cache = tmp_path_factory.mktemp("generated")
    own = {config: benchmark_info("listops").parameters[config] for config in CONFIGS}
    return {
        config: load_benchmark(
            "listops", config, cache_dir=cache, **{name: value for name, value in PARAMS.items() if name in own[config]}
        )
        for config in CONFIGS
    }


@pytest.mark.parametrize("kind", ["rows", "streamed"])
def test_rows_are_those_of_load_benchmark(found, generated, kind):
    for config, splits in generated.items():
        assert list(found[kind][config]) == list(splits)
        for split, rows in splits.items():
            assert found[kind][config][split] == rows.to_list()
    assert found["rows"]["original"]["train"][0].keys() == {"text", "label", *benchmark_info("listops").slice_columns}


def test_names(found):
    assert found["configs"] == list(CONFIGS)
    assert found["splits"] == {
        "original": ["train", "validation", "test"],
        "argument_generalization": ["test_arguments_10", "test_arguments_15"],
    }
    assert found["names"] == [list("0123456789")] * 10
    assert found["default"] == {"train": 1500, "validation": 20, "test": 40}
    assert found["slice"] == 150 + 40


@pytest.mark.parametrize("streaming", [False, True])
def test_columns_and_filters(found, exported, streaming):
    least = hardest(exported)
    rows = found["rows"]["original"]["train"]
    expected = [{"label": row["label"], "depth": row["depth"]} for row in rows if row[COLUMN] >= least]
    assert 0 < len(expected) < 50
    assert found[f"filtered {streaming}"] == expected


def test_a_new_export_is_not_served_stale(tmp_path):
    """The same folder, file names and numbers of rows: only the digest on the card tells `datasets` of the change."""
    read, sizes = [], set()
    for seed in (0, 1):
        folder = export_benchmark(
            "logical_inference",
            tmp_path / "out",
            configs=["original"],
            params={**SMALL, "seed": seed},
            cache_dir=tmp_path / "generated",
        )
        splits = datasets.load_dataset(str(folder), "original", cache_dir=str(tmp_path / "cache"))
        read.append(splits["test"]["text"][:])
        sizes.add(tuple(len(rows) for rows in splits.values()))
        expected = load_benchmark(
            "logical_inference", split="test", cache_dir=tmp_path / "generated", seed=seed, **SMALL
        )
        assert read[-1] == expected["text"][:]
    assert len(sizes) == 1
    assert read[0] != read[1]
