"""The dataset card: what it says is what the files hold, and what it tells to run works."""

import os
import re
import shlex
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import yaml
from small_export import SMALL, body, contents, front_matter

from hf_recurrent.benchmarks import benchmark_info, list_benchmarks, task_id
from hf_recurrent.benchmarks.export import export_benchmark
from hf_recurrent.benchmarks.export.card import size_category
from hf_recurrent.benchmarks.export.settings import choose, format_value, parse_settings
from hf_recurrent.benchmarks.registry import get_benchmark
from support.client import LEAVE


def test_the_command_on_the_card_makes_the_same_bytes(exported, tmp_path, cache):
    words = shlex.split(re.search(r"```bash\n(.*)\n```", body(exported)).group(1))
    assert words[:5] == ["hf-recurrent", "benchmark", "export", "listops", "listops"]
    options = list(zip(words[5::2], words[6::2], strict=True))
    configs = [value for option, value in options if option == "--config"]
    params = parse_settings(value for option, value in options if option == "--set")
    # the seed and the default lengths are not there; max_depth=9 is the default of one config only
    assert list(params) == ["num_train", "num_validation", "num_test", "max_depth", "operators"]
    assert len(options) == len(configs) + len(params)
    again = export_benchmark("listops", tmp_path / "again", configs=configs, params=params, cache_dir=cache)
    assert contents(again) == contents(exported)


def test_command_names_no_configs_where_all_are_there(exported_pairs):
    assert list(front_matter(exported_pairs)["hf_recurrent"]["configs"]) == list(
        benchmark_info("logical_inference").configs
    )
    assert "hf-recurrent benchmark export logical_inference logical_inference --set num_train=40" in body(
        exported_pairs
    )


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


def test_default_config_where_the_usual_one_is_not_there(tmp_path, cache):
    folder = export_benchmark(
        "logical_inference", tmp_path / "out", configs=["split_c", "split_a"], params=SMALL, cache_dir=cache
    )
    entries = front_matter(folder)["configs"]
    assert [(entry["config_name"], entry.get("default")) for entry in entries] == [("split_a", True), ("split_c", None)]


def test_card_tells_the_statistics(exported):
    text = body(exported)
    rows = pq.read_table(exported / "original/test-00000-of-00001.parquet").to_pydict()
    for column in ("length", "depth", "num_operators", "max_arguments"):
        values = rows[column]
        assert f" {min(values)} / {sum(values) / len(values):.2f} / {max(values)} |" in text
    shares = [f"{rows['label'].count(label) / 40:.1%}" for label in range(10)]
    assert f"| `test` | {' | '.join(shares)} |" in text
    assert "| `train` | 1,500 |" in text
    assert "@inproceedings{nangia2018listops" in text
    train = pq.read_table(exported / "original/train-00000-of-00001.parquet")["text"].to_pylist()
    assert f"text: {sorted(train[:200], key=len)[50]}\n" in text
    example = re.search(r"text: (.*)\nlabel: (\d) \(its value is (\d)\)\n\n(\w+) = (\d)\n", text)
    assert len({example.group(2), example.group(3), example.group(5)}) == 1
    assert example.group(1).startswith(f"[{example.group(4)} ")


def test_card_of_pairs_keeps_its_tables(exported_pairs):
    """A label is the character that separates table cells."""
    lines = body(exported_pairs).splitlines()
    heads = [i for i, line in enumerate(lines) if re.fullmatch(r"\|[-:|]+\|", line)]
    assert len(heads) > 5
    for i in heads:
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in (lines[i - 1], lines[i], lines[i + 1])}
        assert len(cells) == 1, lines[i - 1]
    assert r"`\|` (alternation: never both true, but sometimes both false)" in body(exported_pairs)


@pytest.mark.parametrize("name", ["exported", "exported_pairs"])
def test_card_says_what_columns_and_parses_mean(name, request):
    text = body(request.getfixturevalue(name))
    info = benchmark_info("listops" if name == "exported" else "logical_inference")
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:string|int32) \| (.*) \|$", text, flags=re.MULTILINE))
    assert rows == info.column_meanings
    assert len(set(rows.values())) == len(rows)
    assert text.count(info.parse_meaning) == 1
    assert "12 stands for 12 or more" in rows["num_operators"] or name == "exported"


@pytest.mark.parametrize("name", ["exported", "exported_pairs"])
def test_card_is_tidy(name, request):
    folder = request.getfixturevalue(name)
    text = (folder / "README.md").read_text()
    assert not re.search(r"[ \t]\n|\n\n\n|\{\{|\{%|None", text.replace("or None", ""))
    assert str(folder.parent) not in text
    assert not re.search(r"20[2-9]\d-\d\d", text)


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


def test_eval_yaml(exported):
    data = yaml.safe_load((exported / "eval.yaml").read_text())
    assert set(data) == {"name", "description", "evaluation_framework", "tasks"}
    assert [(task["config"], task["split"]) for task in data["tasks"]] == [
        ("original", "validation"),
        ("original", "test"),
        ("argument_generalization", "test_arguments_10"),
        ("argument_generalization", "test_arguments_15"),
    ]
    assert all(task["id"] == task_id(task["config"], task["split"]) for task in data["tasks"])
    assert task_id("original", "test") == "original/test"


@pytest.mark.parametrize(
    ("rows", "category"),
    [(999, "n<1K"), (1000, "1K<n<10K"), (999_999, "100K<n<1M"), (1_000_000, "1M<n<10M"), (10**7, "n>10M")],
)
def test_size_category(rows, category):
    assert size_category(rows) == category


@pytest.mark.parametrize("name", [name for name in list_benchmarks() if get_benchmark(name).export_configs != ()])
def test_defaults_are_spelled_as_they_are_read(name):
    family, info = get_benchmark(name), benchmark_info(name)
    for config in [
        config for config in family.export_configs or info.configs if family.member(config).export_configs != ()
    ]:
        defaults = info.parameters[config]
        read = parse_settings(f"{known}={format_value(value)}" for known, value in defaults.items())
        (choice,) = choose(family, [config], read)
        assert choice.given == defaults
        assert choice.changed == {}


def test_settings_are_json_or_words():
    texts = ["a=3", 'b=["[MAX"]', "c=null", "d=MAX", " e = true ", "f=None", "g=0.5", "h=a=b", "i=False"]
    assert parse_settings(texts) == {
        "a": 3,
        "b": ["[MAX"],
        "c": None,
        "d": "MAX",
        "e": True,
        "f": None,
        "g": 0.5,
        "h": "a=b",
        "i": False,
    }
    for text in ("a", "=3", " =3"):
        with pytest.raises(ValueError, match="expected NAME=VALUE, such as max_depth=3"):
            parse_settings([text])
    with pytest.raises(ValueError, match="set='a=2': a is given twice"):
        parse_settings(["a=1", "a=2"])
