"""Corpora in the form that data sets on the Hub have, from a folder and from a loopback Hub through the real client."""

import json

import pytest
from huggingface_hub import HfApi
from long_document_files import NAME, ONE_SPLIT, book, paper, source_file, texts, write_files, write_table

from hf_recurrent.benchmarks import load_benchmark
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub

BOOKS = {
    split: [book(10 * i + j, f"{split} {i} {j} é\r\n") for i in range(3) for j in range(2)] for split in ("train",)
}
BOOKS |= {"validation": [book(90, "v")], "test": [book(91, "t"), book(92, "u", "Other")]}


def load(config, data_dir, cache, **params):
    return load_benchmark(NAME, config, data_dir=data_dir, cache_dir=cache, **params)


def write_books(folder):
    """As emozilla/pg19 has them: Parquet in several files, by split, and a card."""
    write_table(folder / "data/train-00000-of-00002.parquet", BOOKS["train"][:4])
    write_table(folder / "data/train-00001-of-00002.parquet", BOOKS["train"][4:])
    write_table(folder / "data/validation-00000-of-00001.parquet", BOOKS["validation"])
    write_table(folder / "data/test-00000-of-00001.parquet", BOOKS["test"])
    return write_files(folder, {"README.md": "---\nlicense: apache-2.0\n---\n"})


def named(rows):
    return {f"{row['url'].rsplit('/', 1)[1]} {row['short_book_title']}": row["text"] for row in rows}


def test_books(tmp_path, cache):
    splits = load("pg19", write_books(tmp_path / "books"), cache)
    assert {name: texts(rows) for name, rows in splits.items()} == {name: named(rows) for name, rows in BOOKS.items()}
    assert "92 Other" in splits["test"]["name"][:]
    parallel = load("pg19", tmp_path / "books", tmp_path / "other", num_proc=2)
    assert parallel["train"].to_list() == splits["train"].to_list()


@pytest.mark.parametrize("encoded", [False, True])
def test_papers_are_those_of_arxiv(encoded, tmp_path, cache):
    """As hoskinson-center/proof-pile has them; a copy may hold `meta` as JSON."""
    rows = [
        paper("math/1.tex", "\\a"),
        paper("wiki", "no", "wiki"),
        paper("b", "no", "books"),
        paper("math/2.tex", "\\b"),
        paper("math/0.tex", ""),
    ]
    rows = [row | {"meta": json.dumps(row["meta"])} for row in rows] if encoded else rows
    for name, part in (
        ("train/proofpile_train_0", rows),
        ("dev/proofpile_dev", rows[:2]),
        ("test/proofpile_test", rows[2:]),
    ):
        write_table(tmp_path / "in" / f"{name}.jsonl.gz", part)
    splits = load("arxiv_math", tmp_path / "in", cache)
    assert {name: texts(found) for name, found in splits.items()} == {
        # one without a text is no document
        "train": {"math/1.tex": "\\a", "math/2.tex": "\\b"},
        "validation": {"math/1.tex": "\\a"},
        "test": {"math/2.tex": "\\b"},
    }


FILES = [
    source_file("z/one", "src/b.py", "b"),
    source_file("a/two", "x.py", "x\x00\n"),
    source_file("z/one", "a.py", "a"),
    source_file("z/one", "src/a.py", "é\n"),
    source_file("a/two", "w.py", ""),
]


@pytest.mark.parametrize("name", ["file-{}.json.gz", "data/train-{}.parquet", "{}.jsonl"])
@pytest.mark.parametrize("column", ["content", "code"])
def test_repositories_lie_in_any_table(name, column, tmp_path, cache):
    """codeparrot/codeparrot-clean says `content`, codeparrot/github-code says `code`."""
    rows = [{**{key: row[key] for key in ("repo_name", "path")}, column: row["content"]} for row in FILES]
    write_table(tmp_path / "in" / name.format(1), rows[:3])
    write_table(tmp_path / "in" / name.format(2), rows[3:])
    found = load("github", tmp_path / "in", cache, **ONE_SPLIT)["train"]
    assert texts(found) == {"a/two": "x\x00\n", "z/one": "a\né\nb"}


def test_repositories_are_divided_whole(tmp_path, cache):
    rows = [source_file(f"org/{i % 50}", f"{i}.py", f"{i}\n") for i in range(200)]
    write_table(tmp_path / "in/train.jsonl", rows)
    splits = load("github", tmp_path / "in", cache, validation_share=0.2, test_share=0.2)
    assert list(splits) == ["train", "validation", "test"]
    found = [texts(rows) for rows in splits.values()]
    assert sum(map(len, found)) == 50
    merged = {name: text for part in found for name, text in part.items()}
    paths = {i: sorted(f"{j}.py" for j in range(i, 200, 50)) for i in range(50)}
    assert merged == {f"org/{i}": "".join(f"{path[:-3]}\n" for path in paths[i]) for i in range(50)}


def test_a_data_set_that_is_only_a_test_split_stays_one(tmp_path, cache):
    write_table(tmp_path / "in/data/test-00000-of-00001.parquet", BOOKS["test"])
    assert list(load("pg19", tmp_path / "in", cache)) == ["test"]


def test_text_files_of_a_corpus(tmp_path, cache):
    """As PG19 was published: a folder for each split; what is no text beside them is left alone."""
    write_files(tmp_path / "in", {"train/1.txt": "a", "test/2.txt": "b", "metadata.csv": "x"})
    splits = load("pg19", tmp_path / "in", cache)
    assert {name: texts(rows) for name, rows in splits.items()} == {"train": {"1.txt": "a"}, "test": {"2.txt": "b"}}
    write_files(tmp_path / "tex", {"1.tex": "a", "1.bib": "b"})
    assert texts(load("arxiv_math", tmp_path / "tex", cache, **ONE_SPLIT)["train"]) == {"1.tex": "a"}


# what the client library does when it uploads
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_from_the_hub(tmp_path, cache):
    folder = write_books(tmp_path / "books")
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        api = HfApi(hub.endpoint, token=hub.token)
        api.create_repo("org/books", repo_type="dataset")
        first = api.upload_folder(folder_path=folder, repo_id="org/books", repo_type="dataset").oid
        splits = load_benchmark(NAME, "pg19", dataset="org/books", cache_dir=cache)
        assert {name: texts(rows) for name, rows in splits.items()} == {
            name: named(rows) for name, rows in BOOKS.items()
        }
        assert set(splits["test"]["source"]) == {f"org/books@{first}"}
        write_table(tmp_path / "new.parquet", [book(93, "new")])
        api.upload_file(
            path_or_fileobj=tmp_path / "new.parquet",
            path_in_repo="data/test-00000-of-00001.parquet",
            repo_id="org/books",
            repo_type="dataset",
        )
        newer = load_benchmark(NAME, "pg19", dataset="org/books", split="test", cache_dir=cache)
        assert newer["text"][:] == ["new"]
        older = load_benchmark(NAME, "pg19", dataset="org/books", revision=first, split="test", cache_dir=cache)
        assert older.to_list() == splits["test"].to_list()
        with pytest.raises(
            ValueError, match=r"dataset='org/none', revision='main' cannot be downloaded from the Hub(.|\n)*data_dir"
        ):
            load_benchmark(NAME, "pg19", dataset="org/none", cache_dir=cache)
        with pytest.raises(ValueError, match=r"Repo id must .*'not a name'"):
            load_benchmark(NAME, "pg19", dataset="not a name", cache_dir=cache)
        api.create_repo("org/empty", repo_type="dataset")
        with pytest.raises(ValueError, match=r"dataset='org/empty' has no files that end with \.parquet"):
            load_benchmark(NAME, "pg19", dataset="org/empty", cache_dir=cache)
        assert hub.unknown == []


def damaged(path, rows):
    write_table(path, rows)
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("config", "name", "write", "rows", "message"),
    [
        ("pg19", "a.parquet", write_table, [{"text": "x"}], "expected a column short_book_title, found text"),
        (
            "github",
            "a.jsonl",
            write_table,
            [{"repo_name": "x", "path": "y"}],
            "expected a column content or code, found",
        ),
        ("arxiv_math", "a.jsonl", write_table, [{"text": "x", "meta": "{"}], "row 1: expected in column 'meta'"),
        ("arxiv_math", "a.jsonl", write_table, [{"text": "x", "meta": {}}], "row 1: expected in column 'meta'"),
        ("pg19", "a.jsonl", write_table, [book(1, "x"), book(2, 7)], "row 2: expected text in column 'text', got 7"),
        ("pg19", "a.jsonl", write_table, [[1]], "the text after line 0 cannot be read as JSON lines"),
        ("pg19", "a.parquet", damaged, [book(1, "x")], "cannot be read as Parquet"),
        ("pg19", "a.jsonl.gz", damaged, [book(i, "x" * i) for i in range(99)], "cannot be read as JSON lines"),
        ("pg19", "a.jsonl", damaged, [book(1, "x"), book(2, "y")], "the text after line 1 cannot be read as JSON"),
    ],
)
def test_bad_tables(config, name, write, rows, message, tmp_path, cache):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name, rows)
    with pytest.raises(ValueError, match=message) as caught:
        load(config, tmp_path / "in", cache, **ONE_SPLIT)
    assert name in str(caught.value)


def test_tables_of_a_split_and_of_none(tmp_path, cache):
    for name in ("train-1.parquet", "more.parquet"):
        write_table(tmp_path / "in" / name, [book(1, "x")])
    with pytest.raises(ValueError, match=r"the path of more\.parquet names no split"):
        load("pg19", tmp_path / "in", cache)
