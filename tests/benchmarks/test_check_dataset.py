"""`check_dataset_folder` and `rows_digest`: a damaged or foreign folder is not published."""

import hashlib
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_export import front_matter

from hf_recurrent.benchmarks.export import check_dataset_folder

TEST = "original/test-00000-of-00001.parquet"


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


def swap(folder):
    """Two files change names."""
    first, second = (folder / f"original/{split}-00000-of-00001.parquet" for split in ("test", "validation"))
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "README.md").unlink(), "not an export of a benchmark .*it has no README.md"),
        (lambda f: (f / "README.md").write_text("# Data\n"), "not an export .*no front matter with a 'hf_recurrent'"),
        (lambda f: edit(f / "README.md", "  configs:\n", "  config:\n"), "not an export .*'configs'"),
        (lambda f: (f / "eval.yaml").unlink(), "- eval.yaml is missing"),
        (lambda f: edit(f / "eval.yaml", "split: test\n", "split: dev\n"), "eval.yaml: its tasks are not"),
        (lambda f: (f / "link").symlink_to(f.parent), "- link does not belong"),
        (lambda f: (f / TEST).unlink(), "'original' does not load|'original': its rows do not have the digest"),
        (lambda f: shutil.copy(f / TEST, f / "original/dev-00000-of-00001.parquet"), "dev-.* does not belong"),
        (lambda f: (f / "listops.py").write_text(""), "listops.py does not belong to an export: remove it"),
        (lambda f: (f / TEST).write_bytes((f / TEST).read_bytes()[:-20]), "'original' does not load"),
        (lambda f: rewrite(f / TEST, other_label), "'original': its rows do not have the digest"),
        (swap, "'original': its rows do not have the digest"),
    ],
)
def test_damage(exported, tmp_path, change, message):
    folder = shutil.copytree(exported, tmp_path / "copy")
    change(folder)
    with pytest.raises(ValueError, match=message):
        check_dataset_folder(folder)


def test_no_folder(tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"folder='{tmp_path / 'x'}': there is no such folder")):
        check_dataset_folder(tmp_path / "x")


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
