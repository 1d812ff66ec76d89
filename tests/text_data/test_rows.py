"""Rows of files of all formats, and what is said of files that are broken."""

import csv
import gzip
import json
import re
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest

from hf_recurrent.text_data.rows import Rows

ROWS = [
    {"text": "plain", "label": "good"},
    {"text": 'with "quotes", a comma', "label": "bad"},
    {"text": "two\nlines, é \u2028 \U0001f600", "label": ""},
]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


def write_table(path, rows=ROWS, delimiter=",", newline="\r\n", encoding="utf-8"):
    with open(path, "w", newline="", encoding=encoding) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator=newline)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_rows(path, rows=ROWS):
    """A file of rows, in the format that its name ends in."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".csv") or name.endswith(".tsv"):
        write_table(path, rows, "\t" if name.endswith(".tsv") else ",")
    elif name.endswith(".parquet"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    elif name.endswith(".json"):
        write(path, json.dumps(rows, indent=1))
    else:
        write(path, "".join(json.dumps(row) + "\n" for row in rows))
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


NAMES = ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.ndjson", "a.parquet", "A.CSV", "a.csv.gz", "a.jsonl.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_format(name, tmp_path):
    rows = Rows(write_rows(tmp_path / name.lower()).rename(tmp_path / name))
    assert rows.columns == ["text", "label"]
    assert list(rows) == ROWS
    assert list(rows) == ROWS, "read a second time"
    assert rows.skipped == []


def test_text_has_a_row_for_each_line(tmp_path):
    path = write(tmp_path / "a.txt", "first\r\n\r\n  third, \u2028 'quoted\"  \nlast")
    rows = Rows(path)
    assert rows.columns == ["text"]
    assert [row["text"] for row in rows] == ["first", "", "  third, \u2028 'quoted\"  ", "last"]
    assert [number for number, _ in rows.numbered()] == [1, 2, 3, 4]


def test_json_that_is_lines(tmp_path):
    path = write(tmp_path / "a.json", '\n{"text": 1}\n\n{"text": 2}')
    assert list(Rows(path)) == [{"text": 1}, {"text": 2}]


def test_values_of_json_keep_their_types(tmp_path):
    rows = [{"a": 1, "b": None}, {"a": "x", "c": {"d": [1.5, True]}}, {"b": [], "a": 2.0}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    read = Rows(path)
    assert read.columns == ["a", "b"]
    assert list(read) == [{"a": 1, "b": None}, {"a": "x", "b": None, "c": {"d": [1.5, True]}}, {"a": 2.0, "b": []}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
def test_byte_order_mark(name, tmp_path):
    path = tmp_path / name
    write(path, "text\nx\n") if name.endswith("txt") else write_rows(path)
    expected = list(Rows(path))
    write(path, b"\xef\xbb\xbf" + path.read_bytes())
    assert list(Rows(path)) == expected
    assert list(Rows(path, encoding="UTF8")) == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "shift_jis"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
def test_encodings(name, encoding, tmp_path):
    texts = ["ein Wort", "Ende"] if encoding == "shift_jis" else ["größer", "Ende"]
    if name == "a.txt":
        text = "\n".join(texts)
    elif name == "a.csv":
        text = "\n".join(["text", *texts])
    else:
        rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
        text = "\n".join(rows) if name == "a.jsonl" else f"[{','.join(rows)}]"
    path = write(tmp_path / name, text, encoding)
    assert [row["text"] for row in Rows(path, encoding=encoding)] == texts


def test_line_numbers_count_lines_within_quotes(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\r\n"1\r\n2",x\r\n\r\ny,"z\n\n"\r\nlast,one\r\n')
    assert list(Rows(path).numbered()) == [
        (2, {"a": "1\r\n2", "b": "x"}),
        (5, {"a": "y", "b": "z\n\n"}),
        (8, {"a": "last", "b": "one"}),
    ]


BROKEN = [
    ("a.csv", "a,b\n1,2\n3\n4,5,6\n7,8\n", [3, 4], "it has 1 values, and the header 2 columns"),
    ("a.csv", 'a,b\n1,2\n"3"x,4\n5,6\n', [3], "',' expected after '\"'"),
    ("a.csv", 'a,b\n1,2\n"3,4\n5,6\n7,8\n', [3], "unexpected end of data: quote a value that holds quotes"),
    ("a.csv", 'a,b\n1,2\n"3\n4\0",5\n5,6\n', [4], "it holds a byte of zero, which is no text in utf-8; pass the"),
    ("a.csv", b'a,b\n1,2\n"3\n\n4\xe9",5\n5,6\n', [5], "the byte 0xE9 is not utf-8; pass the file's encoding, such as"),
    ("a.tsv", b"a\tb\n1\t2\n\xff\t3\n", [3], "the byte 0xFF is not utf-8"),
    ("a.jsonl", '{"a": 1}\n{"a": \n[1]\n"x"\n{"a": 2}', [2, 3, 4], "it is not JSON: Expecting value"),
    ("a.jsonl", '{"a": 1}\n{"a": "\\ud83d"}\n{"a": "\\ud83d\\ude00"}\n', [2], "it holds half of a surrogate pair"),
    ("a.jsonl", '{"a": 1}\n' + "[" * 100000 + "\n", [2], "it is not JSON"),
    ("a.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n', [2], "the byte 0xE9 is not utf-8"),
    ("a.json", '[{"a": 1}, {"a": "\\ud83d"}]', [2], "it holds half of a surrogate pair"),
    ("a.txt", b"a\n\xe9\nb\n\0", [2, 4], "the byte 0xE9 is not utf-8"),
    ("a.txt", b"a\nb\n\0\0c" + b"\n", [3], "it holds a byte of zero"),
]


@pytest.mark.parametrize(("name", "content", "numbers", "reason"), BROKEN)
def test_broken_rows(name, content, numbers, reason, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=re.escape(f"{path}, ")) as raised:
        list(Rows(path))
    assert f"{'row' if name == 'a.json' else 'line'} {numbers[0]}: " in str(raised.value)
    assert reason in str(raised.value)
    assert "(--on-error skip, in Python on_error='skip', leaves out what is broken)" in str(raised.value)
    rows = Rows(path, on_error="skip")
    whole = list(rows)
    assert [number for number, _ in rows.skipped] == numbers
    assert reason in rows.skipped[0][1]
    kept = [next(iter(row.values())) for row in whole]
    assert kept, "rows that are whole stay"
    list(rows)
    assert len(rows.skipped) == len(numbers), "counted anew"


REFUSED = [
    ("a.csv", "", "the file is empty: expected a header line"),
    ("a.csv", "a,b,a\n", "line 1: the columns a are there more than once"),
    ("a.csv", "a,,b\n1,2,3\n", "line 1: column 2 has no name"),
    ("a.csv", "text;label\nx;1\n", "line 1: the only column is 'text;label', with ';' within: put commas between"),
    ("a.csv", "text\tlabel\nx\t1\n", "'text\\tlabel', with '\\t' within: let the name of such a file end in .tsv;"),
    ("a.tsv", "text,label\nx,1\n", "'text,label', with ',' within: let the name of such a file end in .csv;"),
    ("a.csv", "text\nx\n".encode("utf-16"), "line 1: the byte 0xFF is not utf-8; pass the file's encoding"),
    ("a.jsonl", "\n \n", "holds no rows: expected jsonl"),
    ("a.jsonl", "3\n", "line 1: it is 3: expected an object"),
    ("a.json", "[]", "holds no rows: expected json"),
    ("a.json", "[1, 2]", "expected '{' or ']', got '1, 2]'"),
    ("a.json", b'[\n{"a": "\xe9"}]', "line 2: the byte 0xE9 is not utf-8"),
    ("a.parquet", "PAR1 and no table", "cannot be read as Parquet"),
    ("a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 100000)[:-50], "is it whole?"),
    ("a.xlsx", "", "no known format: its name should end in one of .csv, .tsv"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_refused_files(name, content, message, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        list(Rows(path))
    assert str(path) in str(raised.value)


def test_index_as_pandas_writes_it(tmp_path):
    rows = Rows(write(tmp_path / "a.csv", ",text\n0,x\n"))
    assert (rows.columns, list(rows)) == (["", "text"], [{"": "0", "text": "x"}])


def test_places_that_are_no_file(tmp_path):
    write_rows(tmp_path / "train.csv")
    with pytest.raises(ValueError, match=r"trian\.csv does not exist; did you mean train\.csv\?"):
        Rows(tmp_path / "trian.csv")
    with pytest.raises(ValueError, match=r"is a folder: name one file; it holds train\.csv"):
        Rows(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        Rows(tmp_path / "no" / "such.csv")
    with pytest.raises(ValueError, match="/dev/null is no file"):
        Rows("/dev/null")


def test_arguments(tmp_path):
    path = write_rows(tmp_path / "a.csv")
    assert list(Rows(path.rename(tmp_path / "a.data"), file_format="csv")) == ROWS
    path = write_rows(tmp_path / "a.csv")
    for options, message in [
        ({"file_format": "xlsx"}, "file_format is 'xlsx': expected one of csv"),
        ({"encoding": "utf-99"}, "encoding is 'utf-99'"),
        ({"encoding": "rot13"}, "encoding is 'rot13'"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            Rows(path, **options)


def test_a_line_longer_than_the_csv_module_takes(tmp_path):
    text = "x" * 300_000
    assert list(Rows(write(tmp_path / "a.csv", f"text\n{text}\n"))) == [{"text": text}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.txt"])
def test_memory_is_flat(name, tmp_path):
    rows = [{"text": f"{number} " + "word " * 100} for number in range(5000)]
    path = tmp_path / name
    if name == "a.txt":
        write(path, "\n".join(row["text"] for row in rows))
    elif name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=500)
    else:
        write_rows(path, rows)
    read = Rows(path)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read) == len(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20, "the file has 2.5 MB"
