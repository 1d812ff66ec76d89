"""The arena's Retrieval: pairs of papers in the authors' tables."""

import pytest
from lra_files import cached_rows, contents, planned_rows, write_files

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.lra import retrieval

PARAMS = {"max_bytes": 4096}
TRAIN = (
    b'1.0\tP05\tW04\t"quoted" and "not\tas" csv\n0.0\tA\tB\t'
    + b"caf\xe9\x0b\x85x\ry\xe2\x80\xa8z"
    + b"\t\x00'\r\n1\tA\tB\tlast\tline\n"
)
FILES = {
    "new_aan_pairs.train.tsv": TRAIN,
    "new_aan_pairs.eval.tsv": b"0\t1\t2\teval\tpair\n",
    "new_aan_pairs.test.tsv": b"1.0\t1\t2\ttest\tpair\n",
}


def read(data_dir, **params):
    return planned_rows(retrieval.Retrieval(), PARAMS | params, data_dir)


@pytest.mark.parametrize("folder", ["", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data"])
def test_tables_of_the_release(folder, tmp_path):
    write_files(tmp_path / folder, FILES)
    splits = read(tmp_path)
    assert list(splits) == ["train", "validation", "test"]
    rows = splits["train"]
    assert [row["label"] for row in rows] == [1, 0, 1]
    assert contents(rows) == [b'"quoted" and "not', b"caf\xe9\x0b\x85x\ry\xe2\x80\xa8z", b"last"]
    assert contents(rows, "text_pair") == [b'as" csv', b"\x00'", b"line"]
    assert [(row["length"], row["length_pair"]) for row in rows] == [(17, 7), (13, 2), (4, 4)]
    assert splits["validation"] == [{"text": "eval", "text_pair": "pair", "label": 0, "length": 4, "length_pair": 4}]
    assert splits["test"][0]["text"] == "test"


def test_each_text_is_cut(tmp_path):
    write_files(tmp_path, FILES | {"new_aan_pairs.test.tsv": "0.0\t1\t2\téé\tabcd\n".encode()})
    (row,) = read(tmp_path, max_bytes=3)["test"]
    assert contents([row]) == ["éé".encode()[:3]]
    assert (row["text_pair"], row["length"], row["length_pair"]) == ("abc", 3, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"1.0\t1\t2\ta\tb\n0.0\t1\t2\tcut in the fi",
            r"test\.tsv:2: the file ends in the middle of a line: is it whole",
        ),
        (b"1.0\t1\t2\ta\tb\n0.0\t1\t2\ta\tcut in the la", r"test\.tsv:2: the file ends in the middle of a line"),
        (b"1.0\t1\t2\ta\tb\n0.0\t1\t2\ta\n", r"test\.tsv:2: expected 'label<TAB>id.*got 4 fields$"),
        (b"1.0\t1\t2\ta\tb\tc\n", r"test\.tsv:1: .*got 6 fields$"),
        (b"1.0\t1\t2\ta\tb\n\n", r"test\.tsv:2: .*got 1 fields$"),
        (b"1.0\t1\t2\t\tb\n", r"test\.tsv:1: .*got an empty text$"),
        (b"2.0\t1\t2\ta\tb\n", r"test\.tsv:1: expected the label 0\.0 or 1\.0 .*got b'2\.0'"),
        (b"nan\t1\t2\ta\tb\n", r"test\.tsv:1: expected the label 0\.0 or 1\.0 .*got b'nan'"),
        (b"label\tid1\tid2\ttext1\ttext2\n", r"test\.tsv:1: expected the label 0\.0 or 1\.0 .*got b'label'"),
        (b"", r"test\.tsv is empty: is the release whole"),
    ],
)
def test_bad_tables(content, message, tmp_path):
    write_files(tmp_path, FILES | {"new_aan_pairs.test.tsv": content})
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_all_missing_files_are_named(tmp_path):
    write_files(tmp_path / "tsv_data", {"new_aan_pairs.train.tsv": TRAIN})
    with pytest.raises(ValueError, match=r"tsv_data has no new_aan_pairs\.eval\.tsv, new_aan_pairs\.test\.tsv;"):
        read(tmp_path)
    with pytest.raises(
        ValueError, match=r"has no new_aan_pairs\.train\.tsv, new_aan_pairs\.eval\.tsv, new_aan_pairs\.test"
    ):
        read(tmp_path / "elsewhere")


def test_it_cannot_be_downloaded():
    with pytest.raises(
        ValueError, match=r"'retrieval' has no source .*give data_dir, .*google-research/long-range-arena"
    ):
        load_benchmark("lra", "retrieval")


def test_a_cut_table_leaves_nothing_behind(tmp_path, cache):
    write_files(tmp_path / "in", FILES | {"new_aan_pairs.test.tsv": TRAIN[:-4]})
    with pytest.raises(ValueError, match=r"new_aan_pairs\.test\.tsv:3: .*is it whole"):
        load_benchmark("lra", "retrieval", data_dir=tmp_path / "in", cache_dir=cache)
    assert not cached_rows(cache)
    write_files(tmp_path / "in", FILES)
    splits = load_benchmark("lra", "retrieval", data_dir=tmp_path / "in", cache_dir=cache)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 3, "validation": 1, "test": 1}
    assert contents(splits["train"], "text_pair")[0] == b'as" csv'
