"""The dataset card: what it says is what the files hold, and what it tells to run works."""

import os
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from small_export import body, front_matter

from hf_recurrent.benchmarks import benchmark_info, list_benchmarks
from hf_recurrent.benchmarks.export.settings import choose, format_value
from hf_recurrent.benchmarks.registry import get_benchmark
from hf_recurrent.utils import mapping
from support.client import LEAVE


def test_front_matter(exported):
    data = front_matter(exported)
    assert data["license"] == "apache-2.0"
    assert data["task_categories"] == ["text-classification"]
    assert data["size_categories"] == ["1K<n<10K"]
    assert [entry.get("default") for entry in data["configs"]] == [True, None]
    assert {entry["version"] for entry in data["configs"]} == {benchmark_info("listops").version}
    own = data["hf_recurrent"]
    changed = {"num_test": 40, "max_depth": 9, "operators": ["[MAX", "[SM"]}
    assert own["configs"]["original"]["parameters"] == {"num_train": 1500, "num_validation": 20, **changed}
    # 9 is this config's own default
    assert own["configs"]["argument_generalization"]["parameters"] == {"num_test": 40, "operators": ["[MAX", "[SM"]}
    assert own["configs"]["original"]["splits"] == {"train": 1500, "validation": 20, "test": 40}
    digests = {name: facts["digest"] for name, facts in own["configs"].items()}
    assert {entry["config_name"]: entry["description"] for entry in data["configs"]} == digests
    assert len(set(digests.values())) == 2
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", digest) for digest in digests.values())
    sizes = {entry["config_name"]: entry["download_size"] for entry in data["dataset_info"]}
    for config, size in sizes.items():
        assert size == sum(path.stat().st_size for path in (exported / config).iterdir())


@pytest.mark.slow
def test_code_on_the_card_runs(exported, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", body(exported), flags=re.DOTALL)
    code = "\n".join(blocks).replace('"listops"', repr(str(exported)))
    code += "print(len(splits['train']), len(list(stream['test'])), len(rows), rows.column_names)\n"
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + LEAVE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lengths = pq.read_table(exported / "original/test-00000-of-00001.parquet")["length"].to_pylist()
    short = sum(length <= round(sum(lengths) / 40) for length in lengths)
    assert 0 < short < 40
    assert done.stdout == f"1500 40 {short} ['text', 'label', 'length']\n"


@pytest.mark.parametrize("name", [name for name in list_benchmarks() if get_benchmark(name).export_configs != ()])
def test_defaults_are_spelled_as_they_are_read(name):
    family, info = get_benchmark(name), benchmark_info(name)
    for config in [
        config for config in family.export_configs or info.configs if family.member(config).export_configs != ()
    ]:
        defaults = info.parameters[config]
        given = ", ".join(f"{known}: {format_value(value)}" for known, value in defaults.items())
        read = mapping("params", f"{{{given}}}")
        assert choose(family, [config], read) == {config: defaults}
