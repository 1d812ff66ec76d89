"""Users' own texts: folders and zip files of them, and repositories."""

import pytest
from long_document_files import NAME, ONE_SPLIT, texts, write_files, write_zip

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.long_documents.documents import joined, split_of

# line ends, a byte order mark, a zero byte, other scripts: all of it comes back as it is
ODD = "\ufeffa\r\nb\rc\n\x00 é 漢字 \U0001f600\u2028d"
FILES = {"b/two.txt": "two", "a.txt": ODD, "b/one.txt": "one one\n", "z.md": "no text file", "b/empty.txt": ""}
EXPECTED = {"a.txt": ODD, "b/one.txt": "one one\n", "b/two.txt": "two"}
HIDDEN = {".git/a.txt": "x", "b/.hidden.txt": "x", "__MACOSX/a.txt": "x"}


def load(config, data_dir, cache, **params):
    return load_benchmark(NAME, config, data_dir=data_dir, cache_dir=cache, **params)


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_each_text_file_is_a_document(kind, tmp_path, cache):
    files = FILES | HIDDEN
    place = write_files(tmp_path / "in", files) if kind == "folder" else write_zip(tmp_path / "in.zip", files)
    rows = load("folder", place, cache, **ONE_SPLIT)["train"]
    assert texts(rows) == EXPECTED
    # in the order of their names
    assert rows["name"][:] == sorted(EXPECTED)
    assert set(rows["source"]) == {place.name}
    assert rows[0]["num_bytes"] == len(ODD.encode())
    assert rows[0]["num_characters"] == len(ODD)


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_folders_of_splits_are_splits(kind, tmp_path, cache):
    files = {"test/a.txt": "test", "train/a.txt": "train", "train/b/c.txt": "more", "notes.md": "x"}
    if kind == "folder":
        place = write_files(tmp_path / "in", files)
    else:
        # many archives have all they hold in one folder
        place = write_zip(tmp_path / "in.zip", {f"corpus/{name}": text for name, text in files.items()})
    splits = load("folder", place, cache)
    assert {name: texts(rows) for name, rows in splits.items()} == {
        "train": {"a.txt": "train", "b/c.txt": "more"},
        "test": {"a.txt": "test"},
    }


def test_the_only_folder_of_an_archive_may_be_a_split(tmp_path, cache):
    place = write_zip(tmp_path / "in.zip", {"test/a.txt": "test", "test/b.txt": "more"})
    assert {name: texts(rows) for name, rows in load("folder", place, cache).items()} == {
        "test": {"a.txt": "test", "b.txt": "more"}
    }


def test_the_split_of_a_name_follows_its_shares():
    names = [str(i) for i in range(4000)]
    params = {"seed": 0, "validation_share": 0.2, "test_share": 0.3}
    found = [split_of(name, params) for name in names]
    for split, share in (("train", 0.5), ("validation", 0.2), ("test", 0.3)):
        # five standard deviations
        assert found.count(split) / len(names) == pytest.approx(share, abs=0.04)
    assert found != [split_of(name, params | {"seed": 1}) for name in names]
    assert {split_of(name, {"seed": 0, "validation_share": 0.0, "test_share": 1.0}) for name in names} == {"test"}


def test_changed_files_are_read_again(tmp_path, cache):
    write_files(tmp_path, {"in/a.txt": "old"})
    assert load("folder", tmp_path / "in", cache, **ONE_SPLIT)["train"]["text"][:] == ["old"]
    write_files(tmp_path, {"in/a.txt": "new"})
    assert load("folder", tmp_path / "in", cache, **ONE_SPLIT)["train"]["text"][:] == ["new"]


def test_patterns_and_encodings(tmp_path, cache):
    write_files(
        tmp_path / "in", {"a.TXT": "upper", "b.md": "é".encode("latin-1"), "c.rst": "caf\xe9".encode("latin-1")}
    )
    rows = load("folder", tmp_path / "in", cache, patterns=["*.md", "c.*"], encoding="latin-1", **ONE_SPLIT)["train"]
    assert texts(rows) == {"b.md": "é", "c.rst": "café"}
    assert rows["num_bytes"][:] == [2, 5]


def test_a_repository_is_all_its_files_in_order(tmp_path, cache):
    files = {
        "one/b.py": "b",
        "one/a/z.c": "z\n",
        "one/README": "read me",
        "one/logo.png": b"\x89PNG\x00\x00",
        "one/.git/config": "x",
        "two/x.md": "two",
        "binary/a.bin": b"\x00",
    }
    place = write_files(tmp_path / "in", files)
    rows = load("github", place, cache, **ONE_SPLIT)["train"]
    # binary files are no text; a newline separates files where there is none
    assert texts(rows) == {"one": "read me\nz\nb", "two": "two"}


def test_an_archive_of_one_repository_is_one_document(tmp_path, cache):
    """As GitHub makes them: what lies in the only folder decides whether that is the repository."""
    files = {"README.md": "read me", "src/a.py": "a", "test/b.py": "b"}
    place = write_zip(tmp_path / "one.zip", {f"one-main/{name}": text for name, text in files.items()})
    assert texts(load("github", place, cache, **ONE_SPLIT)["train"]) == {"one-main": "read me\na\nb"}
    rows = load("github", place, cache, patterns=["*.py"], **ONE_SPLIT)["train"]
    assert texts(rows) == {"one-main": "a\nb"}
    place = write_zip(tmp_path / "two.zip", {"corpus/one/a.py": "a", "corpus/two/src/b.py": "b"})
    assert texts(load("github", place, cache, **ONE_SPLIT)["train"]) == {"one": "a", "two": "b"}
    place = write_zip(tmp_path / "splits.zip", {"corpus/train/one/a.py": "a", "corpus/LICENSE": "x"})
    assert texts(load("github", place, cache, patterns=["*.py"])["train"]) == {"one": "a"}


def test_where_newlines_are_put():
    assert joined([]) == ""
    assert joined(["", "a", "", "b\n", "c", ""]) == "a\nb\nc"


def encrypted(path):
    """What an archive with a password looks like from outside."""
    write_zip(path, {"a.txt": "x"})
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    path.write_bytes(content)
    return path


def cut(path):
    write_zip(path, {"a.txt": "some text " * 500})
    path.write_bytes(path.read_bytes()[:-30])
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "expected a folder or a zip file"),
        (lambda path: write_files(path.parent, {path.name: "text"}) / path.name, "expected a folder or a zip file"),
        (lambda path: write_zip(path, {}), "no text in it: 0 of 0 files match .*found: no files"),
        (lambda path: path.mkdir() or path, "no text in it: 0 of 0 files match"),
        (lambda path: write_zip(path, {"a.md": "x", "LICENSE": "y"}), r"0 of 2 files match .*found: .md, LICENSE"),
        (lambda path: write_zip(path, {"a.txt": ""}), "1 of 1 files match .* none of them has text"),
        (encrypted, "a.txt cannot be unpacked .* is encrypted"),
        (cut, "expected a folder or a zip file"),
        (
            lambda path: write_zip(path, {"b.txt": "x", "a.txt": b"good caf\xe9"}),
            r"a.txt: byte 8 \(0xe9\) is not utf-8: convert the file, leave it out by patterns=, or name its encoding",
        ),
        (
            lambda path: write_zip(path, {"train/a.txt": "x", "b.txt": "y", "c/d.txt": "z"}),
            r"folders for splits \(train\), but b.txt and 1 more text files lie outside",
        ),
        (
            lambda path: write_zip(path, {"train/a.txt": "x", "test/b.md": "y"}),
            "the folder test has no text that matches",
        ),
    ],
)
def test_bad_folders_and_archives(make, message, tmp_path, cache):
    place = make(tmp_path / "corpus.zip")
    with pytest.raises(ValueError, match=message) as caught:
        load("folder", place, cache, **ONE_SPLIT)
    assert "corpus.zip" in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("config", "kwargs", "message"),
    [
        ("folder", {}, "config 'folder' reads your own files: give data_dir, a folder or zip file"),
        ("folder", {"data_dir": "in"}, "none of 3 documents falls into the (validation|test) split"),
        ("folder", {"data_dir": "in", "encoding": "hex"}, "encoding='hex': expected the name of a text encoding"),
        ("folder", {"data_dir": "in", "encoding": "none such"}, "encoding='none such': expected the name of"),
        ("folder", {"data_dir": "in", "patterns": []}, r"patterns=\[\]: expected one or more patterns"),
        ("folder", {"data_dir": "in", "dataset": "a/b"}, "unknown parameter 'dataset'.*with data_dir"),
        ("github", {"data_dir": "in", **ONE_SPLIT}, "a.txt is in no folder: a repository is a folder"),
    ],
)
def test_bad_arguments(tmp_path, cache, monkeypatch, config, kwargs, message):
    monkeypatch.chdir(write_files(tmp_path / "here", {f"in/{name}": "text" for name in ("a.txt", "b.txt", "c.txt")}))
    with pytest.raises(ValueError, match=message):
        load_benchmark(NAME, config, cache_dir=cache, **kwargs)
