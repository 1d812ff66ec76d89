"""`check_dataset_folder` and `rows_digest`: damage of every kind is found."""

import hashlib
import json
import os
import re
import shutil

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_export import contents, front_matter

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.benchmarks.export import check_dataset_folder, rows_digest

TEST = "original/test-00000-of-00001.parquet"
LABELS = list("0123456789")


@pytest.fixture
def folder(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copy")


def rewrite(path, change):
    """Writes a Parquet file again after `change` of its table, with the features it had."""
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def other_label(table):
    labels = table["label"].to_pylist()
    labels[0] = (labels[0] + 1) % 10
    return table.set_column(1, "label", pa.array(labels))


def rename_label(path):
    """The same rows, but label 0 gets another name."""
    table = pq.read_table(path)
    stored = table.schema.metadata[b"huggingface"].replace(b'"names": ["0"', b'"names": ["zero"')
    assert b"zero" in stored
    pq.write_table(table.replace_schema_metadata({b"huggingface": stored}), path)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def swap(folder):
    """Two files change names."""
    first, second = (folder / f"original/{split}-00000-of-00001.parquet" for split in ("test", "validation"))
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)


def test_facts(exported, exported_pairs):
    facts = check_dataset_folder(exported, "someone/listops")
    assert (facts.benchmark, facts.generator_version) == ("listops", benchmark_info("listops").version)
    assert facts.rows == {
        "original": {"train": 1500, "validation": 20, "test": 40},
        "argument_generalization": {"test_arguments_10": 40, "test_arguments_15": 40},
    }
    configs = front_matter(exported)["hf_recurrent"]["configs"]
    assert facts.digests == {name: entry["digest"] for name, entry in configs.items()}
    assert facts.files == sorted(contents(exported))
    assert check_dataset_folder(str(exported_pairs)).benchmark == "logical_inference"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "README.md").unlink(), "not an export of a benchmark: it has no README.md"),
        (lambda f: (f / "README.md").write_text("# Data\n"), "not an export .*no front matter with a 'hf_recurrent'"),
        (lambda f: (f / "README.md").write_bytes(b"\xff"), "not an export .*no front matter"),
        (lambda f: edit(f / "README.md", "  configs:\n", "  config:\n"), "not as an export writes it.*'configs'"),
        (lambda f: edit(f / "README.md", "path: original/test-*", "path: original/*"), "contradict each other"),
        (lambda f: edit(f / "README.md", "config_name: original", "config_name: first"), "contradict each other"),
        (lambda f: edit(f / "README.md", "        test: 40", "        test: 41"), "'test': 40 rows, but 41 in README"),
        (lambda f: edit(f / "README.md", "dtype: int32", "dtype: int64"), "'original': the columns of its files"),
        (lambda f: edit(f / "README.md", "'0': '0'", "'0': zero"), "'original': the columns of its files"),
        (lambda f: (f / "eval.yaml").unlink(), "- eval.yaml is missing"),
        (lambda f: (f / "eval.yaml").unlink() or os.mkfifo(f / "eval.yaml"), "- eval.yaml is neither a file nor a"),
        (lambda f: (f / "link").symlink_to(f.parent), "- link is neither a file nor a folder: remove it"),
        (lambda f: (f / "eval.yaml").write_text("a: [\n"), "eval.yaml is not valid YAML"),
        (lambda f: edit(f / "eval.yaml", "split: test\n", "split: dev\n"), "eval.yaml: its tasks are not"),
        (lambda f: (f / TEST).unlink(), r"'original', split 'test': no file matches original/test-\*"),
        (lambda f: (f / TEST).rename(f / "original/test-0.parquet"), "test-0.parquet is no whole series"),
        (
            lambda f: (f / TEST).rename(f / "original/test-00000-of-00002.parquet"),
            "of-00002.parquet is no whole series",
        ),
        (lambda f: shutil.copy(f / TEST, f / "original/dev-00000-of-00001.parquet"), "dev-.*: no config names it"),
        (lambda f: shutil.copy(f / TEST, f / "extra.parquet"), "extra.parquet: does not belong to an export"),
        (lambda f: (f / ".cache").write_text(""), r"\.cache: does not belong"),
        (lambda f: (f / "original/state.json").write_text(""), "original/state.json: does not belong"),
        (lambda f: (f / "listops.py").write_text(""), "listops.py: `load_dataset` refuses a repository with a script"),
        (lambda f: (f / "copy.py").write_text(""), "copy.py: `load_dataset` refuses"),
        (lambda f: (f / "make.py").write_text(""), "make.py: a script; a data set holds data only"),
        (lambda f: truncate(f / TEST), "'original': a file cannot be read"),
        (lambda f: (f / TEST).write_text("text,label"), "'original': a file cannot be read"),
        (lambda f: rewrite(f / TEST, other_label), "'original': its rows do not have the digest"),
        (lambda f: rewrite(f / TEST, lambda t: t.take(list(range(39, -1, -1)))), "its rows do not have the digest"),
        (lambda f: rewrite(f / TEST, lambda t: t.slice(1)), "'test': 39 rows, but 40 in README.md"),
        (lambda f: rename_label(f / TEST), "'original': the columns of its files"),
        (swap, "'original': its rows do not have the digest"),
    ],
)
def test_damage(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        check_dataset_folder(folder, "someone/listops")


def test_every_problem_is_named_at_once(folder):
    (folder / "eval.yaml").unlink()
    (folder / "run.py").write_text("")
    (folder / "argument_generalization/test_arguments_15-00000-of-00001.parquet").unlink()
    rewrite(folder / TEST, other_label)
    with pytest.raises(ValueError, match="cannot be published") as caught:
        check_dataset_folder(folder)
    problems = str(caught.value).splitlines()[1:]
    assert [problem.partition(":")[0] for problem in problems] == [
        "- run.py",
        "- eval.yaml is missing",
        "- config 'argument_generalization', split 'test_arguments_15'",
        "- config 'original'",
        "- config 'argument_generalization', split 'test_arguments_15'",
        "- config 'argument_generalization'",
    ]


def test_no_folder(tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"folder='{tmp_path / 'x'}': there is no such folder")):
        check_dataset_folder(tmp_path / "x")


@pytest.mark.parametrize("streaming", [False, True])
def test_digest_of_what_load_dataset_gives(exported, tmp_path, streaming):
    for config, facts in front_matter(exported)["hf_recurrent"]["configs"].items():
        splits = datasets.load_dataset(str(exported), config, streaming=streaming, cache_dir=tmp_path)
        assert "sha256:" + rows_digest(splits, LABELS) == facts["digest"]


def test_digest_is_what_its_documentation_says(exported):
    """Made again from the files with nothing but a hash and JSON."""
    text = '{"labels":["0","1","2","3","4","5","6","7","8","9"]}\n'
    for split in ("test", "train", "validation"):
        text += f'{{"split":"{split}"}}\n'
        for row in pq.read_table(exported / f"original/{split}-00000-of-00001.parquet").to_pylist():
            cells = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in row.items()]
            text += "{" + ",".join(cells) + "}\n"
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert digest == front_matter(exported)["hf_recurrent"]["configs"]["original"]["digest"]


def test_digest_tells_rows_apart():
    rows = [{"text": "1", "label": 1}, {"text": "2", "label": 2}]
    variants = [
        ({"test": rows}, LABELS),
        ({"test": rows[::-1]}, LABELS),
        ({"train": rows}, LABELS),
        ({"test": rows[:1], "train": rows[1:]}, LABELS),
        ({"test": [{"label": 1, "text": "1"}, rows[1]]}, LABELS),
        ({"test": [{"text": 1, "label": 1}, rows[1]]}, LABELS),
        ({"test": rows}, LABELS[::-1]),
    ]
    assert len({rows_digest(*variant) for variant in variants}) == len(variants)
    both = {"a": rows[:1], "b": rows[1:]}
    assert rows_digest(both, LABELS) == rows_digest(dict(reversed(both.items())), LABELS)
