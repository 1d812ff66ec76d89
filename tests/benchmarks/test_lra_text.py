"""The arena's Text: IMDB in folders, zip files and tables, and from a Hub whose connection breaks."""

import shutil

import pytest
from long_document_files import write_files, write_zip
from lra_files import cached_rows, contents, planned_rows, write_tables

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.lra import text as reviews
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub

PARAMS = {"max_bytes": 4096, "num_validation": None}
IMDB = {
    "train/pos/1_9.txt": "good<br /><br />film",
    "train/neg/10_1.txt": b"caf\xe9",
    "train/neg/2_3.txt": "b\u2028\x00\r\nd",
    "train/unsup/0_0.txt": "not read",
    "train/neg/.hidden.txt": "not read",
    "train/neg/notes.md": "not read",
    "train/labeledBow.feat": "not read",
    "test/pos/0_10.txt": "good",
    "test/neg/0_2.txt": "bad",
    "README": "x",
}
TRAIN = [(b"caf\xe9", 0), ("b\u2028\x00\r\nd".encode(), 0), (b"good<br /><br />film", 1)]
TEST = [(b"bad", 0), (b"good", 1)]
TABLE_ROWS = [{"text": f"review {i} é", "label": i // 6} for i in range(12)]


def read(data_dir, **params):
    return planned_rows(reviews.Reviews(), PARAMS | params, data_dir)


def labelled(rows):
    return list(zip(contents(rows), [row["label"] for row in rows], strict=True))


@pytest.mark.parametrize("kind", ["folder", "the folder above", "zip"])
def test_the_authors_archive(kind, tmp_path):
    if kind == "zip":
        place = write_zip(tmp_path / "in.zip", {f"aclImdb/{name}": content for name, content in IMDB.items()})
    else:
        folder = write_files(tmp_path / "aclImdb", IMDB)
        place = folder if kind == "folder" else tmp_path
    splits = read(place)
    assert list(splits) == ["train", "validation", "test"]
    assert labelled(splits["train"]) == TRAIN
    assert labelled(splits["test"]) == TEST
    assert splits["validation"] == splits["test"]
    assert splits["train"][0] == {"text": "caf\U0010ffe9", "label": 0, "length": 4, "full_length": 4}


def test_long_texts_are_cut(tmp_path):
    long = "é".encode() * 30
    write_files(tmp_path, IMDB | {"train/neg/10_1.txt": long, "train/neg/2_3.txt": b"x" * 21})
    rows = read(tmp_path, max_bytes=21)["train"]
    # in the middle of a character
    assert contents(rows) == [long[:21], b"x" * 21, IMDB["train/pos/1_9.txt"].encode()]
    assert [(row["length"], row["full_length"]) for row in rows] == [(21, 60), (21, 21), (20, 20)]


@pytest.mark.parametrize("kind", ["files", "tables"])
def test_validation_rows_are_taken_out_of_train(kind, tmp_path):
    if kind == "tables":
        rows = write_tables(tmp_path, train=[TABLE_ROWS[:5], TABLE_ROWS[5:6], TABLE_ROWS[6:]], test=[TABLE_ROWS])
    else:
        names = {
            f"{split}/{('neg', 'pos')[i // 6]}/{i % 6}.txt": f"review {i} é"
            for split in ("train", "test")
            for i in range(12)
        }
        rows = write_files(tmp_path, names)
    whole, splits = read(rows), read(rows, num_validation=4)
    assert len(splits["validation"]) == 4
    assert len(splits["train"]) == 8
    parts = [row["text"] for split in ("train", "validation") for row in splits[split]]
    assert sorted(parts) == sorted(row["text"] for row in whole["train"])
    assert splits["test"] == whole["test"]
    # files and tables of the same rows are divided alike
    assert [contents([row])[0].split()[1] for row in splits["validation"]] == [
        str(place).encode() for place in sorted(reviews.held_out(12, 4))
    ]
    assert list(read(rows, num_validation=0)) == ["train", "test"]
    with pytest.raises(ValueError, match="num_validation=12: train has 12 examples, and some must stay"):
        read(rows, num_validation=12)


def test_validation_rows_are_from_everywhere():
    held_out = reviews.held_out(1000, 100)
    assert len(held_out) == 100
    # five standard deviations
    assert sum(held_out) / 100 == pytest.approx(500, abs=145)
    assert reviews.held_out(1000, 50) < held_out


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_all_missing_folders_are_named(kind, tmp_path):
    files = {name: content for name, content in IMDB.items() if name.startswith(("train/pos", "README", "train/unsup"))}
    place = write_files(tmp_path / "in", files) if kind == "folder" else write_zip(tmp_path / "in.zip", files)
    with pytest.raises(ValueError, match=r"has no train/neg/\*\.txt, test/neg/\*\.txt, test/pos/\*\.txt: expected"):
        read(place)


def test_bad_folders(tmp_path):
    write_files(tmp_path / "in", IMDB | {"test/pos/1_10.txt": ""})
    with pytest.raises(ValueError, match=r"in: test/pos/1_10\.txt is empty: is the data set whole"):
        read(tmp_path / "in")
    with pytest.raises(ValueError, match="expected a folder or a zip file"):
        read(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no train/neg/\*\.txt, train/pos/\*\.txt, test/neg"):
        read(tmp_path / "empty")


def test_tables(tmp_path):
    write_tables(tmp_path, train=[TABLE_ROWS[:1], TABLE_ROWS[1:]], test=[TABLE_ROWS[:2]], unsupervised=[TABLE_ROWS])
    splits = read(tmp_path, max_bytes=8)
    assert {split: labelled(rows) for split, rows in splits.items()} == {
        "train": [(row["text"].encode()[:8], row["label"]) for row in TABLE_ROWS],
        "validation": [(b"review 0", 0), (b"review 1", 0)],
        "test": [(b"review 0", 0), (b"review 1", 0)],
    }
    assert splits["train"][0]["full_length"] == 11


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "x", "label": -1}, r"parquet, row 13: expected 0 or 1 in 'label', got -1"),
        ({"text": "x", "label": None}, r"row 13: expected 0 or 1 in 'label', got None"),
        ({"text": None, "label": 1}, r"row 13: expected text in 'text', got None"),
        ({"text": "", "label": 1}, r"row 13: expected text in 'text', got ''"),
    ],
)
def test_bad_rows_of_tables(row, message, tmp_path):
    write_tables(tmp_path, train=[TABLE_ROWS], test=[[*TABLE_ROWS, row]])
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_missing_and_damaged_tables(tmp_path):
    write_tables(tmp_path, train=[TABLE_ROWS] * 3)
    tables = tmp_path / "plain_text"
    (tables / "train-00001-of-00003.parquet").unlink()
    (tables / "train-00000-of-00003.parquet").unlink()
    with pytest.raises(ValueError, match=r"plain_text has 1 tables train-\*\.parquet, which are not all"):
        read(tmp_path)
    shutil.rmtree(tables)
    write_tables(tmp_path, train=[TABLE_ROWS], test=[TABLE_ROWS])
    path = tables / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    for num_validation in (None, 2):
        with pytest.raises(ValueError, match=r"train-00000-of-00001\.parquet cannot be read as Parquet .*is it whole"):
            read(tmp_path, num_validation=num_validation)


def tables_of_the_hub(folder):
    write_tables(folder, train=[TABLE_ROWS], test=[TABLE_ROWS[:4]], unsupervised=[TABLE_ROWS])
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.parquet")}


def load_from(hub, cache):
    return load_benchmark("lra", "text", dataset="org/imdb", cache_dir=cache)


def test_a_damaged_table_of_the_hub(tmp_path, cache):
    files = tables_of_the_hub(tmp_path / "tables")
    name = "plain_text/test-00000-of-00001.parquet"
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        hub.add_repository("org/imdb", "dataset", files=files | {name: files[name][:-20]})
        with pytest.raises(ValueError, match=r"test-00000-of-00001\.parquet cannot be read as Parquet .*is it whole"):
            load_from(hub, cache)
        assert not cached_rows(cache)
        hub.add_repository("org/empty", "dataset", files={"data/train.parquet": b"x"})
        with pytest.raises(ValueError, match=r"dataset='org/empty' has no files plain_text/<split>-\*\.parquet"):
            reviews.Reviews().default_folder("text", PARAMS | {"dataset": "org/empty", "revision": "main"})
        hub.add_repository("org/half", "dataset", files={name: files[name]})
        with pytest.raises(ValueError, match="plain_text has tables of test: expected those of train and test"):
            load_benchmark("lra", "text", dataset="org/half", cache_dir=cache)
