"""`export_benchmark`: what it writes, that it always writes the same, and what it refuses to overwrite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from small_export import CONFIGS, PARAMS, SMALL, contents

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.export import export_benchmark, parquet
from hf_recurrent.utils import new_folder


def test_files(exported):
    assert sorted(contents(exported)) == [
        "README.md",
        "argument_generalization/test_arguments_10-00000-of-00001.parquet",
        "argument_generalization/test_arguments_15-00000-of-00001.parquet",
        "eval.yaml",
        "original/test-00000-of-00001.parquet",
        "original/train-00000-of-00001.parquet",
        "original/validation-00000-of-00001.parquet",
    ]
    assert exported.is_absolute()
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in exported.rglob("*"))


@pytest.mark.slow
def test_same_bytes_in_another_process_and_place(exported, tmp_path):
    """Another folder, two processes that compute rows, other hashes, time zone and order of the arguments."""
    code = (
        "import sys; from hf_recurrent.benchmarks.export import export_benchmark\n"
        "if __name__ == '__main__':\n"
        f"    params = dict(reversed({PARAMS!r}.items()), seed=0)\n"
        f"    export_benchmark('listops', 'a/b/c', configs={CONFIGS[::-1]!r}, params=params, num_proc=2,"
        " cache_dir='cache')\n"
    )
    (tmp_path / "script.py").write_text(code)
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "HF_HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert contents(tmp_path / "a/b/c") == contents(exported)


def test_several_files_and_row_groups(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_FILE", 20)
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 7)
    export_benchmark("listops", tmp_path / "out", configs=["original"], params=SMALL, cache_dir=cache)
    rows = load_benchmark("listops", **SMALL, cache_dir=cache)["train"].to_list()
    files = sorted((tmp_path / "out/original").glob("train-*"))
    assert [path.name for path in files] == ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert [row for path in files for row in pq.read_table(path).to_pylist()] == rows
    groups = pq.ParquetFile(files[0]).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [7, 7, 6]


def test_storage_leaves_no_trace(tmp_path):
    """The same rows in other chunks, or behind an index, give the same file."""
    rows = load_benchmark("listops", split="train", cache_dir=tmp_path / "cache", **SMALL)
    pieces = datasets.concatenate_datasets([rows.select(range(0, 11)), rows.select(range(11, 30))])
    indexed = rows.select(list(range(29, -1, -1))).select(list(range(29, -1, -1)))
    stored = {"a": rows, "b": pieces, "c": indexed}
    sizes = {parquet.write_split(data, tmp_path / name, "train")[1] for name, data in stored.items()}
    assert len(sizes) == 1
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    assert pq.read_table(tmp_path / "a").to_pylist() == rows.to_list()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "listop"}, "unknown benchmark 'listop'; available: listops"),
        ({"configs": ["original", "long"]}, "unknown config 'long' of benchmark 'listops'; available: original"),
        ({"configs": "original"}, r"configs='original': expected None \(all\) or a list out of original"),
        ({"configs": []}, r"configs=\[\]: expected None"),
        ({"params": {"depth": 3}}, "unknown parameter 'depth' for benchmark 'listops'.*seed, num_train.*max_depth"),
        (
            {"configs": ["length_generalization"], "params": {"num_train": 3}},
            "unknown parameter 'num_train' for benchmark 'listops', configs length_generalization; available: seed",
        ),
        ({"params": {"max_depth": 0}}, "max_depth=0: expected an integer >= 1"),
        (
            {"configs": ["lra", "original"], "params": {"num_train": None}},
            "num_train=None: config 'lra' needs a number",
        ),
        ({"params": {"num_test": 0}}, "every split has 0 examples"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    """Refused before the first row is generated."""
    with pytest.raises(ValueError, match=message):
        export_benchmark(
            **{"name": "listops", "folder": tmp_path / "out", "cache_dir": tmp_path / "cache", **arguments}
        )
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_as_a_whole(exported, tmp_path, cache):
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    export_benchmark("listops", folder, configs=["original"], params=SMALL, cache_dir=cache)
    fresh = export_benchmark("listops", tmp_path / "fresh", configs=["original"], params=SMALL, cache_dir=cache)
    assert contents(folder) == contents(fresh)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "fresh", "cache"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "README.md").unlink(), "no earlier export: it has no README.md"),
        (lambda folder: (folder / "README.md").write_text("# mine\n"), "no earlier export: .*no front matter"),
        (lambda folder: (folder / "README.md").write_text("---\na: [\n---\n"), "no earlier export: .*not valid YAML"),
        (lambda folder: (folder / "README.md").write_text("---\nlicense: mit\n---\n"), "no earlier export"),
        (lambda folder: (folder / "notes.txt").write_text("mine"), r"1 more file.*\(notes.txt\); name another"),
        (lambda folder: (folder / "original/notes.txt").write_text("mine"), r"\(original/notes.txt\)"),
    ],
)
def test_other_folders_are_refused(exported, change, message, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    change(folder)
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        export_benchmark("listops", folder, params=SMALL)
    assert contents(folder) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_exports_of_other_benchmarks_and_files_are_refused(exported, tmp_path):
    with pytest.raises(ValueError, match="holds an export of 'listops', not of 'logical_inference'"):
        export_benchmark("logical_inference", exported)
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(ValueError, match="file is a file; name a folder that does not exist"):
            export_benchmark("listops", folder)


def test_an_empty_folder_is_filled(tmp_path, cache):
    (tmp_path / "out").mkdir()
    export_benchmark("logical_inference", tmp_path / "out", configs=["original"], params=SMALL, cache_dir=cache)
    assert (tmp_path / "out/README.md").is_file()


def test_a_failure_midway_changes_nothing(exported, tmp_path, cache):
    """The second config cannot be drawn: with one level no tree has 200 words."""
    folder = tmp_path / "out"
    shutil.copytree(exported, folder)
    arguments = {
        "configs": ["original", "length_generalization"],
        "params": {"num_train": 5, "num_validation": 1, "num_test": 5, "max_depth": 1},
        "cache_dir": cache,
    }
    for target in (folder, tmp_path / "new/folder"):
        with pytest.raises(ValueError, match="there is no tree with depth up to 1"):
            export_benchmark("listops", target, **arguments)
    assert contents(folder) == contents(exported)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}


def test_what_was_there_stays_if_the_new_folder_cannot_take_its_place(tmp_path, monkeypatch):
    (tmp_path / "target").mkdir()
    (tmp_path / "target/old").write_text("old")
    rename = Path.rename

    def fail_on_arrival(source, target):
        if source.name == "new":
            raise OSError("disk full")
        return rename(source, target)

    def replaced():
        with new_folder(tmp_path / "target", lambda place: None) as built:
            (built / "new").write_text("new")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail_on_arrival)
        with pytest.raises(OSError, match="disk full"):
            replaced()
    assert contents(tmp_path) == {"target/old": b"old"}
    replaced()
    assert contents(tmp_path) == {"target/new": b"new"}


def test_what_appears_meanwhile_is_not_lost(tmp_path):
    def refuse(place):
        raise ValueError(f"{place.name} holds something")

    def overtaken():
        with new_folder(tmp_path / "target", refuse) as built:
            (built / "new").write_text("new")
            (tmp_path / "target").mkdir()
            (tmp_path / "target/other").write_text("other")

    with pytest.raises(ValueError, match="target holds something"):
        overtaken()
    assert contents(tmp_path) == {"target/other": b"other"}
