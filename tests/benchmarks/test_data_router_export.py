"""Compositional table lookup and simple arithmetic as data sets."""

import shlex

import pytest
import yaml
from small_export import body, contents, front_matter

from hf_recurrent.benchmarks import benchmark_info, load_benchmark
from hf_recurrent.benchmarks.export import check_dataset_folder, export_benchmark, rows_digest
from hf_recurrent.benchmarks.export.settings import parse_settings

PARAMS = {
    "compositional_table_lookup": {"num_train": 40, "num_validation": 6, "num_test": 9, "valid_extra_depth": 2},
    "simple_arithmetic": {"num_train": 60, "num_validation": 6, "num_test": 8, "disjoint": False},
}
TABLE_LOOKUP_SPLITS = [
    "train",
    "validation",
    "validation_ood",
    "test",
    "test_ood",
    "test_basic",
    "test_new_primitive_1",
    "test_new_primitive_2",
    "test_new_composition",
]
SPLITS = {"compositional_table_lookup": TABLE_LOOKUP_SPLITS, "simple_arithmetic": TABLE_LOOKUP_SPLITS[:5]}


@pytest.fixture(scope="module", params=list(PARAMS))
def exported(request, tmp_path_factory):
    name, base = request.param, tmp_path_factory.mktemp("data_router")
    return name, export_benchmark(name, base / name, params=PARAMS[name], cache_dir=base / "cache"), base / "cache"


def test_check(exported):
    name, folder, cache = exported
    facts = check_dataset_folder(folder, f"org/{name}")
    assert list(facts.rows) == list(benchmark_info(name).configs)
    for config, sizes in facts.rows.items():
        generated = load_benchmark(name, config, cache_dir=cache, **PARAMS[name])
        assert sizes == {split: len(rows) for split, rows in generated.items()}
        assert list(sizes) == SPLITS[name]
        assert facts.digests[config] == f"sha256:{rows_digest(generated, benchmark_info(name).label_names)}"


def test_card(exported):
    name, folder, _ = exported
    data, text, info = front_matter(folder), body(folder), benchmark_info(name)
    assert [config.get("default", False) for config in data["configs"]] == [
        config == info.default_config for config in info.configs
    ]
    for config in info.configs:
        assert data["hf_recurrent"]["configs"][config]["parameters"] == PARAMS[name]
    assert all(f"- {limit}\n" in text for limit in info.limits)
    assert info.bibtex in text
    tasks = yaml.safe_load((folder / "eval.yaml").read_text())["tasks"]
    assert [task["id"] for task in tasks] == [
        f"{config}/{split}" for config in info.configs for split in SPLITS[name] if split != "train"
    ]


def test_the_command_on_the_card_makes_the_same_bytes(exported, tmp_path):
    name, folder, _ = exported
    line = next(line for line in body(folder).splitlines() if line.startswith("hf-recurrent benchmark export"))
    words = shlex.split(line)
    params = parse_settings(words[words.index("--set") + 1 :: 2])
    assert params == PARAMS[name]
    again = export_benchmark(name, tmp_path / "again", params=params, cache_dir=tmp_path / "cache")
    assert contents(again) == contents(folder)
