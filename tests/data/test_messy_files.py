"""Files of kinds that people post: read right, or refused in one line that says what to do."""

import json

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from support.own_data import classes, rows_of, task_on


def half(tag, path):
    """The examples of a task, half of which are held out."""
    return task_on(tag, path, validation_split_percentage=50).source


MERGED = 'sentence\tlabel\ngood one\t1\n"he said no\t0\nfine film\t1\ndull film\t0\nand left"\t1\nwarm\t0\ncold\t1\n'


@pytest.mark.parametrize("name", ["reviews.tsv", "reviews.csv"])
def test_a_quote_that_closes_in_another_row_is_refused(name, write):
    text = MERGED if name.endswith("tsv") else MERGED.replace("\t", ",")
    path = write(name, text)
    with pytest.raises(
        ValueError, match=r"row 2: a line of the quoted value of 'sentence'.*looks like a row: .*--quoting none"
    ):
        classes(path)
    assert len(rows_of(classes(path, quoting="none"))) == 7


def test_quoted_line_breaks_and_delimiters_are_read(write):
    rows = [f'"first, line {i}\nsecond, line",{i % 2}' for i in range(6)]
    found = rows_of(classes(write("a.csv", "text,label\n" + "\n".join(rows))))
    assert sorted(row["text"] for row in found)[0] == "first, line 0\nsecond, line"


@pytest.mark.parametrize("names", [(), ("joy", "anger", "fear")])
def test_lists_of_zeros_and_ones_are_several_labels(names, write):
    hot = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 0]]
    path = write("a.jsonl", [{"text": f"t {i}", "labels": hot[i % 4]} for i in range(12)])
    found = classes(path, label_list=list(names))
    assert found.labels.problem_type == "multi_label_classification"
    assert found.label_names == (names or ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert {tuple(row["label"]) for row in rows_of(found)} == {tuple(map(float, row)) for row in hot}


def test_columns_of_zeros_and_ones_are_several_labels(write):
    lines = [f"t {i},{i % 2},{i % 3 == 0:d},0" for i in range(12)]
    path = write("a.csv", "text,joy,anger,fear\n" + "\n".join(lines))
    found = classes(path, label_column=["joy", "anger", "fear"])
    assert found.label_names == ("joy", "anger", "fear")
    assert {row["text"]: row["label"] for row in rows_of(found)}["t 3"] == [1.0, 1.0, 0.0]
    bad = write("b.csv", "text,joy,anger\na,1,2\nb,0,1\n")
    with pytest.raises(ValueError, match=r"row 1: anger is '2': expected 0 or 1"):
        classes(bad, label_column=["joy", "anger"])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["x"] * 8, "all training examples have the label x: there is nothing to learn"),
        ([["a", "b"]] * 8, "all training examples have the same labels"),
        ([[1, 0]] * 8, "all training examples have the same labels"),
        ([0.5] * 8, "all training examples have the label 0.5"),
    ],
)
def test_labels_without_variation_are_refused(labels, message, write):
    path = write("a.jsonl", [{"text": f"t {i}", "label": label} for i, label in enumerate(labels)])
    with pytest.raises(ValueError, match=message):
        classes(path)


def test_minus_one_hundred_is_no_label(write):
    rows = [{"tokens": ["a", "b", "c"], "ner_tags": [i % 2, -100, 0]} for i in range(8)]
    found = half("token-classification", write("a.jsonl", rows))
    assert found.label_names == ("0", "1")
    assert all(row["label"][1] == -100 for row in rows_of(found))
    path = write("b.jsonl", [{"text": f"t {i}", "label": (0, 1, -100)[i % 3]} for i in range(12)])
    with pytest.warns(UserWarning, match=r"4 of 12 examples have no label \(-1 or -100\)"):
        assert classes(path).label_names == ("0", "1")


def test_lists_that_are_written_as_texts(write):
    lines = ["t,\"['anger', 'joy']\"", "u,\"['joy']\"", "v,[]", "w,\"['anger']\""]
    path = write("a.csv", "text,label\n" + "\n".join(lines * 2))
    assert classes(path).label_names == ("anger", "joy")
    bad = write("b.csv", "text,label\nt,['anger' joy]\nu,['joy']\n")
    with pytest.raises(
        ValueError, match=r"row 1: label is .*a list written as a text that cannot be read: .*--label_del"
    ):
        classes(bad)


def test_labels_that_look_the_same_are_one(write):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    names = [composed, decomposed, "bar"]
    found = classes(write("a.jsonl", [{"text": f"t {i}", "label": names[i % 3]} for i in range(12)]))
    assert found.label_names == ("bar", composed)


def test_delimiters(write):
    lines = [f"t {i};{i % 2}" for i in range(8)]
    path = write("a.csv", "text;label\n" + "\n".join(lines))
    with pytest.raises(ValueError, match="the only column is 'text;label': pass --delimiter ';'"):
        classes(path)
    assert len(rows_of(classes(path, delimiter=";"))) == 8
    assert len(rows_of(classes(write("b.csv", "sep=;\ntext;label\n" + "\n".join(lines))))) == 8


def test_a_label_that_tests_never_have_is_reported(tmp_path, write):
    for split, labels in {"train": ("neg", "pos", "unsup"), "test": ("neg", "pos")}.items():
        for label in labels:
            for i in range(20):
                write(f"{split}/{label}/{i}.txt", f"a film {i}")
    with pytest.warns(UserWarning, match=r"no other split has the label 'unsup' \(20 examples\): leave"):
        classes(str(tmp_path / "train"), test_file=str(tmp_path / "test"), validation_split_percentage=None)


SQUAD = {
    "data": [
        {
            "title": "Paris",
            "paragraphs": [
                {
                    "context": "Paris is in France.",
                    "qas": [
                        {"id": str(i), "question": f"Where {i}?", "answers": [{"text": "France", "answer_start": 12}]}
                        for i in range(6)
                    ],
                }
            ],
        }
    ]
}


def test_nested_squad_files_are_read(write):
    found = rows_of(half("question-answering", write("train-v1.1.json", json.dumps(SQUAD, indent=1))))
    assert len(found) == 6
    assert found[0]["answers"] == {"text": ["France"], "answer_start": [12]}


def test_conll_files_are_read(write):
    sentence = "EU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\n"
    found = half("token-classification", write("train.conll", "-DOCSTART- -X- O\n\n" + sentence * 4))
    assert found.label_names == ("B-MISC", "B-ORG", "O")
    assert rows_of(found)[0]["words"] == ["EU", "rejects", "German"]
    with pytest.raises(ValueError, match=r"train2\.conll: line 2 is 'rejects': expected a word and its tag"):
        half("token-classification", write("train2.conll", "EU B-ORG\nrejects\n"))
    with pytest.raises(ValueError, match=r"train\.txt is a text without labels: if it has CoNLL's format, .* \.conll"):
        half("token-classification", write("train.txt", sentence))


def test_texts_by_label_at_different_depths_are_refused(write, tmp_path):
    for name in ("neg/1.txt", "pos/1.txt", "pos/old/2.txt"):
        write(f"films/{name}", "a film")
    with pytest.raises(ValueError, match=r"films has texts at different depths, .*1\.txt and pos/old/2\.txt: make a"):
        classes(str(tmp_path / "films"))


def test_difficulties_have_one_type_in_all_splits(write):
    names = {"train": ("1", "2"), "validation": ("1", "2.5"), "test": ("3", "x")}
    for count, kind in ((3, str), (2, float)):
        files = {
            f"{split}_file": write(
                f"{split}{count}.csv", "text,label,hard\n" + "".join(f"t {i},{i % 2},{own[i % 2]}\n" for i in range(8))
            )
            for split, own in [*names.items()][:count]
        }
        found = classes(**files, slice_by=["hard"])
        assert {type(row["hard"]) for row in rows_of(found)} == {kind}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_change_no_text(end, write, tmp_path):
    lines = [b"a line of text number %d" % i for i in range(200)]
    task = task_on("text-generation", write("a.txt", end.join(lines) + end))
    text = "".join(document.text for document in task.documents.given("train"))
    assert text == b"\n".join(lines).decode() + "\n"
    write("docs/a.txt", end.join(lines))
    folder = task_on("text-generation", tmp_path / "docs")
    assert next(iter(folder.documents.rows["train"]))["text"] == b"\n".join(lines).decode()


def test_language_models_read_any_utf8_file_of_a_folder(write, tmp_path):
    for name, content in {"a.py": "print('a')\n", "b.tex": "text " * 50, "c.bin": b"\xff\x00\xfe", "d": "more"}.items():
        write(f"code/{name}", content)
    with pytest.warns(UserWarning, match=r"code: 1 of 4 files are no texts and are left out, such as c\.bin"):
        rows = task_on("text-generation", tmp_path / "code").documents.rows["train"]
    assert sorted(rows["name"]) == ["a.py", "b.tex", "d"]


def test_a_column_called_length(write):
    path = write("a.csv", "text,label,length\n" + "\n".join(f"t {i},{i % 2},{i}" for i in range(10)))
    found = classes(path, slice_by=["length"])
    assert found.slice_columns == ("length",)
    assert sorted(row["length"] for row in rows_of(found)) == list(range(10))


def test_encodings(write):
    text = "text,label\ncafé,1\nthé,0\nlait,1\neau,0\n"
    path = write("a.csv", text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.csv: byte 0xe9 is not utf-8: pass the file's encoding, such as --encod"):
        classes(path)
    assert "café" in {row["text"] for row in rows_of(classes(path, encoding="latin-1"))}
    assert "café" in {row["text"] for row in rows_of(classes(write("b.csv", text.encode("utf-8-sig"))))}
    assert "café" in {row["text"] for row in rows_of(classes(write("c.csv", text.encode("utf-16")), encoding="utf-16"))}


BROKEN = [
    ("a.csv", "", r"a\.csv: it is empty"),
    ("a.csv", "text,label\n", "it holds no rows"),
    ("a.csv", "text,text,label\na,b,1\n", "the columns 'text' are there more than once"),
    ("a.csv", "text,label\na,1\nb,0,7\n", r"line 3 has 3 values, and the header 2 columns: .*--on_error skip"),
    ("a.csv", 'text,label\na,1\n"b,0\n', "a quote is never closed: .*--quoting none"),
    ("a.csv", "text,label\na,1\n ,0\n", "a.csv, row 2: text is empty; correct it, or pass --on_error skip"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"\n', "line 2 is no JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 3, "label": 0}\n', "row 2: text is 3, which is no text"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": null}\n', "row 2: label is None: expected a label"),
    ("a.xlsx", "PK", "has no known format: its name should end in one of .csv"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_broken_files(name, content, message, write):
    with pytest.raises(ValueError, match=message):
        classes(write(name, content))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_broken_rows_can_be_left_out(name, write):
    good = [{"text": f"t {i}", "label": i % 2} for i in range(8)]
    if name.endswith("csv"):
        lines = [f"{row['text']},{row['label']}" for row in good]
        content = "\n".join(["text,label", "a,1,2", *lines, " ,1"])
    else:
        content = "\n".join(["{", *map(json.dumps, good), json.dumps({"text": "", "label": 1})])
    with pytest.warns(UserWarning, match="1 broken row was left out: ") as said:
        found = classes(write(name, content), on_error="skip")
    assert len(rows_of(found)) == 8
    assert len(said) == 2


def test_names_that_data_declare(tmp_path):
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["no", "yes"]))})
    rows = [{"text": "a", "label": [1]}, {"text": "b", "label": []}] * 3
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "train.parquet")
    assert classes(str(tmp_path / "train.parquet")).label_names == ("no", "yes")
