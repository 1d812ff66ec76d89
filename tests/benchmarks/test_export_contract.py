"""Exports of every benchmark: what the card says is true, and its command makes the same bytes."""

import re
import shlex

import pytest
import yaml
from small_export import SMALL, body, contents, front_matter

from hf_recurrent.benchmarks import benchmark_info, describe_example, load_benchmark
from hf_recurrent.benchmarks.export import check_dataset_folder, export_benchmark, rows_digest
from hf_recurrent.benchmarks.registry import get_benchmark
from hf_recurrent.utils import mapping

# benchmark -> configs (None: all) and parameters
EXPORTS = {
    "listops": (["original", "argument_generalization"], {**SMALL, "max_depth": 8, "operators": ["[MAX", "[SM"]}),
    "logical_inference": (None, SMALL),
    "logical_inference_translation": (["original", "split_a"], SMALL),
    "flip_flop": (None, {**SMALL, "train_length": 16, "test_lengths": [12, 48]}),
    "compositional_table_lookup": (None, {**SMALL, "valid_extra_depth": 2}),
    "simple_arithmetic": (None, {**SMALL, "disjoint": False}),
    "listops_depth": (None, {**SMALL, "max_train_depth": 2, "valid_extra_depth": 1, "max_test_depth": 4}),
    "lra": (["listops", "pathfinder32"], {**SMALL, "contour_length": 5}),
    "long_documents": (["python"], {}),
}


@pytest.fixture(scope="module", params=list(EXPORTS))
def export(request, tmp_path_factory):
    """Name, folder, and the rows of each config by `load_benchmark`."""
    name, base = request.param, tmp_path_factory.mktemp(request.param)
    configs, params = EXPORTS[name]
    folder = export_benchmark(name, base / name, configs=configs, params=params, cache_dir=base / "cache")
    known = benchmark_info(name).parameters
    loaded = {
        config: load_benchmark(
            name,
            config,
            cache_dir=base / "cache",
            **{key: value for key, value in params.items() if key in known[config]},
        )
        for config in configs or benchmark_info(name).configs
    }
    return name, folder, loaded


def test_check(export):
    name, folder, loaded = export
    facts = check_dataset_folder(folder)
    assert facts.benchmark == name
    assert facts.files == sorted(contents(folder))
    assert facts.rows == {
        config: {split: len(rows) for split, rows in splits.items()} for config, splits in loaded.items()
    }
    for config, splits in loaded.items():
        labels = benchmark_info(name, config).label_names
        assert facts.digests[config] == f"sha256:{rows_digest(splits, labels)}"


def test_front_matter(export):
    name, folder, loaded = export
    data, info = front_matter(folder), benchmark_info(name)
    default = info.default_config if info.default_config in loaded else next(iter(loaded))
    assert [(entry["config_name"], entry.get("default", False)) for entry in data["configs"]] == [
        (config, config == default) for config in loaded
    ]
    kinds = {"pixels": "image-classification"}
    assert data["task_categories"] == list(
        dict.fromkeys(
            kinds.get(own.modality, "text-classification") if own.label_names else "text-generation"
            for own in (benchmark_info(name, config) for config in loaded)
        )
    )
    for entry in data["dataset_info"]:
        rows = next(iter(loaded[entry["config_name"]].values()))
        assert [feature["name"] for feature in entry["features"]] == rows.column_names
    assert ("synthetic" in data["tags"]) == info.synthetic
    for config in loaded:
        taken = {key: value for key, value in EXPORTS[name][1].items() if key in info.parameters[config]}
        defaults = info.parameters[config]
        assert data["hf_recurrent"]["configs"][config]["parameters"] == {
            key: value for key, value in taken.items() if value != defaults[key]
        }
    tasks = yaml.safe_load((folder / "eval.yaml").read_text())["tasks"]
    assert [task["id"] for task in tasks] == [
        f"{config}/{split}" for config, splits in loaded.items() for split in splits if split != "train"
    ]


def test_card(export):
    name, folder, loaded = export
    text = body(folder)
    pictures = any(benchmark_info(name, config).modality == "pixels" for config in loaded)
    # those have dark rows
    assert pictures or not re.search(r"[ \t]\n|\n\n\n|\{\{|\{%|None", text.replace("or None", ""))
    assert str(folder.parent) not in text
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if re.fullmatch(r"\|[-:|]+\|", line)]
    assert len(heads) >= 4
    for i in heads:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines[i - 1 : i + 2]}) == 1, lines[i - 1]
    for config, splits in loaded.items():
        info = benchmark_info(name, config)
        assert all(f"- {limit}\n" in text for limit in info.limits)
        assert all(f"`{package}==" in text for package in info.packages)
        assert info.bibtex in text
        assert info.provenance in text
        assert info.parse_meaning in text
        for column, meaning in info.column_meanings.items():
            assert f"| `{column}` | " in text
            assert meaning.replace("|", "\\|") in text
        for split, rows in splits.items():
            for column in info.slice_columns:
                values = rows[column][:]
                assert f" {min(values)} / {sum(values) / len(values):.2f} / {max(values)} |" in text, (split, column)
            if info.label_names:
                shares = [f"{rows['label'][:].count(label) / len(rows):.1%}" for label in range(len(info.label_names))]
                assert f"| `{split}` | {' | '.join(shares)} |" in text
        rows = splits[next(iter(splits))]
        # long texts are cut
        shown = [row for row in rows if all(row[column][:200] in text for column in info.text_columns)]
        described = [describe_example(name, row, 16, config) for row in shown]
        assert any(own.tree in text and own.answer in text for own in described)


def test_the_command_on_the_card_makes_the_same_bytes(export, tmp_path):
    name, folder, loaded = export
    words = shlex.split(re.search(r"```bash\n(.*)\n```", body(folder)).group(1))
    assert words[:5] == ["hf-recurrent", "benchmark", "export", name, name]
    options = list(zip(words[5::2], words[6::2], strict=True))
    configs = [value for option, value in options if option == "--benchmark_config"]
    params = mapping("params", dict(options).get("--benchmark_params"))
    assert len(options) == len(configs) + bool(params)
    assert bool(configs) == (list(loaded) != list(benchmark_info(name).configs))
    again = export_benchmark(name, tmp_path / "again", configs=configs or None, params=params, cache_dir=tmp_path / "c")
    assert contents(again) == contents(folder)


def test_the_card_states_no_default_that_was_changed(tmp_path, cache):
    params = EXPORTS["flip_flop"][1]
    text = body(export_benchmark("flip_flop", tmp_path / "out", params=params, cache_dir=cache))
    assert not re.search(r"\b(512|1024)\b", text)
    assert "The defaults of lengths, probabilities and sizes are those of" in text


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *((name, config) for name in ("cfq", "wmt14_en_de") for config in get_benchmark(name).info.configs),
        ("lra", "text"),
        ("lra", "retrieval"),
        ("lra", "image"),
        ("long_documents", "pg19"),
    ],
)
def test_examples_of_others_are_not_exported(name, config, tmp_path):
    with pytest.raises(ValueError, match=r"not ours to publish|its texts are not made here"):
        export_benchmark(name, tmp_path / "out", configs=[config])
    assert not (tmp_path / "out").exists()
