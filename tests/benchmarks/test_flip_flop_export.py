"""A benchmark without labels as a data set: card, check, digest, and what others read."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from small_export import body, contents, front_matter

from hf_recurrent.benchmarks import benchmark_info, describe_example, load_benchmark
from hf_recurrent.benchmarks.export import check_dataset_folder, export_benchmark, rows_digest
from hf_recurrent.benchmarks.export.settings import parse_settings

PARAMS = {"num_train": 40, "num_validation": 9, "num_test": 20, "train_length": 16, "test_lengths": [12, 48]}
SPLITS = [f"test_{length}_p{percent}" for length in (12, 48) for percent in (10, 80, 98)]
TEST = "original/test_48_p98-00000-of-00001.parquet"
COLUMNS = ["text", "length", "ignore_percent", "num_reads", "distance"]

# around the code on the card, which makes `splits`, `stream` and `rows`
BEFORE = """
import sys
sys.modules["hf_recurrent"] = None
"""
AFTER = """
import json
found = {"splits": splits, "stream": stream}
found = {name: {split: list(rows) for split, rows in loaded.items()} for name, loaded in found.items()}
print(json.dumps({**found, "default": len(load_dataset(path)["train"]), "rows": list(rows)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("flip_flop")
    return export_benchmark("flip_flop", base / "flip_flop", params=PARAMS, cache_dir=base / "cache")


@pytest.fixture
def generated(cache):
    return load_benchmark("flip_flop", **PARAMS, cache_dir=cache)


@pytest.mark.slow
def test_code_on_the_card_reads_what_load_benchmark_gives(folder, generated, tmp_path):
    """In a process without this package."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", body(folder), flags=re.DOTALL))
    code = BEFORE + code.replace('"flip_flop"', repr(str(folder))) + AFTER
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {split: rows.to_list() for split, rows in generated.items()}
    assert list(rows) == ["train", "validation", *SPLITS]
    assert found["splits"] == found["stream"] == rows
    assert list(found["splits"]["train"][0]) == COLUMNS
    assert found["default"] == 40
    last = rows["test_48_p98"]
    mean = round(sum(row["distance"] for row in last) / len(last))
    near = [{"text": row["text"], "distance": row["distance"]} for row in last if row["distance"] <= mean]
    assert 0 < len(near) < len(last)
    assert found["rows"] == near


def test_check(folder, generated):
    facts = check_dataset_folder(folder, "org/flip_flop")
    assert facts.benchmark == "flip_flop"
    assert facts.rows == {"original": {split: len(rows) for split, rows in generated.items()}}
    assert facts.digests == {"original": f"sha256:{rows_digest(generated, [])}"}
    assert facts.files == sorted(contents(folder))


def change_text(table):
    text = table["text"].to_pylist()
    text[3] = text[3].replace("i 0", "i 1", 1)
    return table.set_column(0, "text", pa.array(text))


def add_label(table):
    return table.append_column("label", pa.array([0] * table.num_rows, pa.int32()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_text, "config 'original': its rows do not have the digest"),
        (add_label, "config 'original': the columns of its files are not those of README.md"),
        (lambda table: table.slice(1), "split 'test_48_p98': 19 rows, but 20 in README.md"),
    ],
)
def test_damage_is_found(folder, change, message, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    pq.write_table(change(pq.read_table(copy / TEST)).replace_schema_metadata(None), copy / TEST)
    with pytest.raises(ValueError, match=message):
        check_dataset_folder(copy)


def test_front_matter(folder):
    data = front_matter(folder)
    assert data["task_categories"] == ["text-generation"]
    assert [feature["name"] for feature in data["dataset_info"][0]["features"]] == COLUMNS
    assert [feature["dtype"] for feature in data["dataset_info"][0]["features"]] == ["string"] + ["int32"] * 4
    assert data["hf_recurrent"]["configs"]["original"]["parameters"] == PARAMS
    tasks = yaml.safe_load((folder / "eval.yaml").read_text())["tasks"]
    assert [task["id"] for task in tasks] == [f"original/{split}" for split in ("validation", *SPLITS)]


def test_card(folder, generated):
    text, info = body(folder), benchmark_info("flip_flop")
    assert not re.search(r"label(?!_names)", text.lower())
    assert not re.search(r"[ \t]\n|\n\n\n|\{\{|\{%|None", text)
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:string|int32) \| (.*) \|$", text, flags=re.MULTILINE))
    assert rows == info.column_meanings
    assert all(f"- {limit}\n" in text for limit in info.limits)
    values = generated["test_48_p98"]["distance"][:]
    assert f"| {min(values)} / {sum(values) / 20:.2f} / {max(values)} |" in text
    heads = [i for i, line in enumerate(text.splitlines()) if re.fullmatch(r"\|[-:|]+\|", line)]
    assert len(heads) == 4
    lines = text.splitlines()
    for i in heads:
        assert len({line.count("|") for line in lines[i - 1 : i + 2]}) == 1
    shown, answer, tree = re.search(
        r"```text\ntext: (.*?)\nanswer: (.*?)\n\n(.*?)\n```", text, flags=re.DOTALL
    ).groups()
    (row,) = [row for row in generated["train"] if row["text"] == shown]
    described = describe_example("flip_flop", row)
    assert (answer, tree) == (described.answer, described.tree)


def test_the_card_states_no_default_that_was_changed(folder):
    text = body(folder)
    assert PARAMS["train_length"] != 512
    assert not re.search(r"\b(512|1024)\b", text)
    assert "The defaults of lengths, probabilities and sizes are those of" in text


@pytest.mark.slow
def test_the_command_on_the_card_makes_the_same_bytes(folder, tmp_path, cache):
    words = shlex.split(re.search(r"```bash\n(.*)\n```", body(folder)).group(1))
    assert words[:5] == ["hf-recurrent", "benchmark", "export", "flip_flop", "flip_flop"]
    assert set(words[5::2]) == {"--set"}
    assert "test_lengths=[12,48]" in words
    params = parse_settings(words[6::2])
    again = export_benchmark("flip_flop", tmp_path / "again", params=params, cache_dir=cache, num_proc=2)
    assert contents(again) == contents(folder)
