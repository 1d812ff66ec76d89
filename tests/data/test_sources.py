"""A user's own examples: columns, labels, difficulty, splits, and what is wrong with them."""

import json
import re
import zipfile

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from hf_recurrent.data.labels import MULTI, REGRESSION, SINGLE
from hf_recurrent.data.loading import default_splits, name_of
from support.own_data import classes, rows_of, task_on

TWO = [{"text": f"film {i}", "label": ("bad", "good")[i % 2]} for i in range(20)]
PAIRS = [{"text": f"a {i}", "text_pair": f"b {i}", "label": i % 2} for i in range(20)]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.parquet"])
def test_formats(name, write):
    found = classes(write(name, TWO), validation_file=write(f"v_{name}", TWO[:4]))
    assert (found.labels.problem_type, found.label_names) == (SINGLE, ("bad", "good"))
    assert rows_of(found, "train") == [{**row, "label": int(row["label"] == "good")} for row in TWO]
    assert rows_of(found, "validation") == rows_of(found, "train")[:4]
    assert found.facts["files"] == {"train": name, "validation": f"v_{name}"}
    assert found.facts["examples"] == {"train": 20, "validation": 4}


@pytest.mark.parametrize("packed", [False, True])
def test_folders_of_texts(packed, write, tmp_path):
    for i, row in enumerate(TWO):
        write(f"films/{row['label']}/{i:02}.txt", row["text"])
    place = tmp_path / "films"
    if packed:
        place = tmp_path / "films.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in sorted((tmp_path / "films").rglob("*.txt")):
                archive.write(path, path.relative_to(tmp_path))
    found = classes(place)
    assert sorted(row["text"] for row in rows_of(found)) == sorted(row["text"] for row in TWO)
    assert all(row["label"] == int(row["text"].split()[1]) % 2 for row in rows_of(found))
    assert found.label_names == ("bad", "good")


def test_files_of_folders_that_are_no_texts(write, tmp_path):
    for name, content in {"a.TXT": "\ufefffilm", "b.txt": "film", "c.html": "<p>film", "d": "film"}.items():
        for label in ("bad", "good"):
            write(f"films/{label}/{name}", content)
    write("films/README.md", "about")
    with pytest.warns(UserWarning, match=r"films: 4 of 8 files are no texts .* left out, such as bad/c\.html"):
        assert [row["text"] for row in rows_of(classes(tmp_path / "films"))] == ["film"] * 4


def test_pairs_and_usual_names_of_columns(write):
    found = classes(write("a.jsonl", PAIRS))
    renamed = [{"premise": row["text"], "hypothesis": row["text_pair"], "labels": row["label"]} for row in PAIRS]
    other = classes(write("b.jsonl", renamed))
    assert rows_of(other) == rows_of(found)
    assert other.facts["text_column"] == ["premise", "hypothesis"]
    turned = classes(write("b.jsonl", renamed), text_column="hypothesis, premise")
    assert [row["text"] for row in rows_of(turned)] == [row["text_pair"] for row in rows_of(found)]
    nested = [{"film": {"text": row["text"]}, "meta": {"label": row["label"]}} for row in TWO]
    assert len(rows_of(classes(write("c.jsonl", nested), text_column="film.text", label_column="meta.label"))) == 20


@pytest.mark.parametrize(
    ("labels", "problem", "names", "encoded"),
    [
        ([0, 1], SINGLE, ("0", "1"), [0, 1]),
        ([10, 9], SINGLE, ("9", "10"), [1, 0]),
        ([True, False], SINGLE, ("False", "True"), [1, 0]),
        (["b", "a"], SINGLE, ("a", "b"), [1, 0]),
        ([0.5, 1.5], REGRESSION, (), [0.5, 1.5]),
        (["0.5", "1"], REGRESSION, (), [0.5, 1.0]),
        ([["a"], ["a", "b"]], MULTI, ("a", "b"), [[1.0, 0.0], [1.0, 1.0]]),
        ([[2], [10]], MULTI, ("2", "10"), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_kinds_of_labels(labels, problem, names, encoded, write):
    rows = [{"text": f"film {i}", "label": labels[i % 2]} for i in range(20)]
    found = classes(write("a.jsonl", rows), validation_file=write("v.jsonl", rows[:2]))
    assert (found.labels.problem_type, found.label_names) == (problem, names)
    assert found.splits["validation"]["label"][:] == encoded


def labelled(write, *labels, count=12, **options):
    """The labels of a file whose rows have some labels in turn."""
    return classes(
        write("a.jsonl", [{"text": f"film {i}", "label": labels[i % len(labels)]} for i in range(count)]), **options
    ).labels


def test_labels_that_may_be_meant_otherwise(write):
    assert labelled(write, 0, 1, 2, do_regression=True).problem_type == REGRESSION
    assert labelled(write, 0.0, 0.5, do_regression=False).names == ("0.0", "0.5")
    with pytest.warns(UserWarning, match=r"labels are '0.0', '1.0', '2.0': numbers.*--do_regression false if they"):
        assert labelled(write, 0.0, 1.0, 2.0).problem_type == REGRESSION
    with pytest.warns(UserWarning, match=r"labels 'ANNA ' \(4 times\), 'anna' \(4 times\) differ in case or spaces"):
        assert len(labelled(write, "anna", "ben", "ANNA ").names) == 3
    with pytest.warns(UserWarning, match="labels '1', '3' are numbers and 'two' not, and all are classes"):
        assert labelled(write, "1", "two", "3").names == ("1", "3", "two")
    assert labelled(write, "1", "two", "3", label_list=["two", "1", "3"]).ids["two"] == 0
    with pytest.warns(UserWarning, match="60 of 60 training examples have a label that no other one has, such as '0'"):
        assert len(labelled(write, *range(60), count=60).names) == 60


def test_several_labels_in_one_text(write):
    rows = [{"text": "film", "label": label} for label in ("war; old", "", "war;war", "old;") * 5]
    found = classes(write("a.csv", rows), validation_file=write("v.csv", rows[:4]), label_delimiter=";")
    assert found.label_names == ("old", "war")
    assert found.splits["validation"]["label"][:] == [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_declared_names_of_labels(write, tmp_path):
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    hidden = [{"sentence": "c", "label": -1}] * 3
    train = [{"sentence": f"a {i}", "label": i % 2} for i in range(6)] + hidden[:1]
    for name, rows in {"train": train, "dev": train[:2], "test": hidden}.items():
        write(f"set/{name}.parquet", Dataset.from_list(rows, features=features))
    with pytest.warns(UserWarning, match="labels?") as said:
        data = classes(None, dataset_name=str(tmp_path / "set"), validation_split="validation")
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 6, "validation": 2}
    assert (data.label_names, data.facts["unlabelled"]) == (("no", "yes"), {"train": 1})
    messages = " ".join(str(item.message) for item in said)
    # messages tell the data set, and not where it lies
    assert "data set set, train: 1 of 7 examples have no label (-1 or -100) and are left out" in messages
    assert "data set set, test has no labels, or hides them (-1): nothing is measured on it" in messages
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["no", "yes"]))})
    write(
        "sets/train.parquet", Dataset.from_list([{"text": "a", "label": [1]}, {"text": "b", "label": []}] * 3, features)
    )
    sets = classes(None, dataset_name=str(tmp_path / "sets"), validation_split_percentage=50)
    assert all(row["label"] == [0.0, float(row["text"] == "a")] for row in rows_of(sets))


@pytest.mark.parametrize("chosen", [{"train": "validation"}, {"validation": "train"}, {"test": "validation"}])
def test_a_split_has_one_role(write, tmp_path, chosen):
    for name in ("train", "validation"):
        write(f"set/{name}.parquet", TWO)
    options = {f"{role}_split": split for role, split in chosen.items()}
    with pytest.raises(ValueError, match=r"are both the split '(train|validation)' of .*: name different ones"):
        _ = task_on("text-classification", dataset_name=str(tmp_path / "set"), **options).source


@pytest.mark.parametrize("label", [-1, -1.0, None])
def test_tests_without_labels(label, write):
    rows = [{"text": "a", "label": i % 4 if label == -1 else i / 4} for i in range(8)]
    test = [{"text": "b"} | ({} if label is None else {"label": label})] * 2
    files = {f"{split}_file": write(f"{split}.jsonl", own) for split, own in {"validation": rows, "test": test}.items()}
    with pytest.warns(UserWarning, match=r"test\.jsonl has no labels, or hides them"):
        assert list(classes(write("a.jsonl", rows), **files).splits) == ["train", "validation"]


def test_difficulty(write):
    rows = [
        {"text": "a", "label": i % 2, "hard": str(i), "share": i / 4, "kind": f"k{i}", "odd": i % 2 == 1, "mixed": i}
        for i in range(6)
    ]
    rows[3] |= {"mixed": "3.5", "share": 1}
    names = ["hard", "share", "kind", "odd", "mixed"]
    found = classes(write("a.jsonl", rows), slice_by=names)
    assert found.slice_columns == (*names, "length")
    (row,) = (row for row in rows_of(found) if row["hard"] == 3)
    assert row == {"text": "a", "label": 1, "hard": 3, "share": 1.0, "kind": "k3", "odd": "True", "mixed": 3.5}


def test_a_changed_file_is_read_again(write):
    before = classes(write("a.csv", TWO))
    rows = rows_of(before)
    second = classes(write("a.csv", [{**row, "text": "x"} for row in TWO]))
    assert second.version != before.version
    assert {row["text"] for row in rows_of(second)} == {"x"}
    again = classes(write("a.csv", TWO))
    assert (again.version, rows_of(again)) == (before.version, rows)


@pytest.mark.parametrize(
    ("tag", "place"), [("text-classification", "tasks.base"), ("long-documents", "data.documents")]
)
def test_a_newer_reader_reads_a_file_again(tag, place, write, monkeypatch):
    """The cache of `datasets` must not answer for it."""
    files = {f"{split}_file": write(f"{split}.jsonl", TWO) for split in ("train", "validation")}

    def first_text():
        task = task_on(tag, **files)
        splits = task.document_splits() if tag == "long-documents" else task.source.splits
        return splits["train"][0]["text"]

    read = [first_text()]
    monkeypatch.setattr(f"hf_recurrent.{place}.text_of", lambda row, column: "mended")
    read.append(first_text())
    monkeypatch.setattr("hf_recurrent.utils.version", lambda name: "2.0")
    read.append(first_text())
    assert read == ["film 0", "film 0", "mended"]


def test_broken_rows_can_be_left_out(write):
    lines = [json.dumps(row) for row in TWO]
    lines[3:3] = ["{", json.dumps({"text": " ", "label": "good"}), json.dumps({"text": 3, "label": "good"})]
    path = write("a.jsonl", "\n".join([*lines, json.dumps({"text": "a", "label": None})]))
    with pytest.raises(ValueError, match=r"a\.jsonl: line 4 is no JSON.*--on_error skip"):
        classes(path)
    with (
        pytest.warns(UserWarning, match=r"1 broken row was left out: line 4 is no JSON \("),
        pytest.warns(UserWarning, match="3 broken rows were left out: .*text is empty; .*no text; .*expected a label"),
    ):
        found = classes(path, on_error="skip")
    assert len(rows_of(found)) == len(TWO)
    assert found.facts["skipped"] == {"train": 3}


LABELLED = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
BAD_ROWS = [
    *(({"text": text}, message) for text, message in [(" \n", "text is empty"), (3, "text is 3, which is no text")]),
    ({"text": None}, "text is None"),
    ({"label": None}, "label is None: expected a label; correct it, or pass --on_error skip"),
    ({"label": ""}, "label is '': expected a label"),
    ({"label": {"a": 1}}, r"label is \{'a': 1\}: expected a label"),
    ({"label": float("nan")}, "label is nan: expected a label"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ROWS)
def test_bad_rows(change, message, write):
    path = write("a.jsonl", [*LABELLED, {**LABELLED[0], **change}])
    with pytest.raises(ValueError, match=rf"a\.jsonl, row 3: {message}"):
        classes(path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, [0]], "a.jsonl, row 1: the label is '0': expected a list of labels"),
        ([0.5, 1e300], r"row 2: the label is '1e\+300': expected a number of 32 bits"),
        ([["a"], [["a"]]], r"label is \['a'\]: expected a label"),
        ([["a"], ["a + b"]], r"called 'a \+ b': results join several labels by ' \+ '"),
        ([[], []], "no training example has any label"),
        ([1.5, 1.5], "all training examples have the label 1.5: there is nothing to learn"),
    ],
)
def test_bad_labels(labels, message, write):
    with pytest.raises(ValueError, match=message):
        labelled(write, *labels, count=4)


@pytest.mark.parametrize("name", ["new.csv", "new.jsonl"])
def test_labels_that_training_has_not(name, write):
    rows = [*TWO, {"text": "x", "label": "ugly"}, {"text": "x", "label": "ugly"}]
    train, files = write("a.csv", TWO), {"validation_file": write(name, rows)}
    message = (
        r"new\.\w+ has 1 label that training has not: 'ugly' \(2 times\), first in row 21; training has 'bad', 'good': "
        "correct them, or name all labels with --label_list"
    )
    with pytest.raises(ValueError, match=message):
        classes(train, **files)
    assert classes(train, **files, label_list=["bad", "good", "ugly"]).labels.ids["ugly"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": "txt"}, "text_column is 'txt': a.csv has the columns 'text', 'label'; did you mean text?"),
        ({"slice_by": ["text"]}, "slice_by is 'text', a name that examples use themselves"),
        ({"text_column": "text,text"}, "text_column (1) and text_column (2) are both 'text'"),
        ({"text_column": "text,text,text"}, "expected one or two columns beside the label's"),
        ({"text_column": "label"}, "a.csv has no column 'label': name one of 'text' with --label_column"),
        ({"label_list": ["good"]}, "a.csv has 1 label that label_list has not: 'bad'"),
        ({"label_list": ["good", "bad", "bad"]}, "label_list is good, bad, bad: name each label once"),
        ({"do_regression": True}, "a.csv, row 1: the label is 'bad': expected a number of 32 bits"),
        ({"do_regression": True, "label_list": ["a", "b"]}, "label_list is a, b and do_regression true"),
    ],
)
def test_options_that_do_not_fit(options, message, write):
    with pytest.raises(ValueError, match=re.escape(message)):
        classes(write("a.csv", TWO), **options)


def test_places_that_do_not_fit(write, tmp_path):
    path = write("a.csv", TWO)

    def refused(message, train=path, **files):
        with pytest.raises(ValueError, match=message):
            classes(train, **files)

    refused(r"train_file is '.*' and validation_file '.*', the same or one within the other", validation_file=path)
    refused("e.csv: it is empty", validation_file=write("e.csv", ""))
    refused("it holds no rows", validation_file=write("e.csv", "text,label\n"))
    other = write("v.csv", [{"sentence": "a", "label": "bad"}])
    refused("splits have texts in different columns .*: name them with --text_column", validation_file=other)
    refused(
        r"b has 2 training examples and nothing to evaluate on.* is 5: raise it",
        write("b.csv", TWO[:2]),
        validation_split_percentage=None,
    )
    write("tables/t.csv", "text,label\na,b\n")
    refused(r"for each label, or name a file of rows$", str(tmp_path / "tables"))
    refused(r"a\.zip: expected a folder or a zip file", write("a.zip", "PK and no archive"))
    refused(
        r"t\.txt has no column 'label': name one of 'text' with --label_column,? .*--task", write("t.txt", "a\nb\n")
    )


@pytest.mark.parametrize(
    ("tests", "found"),
    [([[-1, -1], [0, 1]], ["test_b"]), ([[-1], [-1]], ["validation"]), ([["a"], [0]], ["test_a", "test_b"])],
)
def test_splits_with_secret_labels_are_measured_if_there_are_no_others(tests, found):
    rows = [Dataset.from_dict({"text": ["a"] * len(labels), "label": labels}) for labels in (*tests, [0])]
    splits = dict(zip(("test_a", "test_b", "validation"), rows, strict=True))
    assert default_splits(splits, "films") == found
    # -1 of another column is none
    assert default_splits(splits, "films", "text") == ["test_a", "test_b"]
    with pytest.raises(ValueError, match="films has the splits train, none of them for tests: name one with --split"):
        default_splits({"train": rows[2]}, "films")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("reviews/train", "reviews"),
        ("reviews-train.csv", "reviews"),
        ("reviews.jsonl", "reviews"),
        ("constrain.csv", "constrain"),
        ("reviews_train.csv.gz", "reviews"),
        ("train.csv", "train"),
        ("/home/somebody/train.csv", "train"),
    ],
)
def test_data_are_called_by_their_training_file_without_its_split_and_place(path, name):
    assert name_of(path) == name
