"""Rows of files of all formats and encodings, and what is said of files that cannot be read."""

import gzip
import json
import logging
import re
from pathlib import Path

import pytest

from hf_recurrent.data.reading import Reading, read_rows
from support.own_data import task_on, write_file

ROWS = [
    {"text": "plain", "label": "good"},
    {"text": 'with "quotes", a comma', "label": "bad"},
    {"text": "two\nlines, é \u2028 \U0001f600", "label": ""},
]
NAMES = ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.ndjson", "a.parquet", "A.CSV", "a.csv.gz", "a.jsonl.gz"]


def read(path, **options):
    return list(read_rows(path, Reading(**options)))


def pack(path):
    Path(path).write_bytes(gzip.compress(Path(path).read_bytes()))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_format(name, tmp_path):
    path = write_file(tmp_path / name.removesuffix(".gz"), ROWS)
    path = pack(Path(path).rename(tmp_path / name)) if name.endswith(".gz") else path
    assert read(path) == ROWS
    assert read(path, streaming=True) == ROWS


def test_text_has_a_row_for_each_line(write):
    path = write("a.txt", "first\r\n\r\n  third, \u2028 'quoted\"  \nlast")
    lines = ["first", "", "  third, \u2028 'quoted\"  ", "last"]
    assert read(path) == [{"text": line} for line in lines]


def test_values_of_json_keep_their_types(write):
    rows = [{"a": 1, "b": None}, {"a": 2, "c": {"d": [1.5, 2.0]}}, {"b": [], "a": 3}]
    found = read(write("a.json", "\n\n".join(map(json.dumps, rows))))
    assert [{name: value for name, value in row.items() if value is not None} for row in found] == [
        {"a": 1},
        *rows[1:],
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "utf-16-le", "shift_jis"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
def test_encodings(name, encoding, write):
    texts = ["ein Wort", "Ende"] if encoding == "shift_jis" else ["größer", "Ende"]
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    content = {"a.csv": "\n".join(["text", *texts]), "a.txt": "\n".join(texts), "a.jsonl": "\n".join(rows)}
    path = write(name, content.get(name, f"[{','.join(rows)}]"), encoding)
    given = "utf-8" if encoding == "utf-8-sig" else encoding
    assert [row["text"] for row in read(path, encoding=given)] == texts
    if encoding == "utf-8-sig":
        assert [row["text"] for row in read(path, encoding="UTF8")] == texts


def test_the_same_bytes_in_another_encoding_are_other_texts(write):
    path = write("a.csv", "text\ncaf\xe9 \x80\n", "latin-1")
    assert [read(path, encoding=name)[0]["text"][-1] for name in ("latin-1", "cp1252")] == ["\x80", "\u20ac"]


BROKEN = [
    ("a.csv", "a,b\n1,2,3\n3,4\n5,6,7\n7,8\n", 2, "line 2 has 3 values, and the header 2 columns"),
    ("a.csv", "a,b\n1,2\n3,4,5\n7,8\n", 2, "line 3 has 3 values"),
    ("a.tsv", b"a\tb\n1\t2\n\xff\t3\n", None, "byte 0xff is not utf-8: pass the file's encoding"),
    ("a.jsonl", '{"a": 1}\n{"a": \n"x"\n{"a": 2}', 2, "line 2 is no JSON"),
    ("a.jsonl", '{"a": 1}\n' + "[" * 100000 + "\n", 1, "line 2 is no JSON"),
    ("a.jsonl", '{"a": 1}\n{"a": "\\ud83d"}\n{"a": "\\ud83d\\ude00"}\n', 2, "line 2 is no JSON"),
    ("a.json", '[\n{"a": 1},\n{"a": }]', None, "it is no JSON (Expecting value: line 3"),
    ("a.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n', None, "byte 0xe9 is not utf-8"),
    ("a.txt", b"a\n\xe9\nb\n", None, "byte 0xe9 is not utf-8"),
]


@pytest.mark.parametrize(("name", "content", "kept", "reason"), BROKEN)
def test_broken_rows(name, content, kept, reason, write):
    path = write(name, content)
    with pytest.raises(ValueError, match=rf"^{re.escape(name)}: .*") as raised:
        read(path)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    if kept is None:
        return
    assert "--on_error skip" in str(raised.value)
    with pytest.warns(UserWarning, match=rf"{name}: \d broken rows? w(as|ere) left out"):
        assert len(read(path, on_error="skip")) == kept


REFUSED = [
    ("a.csv", "", "it is empty: the first line should name the columns"),
    ("a.csv", "a,b,a\n", "the columns 'a' are there more than once"),
    ("a.csv", "text;label\nx;1\n", "the only column is 'text;label': pass --delimiter ';'"),
    ("a.csv", "text\tlabel\nx\t1\n", r"pass --delimiter '\t'"),
    ("a.tsv", "text,label\nx,1\n", "the only column is 'text,label': pass --delimiter ','"),
    ("a.csv", "text\nx\n".encode("utf-16"), "byte 0xff is not utf-8: pass the file's encoding"),
    ("a.jsonl", "\n \n", "it holds no rows"),
    ("a.jsonl", "3\n", "line 1 is no JSON (3 is no object)"),
    ("a.json", "[]", "it holds no rows"),
    ("a.json", b'[\n{"a": "\xe9"}]', "byte 0xe9 is not utf-8"),
    ("a.parquet", "PAR1 and no table", "a.parquet: "),
    ("a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 100000)[:-50], "a.csv.gz: "),
    ("a.xlsx", "", "has no known format: its name should end in one of .csv, .tsv"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_refused_files(name, content, message, write):
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        read(write(name, content))
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_index_as_pandas_writes_it(write):
    assert read(write("a.csv", ",text\n0,x\n")) == [{"column 1": "0", "text": "x"}]


def test_a_value_longer_than_the_csv_module_takes(write):
    text = "x" * 300_000
    assert read(write("a.csv", f"text\n{text}\n")) == [{"text": text}]


def test_places_that_are_no_file(write, tmp_path):
    write("train.csv", ROWS)
    for name, message in {
        "trian.csv": r"trian\.csv does not exist; did you mean train\.csv\?",
        "": "is a folder: name one file",
        "no/such.csv": "does not exist",
    }.items():
        with pytest.raises(ValueError, match=message):
            read(tmp_path / name)


def test_the_same_bytes_under_another_name_have_other_columns(write):
    content = "a,b\tc\n1,2\t3\n"
    assert read(write("x.csv", content)) == [{"a": "1", "b\tc": "2\t3"}]
    assert read(write("x.tsv", content)) == [{"a,b": "1,2", "c": "3"}]
    assert read(write("x.csv.tsv", content)) == [{"a,b": "1,2", "c": "3"}]
    packed = gzip.compress(b"sep=;\na;b\n1;2\n")
    assert read(write("x.csv.gz", packed)) == read(write("my.csv.gz", packed)) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("1,2\n\n   \n3,4\n\n", ["12", "34"]),
        ("1\n3,4\n", ["1", "34"]),
        (",\n1,2", ["", "12"]),
        ("x,2\n\x1a,\n3,4\n", ["x2", "\x1a", "34"]),
        ('"x\r\ny",2\nx"y,3\n', ["x\r\ny2", 'x"y3']),
        ("NA,nan\n 1 , 2 \n", ["NAnan", " 1  2 "]),
    ],
)
def test_rows_that_are_blank_short_or_odd(rows, expected, on_error, write):
    found = read(write("a.csv", f"a,b\n{rows}"), on_error=on_error)
    assert [row["a"] + row["b"] for row in found] == expected


@pytest.mark.parametrize("rows", ["x\n\x1a\ny\n", 'x\n\n \n\x1a\n"y"'])
def test_a_control_character_is_a_row(rows, write):
    assert [row["a"] for row in read(write("a.csv", f"a\n{rows}"))] == ["x", "\x1a", "y"]


def test_a_delimiter_after_the_last_value(write):
    path = write("a.csv", "a,b\n1,2,\n\n3,4\n5,6,,\n")
    with pytest.raises(ValueError, match="line 2 has 3 values, and the header 2 columns"):
        read(path)
    with pytest.warns(UserWarning, match=r"1 broken row was left out: line 5 has 4 values"):
        assert read(path, on_error="skip") == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_the_first_row_after_a_blank_line_has_too_many_values(write):
    with pytest.raises(ValueError, match="line 3 has 3 values, and the header 2 columns"):
        read(write("a.csv", "a,b\n\n1,2,3\n3,4\n"))


def test_reading_leaves_the_logger_as_it_is(write):
    path, logger = write("a.jsonl", '{"a": 1}\n' * 3), logging.getLogger("datasets")
    level = logger.level
    task = task_on("text-generation", path, streaming=True, text_column="a")
    rows = task.documents.each_row("train")
    assert next(rows) == {"a": 1}
    assert logger.level == level


def test_sentences_after_marks_of_documents(write):
    found = read(write("a.conll", " -DOCSTART- -X- O\n\nEU B-ORG\n\n-DOCSTART-\nBonn B-LOC\n"))
    assert found == [{"tokens": ["EU"], "tags": ["B-ORG"]}, {"tokens": ["Bonn"], "tags": ["B-LOC"]}]
