"""A user's own examples: formats, columns, labels, difficulty, splits, and what is wrong with them."""

import csv
import io
import json
import zipfile

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from hf_recurrent.benchmarks import files as benchmark_files
from hf_recurrent.text_data import documents, examples
from hf_recurrent.text_data.documents import DocumentFolder, DocumentSource
from hf_recurrent.text_data.evaluation_source import default_splits
from hf_recurrent.text_data.labels import MULTI, REGRESSION, SINGLE
from hf_recurrent.text_data.source import TextSource

TWO = [{"text": f"film {i}", "label": ("bad", "good")[i % 2]} for i in range(20)]
PAIRS = [{"text": f"a {i}", "text_pair": f"b {i}", "label": i % 2} for i in range(20)]


@pytest.fixture(autouse=True)
def data_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def write(tmp_path):
    """Writes rows as a file whose name's end chooses the format -> its path."""

    def file(name, rows, encoding="utf-8"):
        path = tmp_path / name
        if name.endswith(".parquet"):
            (rows if isinstance(rows, Dataset) else Dataset.from_list(rows)).to_parquet(path)
            return str(path)
        if name.endswith((".csv", ".tsv")):
            out = io.StringIO()
            table = csv.DictWriter(out, list(rows[0]), delimiter="\t" if name.endswith(".tsv") else ",")
            table.writeheader()
            table.writerows(rows)
            text = out.getvalue()
        elif name.endswith(".json"):
            text = json.dumps(rows)
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text, encoding=encoding, newline="")
        return str(path)

    return file


def source(train, **options):
    files = {"train": train, **{split: options.pop(split) for split in ("validation", "test") if split in options}}
    return TextSource(files=files, validation_split_percentage=50, **options)


def rows_of(found, split="train"):
    return found.splits[split].to_list()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.parquet"])
def test_formats(name, write):
    found = source(write(name, TWO), validation=write(f"v_{name}", TWO[:4]))
    assert found.labels.problem_type == SINGLE
    assert found.labels.names == ("bad", "good")
    assert rows_of(found) == [{"text": row["text"], "label": int(row["label"] == "good")} for row in TWO]
    assert rows_of(found, "validation") == rows_of(found)[:4]
    assert found.info.label_names == ("bad", "good")
    assert found.facts["files"] == {"train": name, "validation": f"v_{name}"}
    assert found.facts["examples"] == {"train": 20, "validation": 4}


@pytest.mark.parametrize("packed", [False, True])
def test_folders_of_texts(packed, tmp_path):
    for i, row in enumerate(TWO):
        path = tmp_path / "films" / row["label"] / f"{i:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(row["text"])
    place = tmp_path / "films"
    if packed:
        place = tmp_path / "films.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in sorted((tmp_path / "films").rglob("*.txt")):
                archive.write(path, path.relative_to(tmp_path))
    found = source(str(place))
    rows = rows_of(found) + rows_of(found, "validation")
    assert sorted(row["text"] for row in rows) == sorted(row["text"] for row in TWO)
    assert all(row["label"] == int(row["text"].split()[1]) % 2 for row in rows)
    assert found.labels.names == ("bad", "good")


def test_pairs_and_usual_names_of_columns(write):
    found = source(write("a.jsonl", PAIRS))
    assert found.info.text_columns == ("text", "text_pair")
    renamed = [{"premise": row["text"], "hypothesis": row["text_pair"], "labels": row["label"]} for row in PAIRS]
    other = source(write("b.jsonl", renamed))
    assert rows_of(other) == rows_of(found)
    assert other.facts["text_column"] == ["premise", "hypothesis"]
    turned = source(write("b.jsonl", renamed), text_columns=("hypothesis", "premise"))
    assert [row["text"] for row in rows_of(turned)] == [row["text_pair"] for row in rows_of(found)]


def test_values_within_columns(write):
    rows = [{"film": {"text": row["text"]}, "meta": {"label": row["label"]}} for row in TWO]
    found = source(write("a.jsonl", rows), text_columns=("film.text",), label_column="meta.label")
    assert found.splits["train"].num_rows == 10


@pytest.mark.parametrize(
    ("labels", "problem", "names", "encoded"),
    [
        ([0, 1], SINGLE, ("0", "1"), [0, 1]),
        ([10, 9], SINGLE, ("9", "10"), [1, 0]),
        ([True, False], SINGLE, ("False", "True"), [1, 0]),
        (["b", "a"], SINGLE, ("a", "b"), [1, 0]),
        ([0.5, 1], REGRESSION, (), [0.5, 1.0]),
        (["0.5", "1"], REGRESSION, (), [0.5, 1.0]),
        ([["a"], ["a", "b"]], MULTI, ("a", "b"), [[1.0, 0.0], [1.0, 1.0]]),
        ([[2], [10]], MULTI, ("2", "10"), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
@pytest.mark.filterwarnings("ignore:labels are .* numbers, which the model learns by regression:UserWarning")
def test_kinds_of_labels(labels, problem, names, encoded, write):
    rows = [{"text": f"film {i}", "label": labels[i % 2]} for i in range(20)]
    found = source(write("a.jsonl", rows), validation=write("v.jsonl", rows[:2]))
    assert (found.labels.problem_type, found.labels.names) == (problem, names)
    assert found.splits["validation"]["label"][:] == encoded


def test_numbers_that_are_classes_and_classes_that_are_numbers(write):
    rows = [{"text": "film", "label": i % 3} for i in range(20)]
    assert source(write("a.jsonl", rows), do_regression=True).splits["train"].features["label"] == Value("float32")
    halves = [{"text": "film", "label": i % 2 / 2} for i in range(20)]
    assert source(write("a.jsonl", halves), do_regression=False).labels.names == ("0.0", "0.5")


def test_labels_that_may_be_meant_otherwise_are_told(write):
    whole = [{"text": f"film {i}", "label": float(i % 3)} for i in range(12)]
    with pytest.warns(UserWarning, match=r"labels are '0.0', '1.0', '2.0': numbers.*--do_regression false if they"):
        assert source(write("whole.jsonl", whole)).labels.problem_type == REGRESSION
    alike = [{"text": f"film {i}", "label": ("anna", "ben", "ANNA ")[i % 3]} for i in range(12)]
    with pytest.warns(UserWarning, match=r"labels 'ANNA ' \(4 times\), 'anna' \(4 times\) differ in case or spaces"):
        assert len(source(write("alike.jsonl", alike)).labels.names) == 3
    mixed = [{"text": f"film {i}", "label": ("1", "two", "3")[i % 3]} for i in range(12)]
    with pytest.warns(UserWarning, match="labels '1', '3' are numbers and 'two' not, and all are classes"):
        assert source(write("mixed.jsonl", mixed)).labels.names == ("1", "3", "two")
    assert source(write("mixed.jsonl", mixed), label_names=("two", "1", "3")).labels.ids["two"] == 0
    numbers = [{"text": f"film {i}", "label": i} for i in range(60)]
    with pytest.warns(
        UserWarning, match="60 of 60 training examples have a label that no other one has, such as '0', '1'"
    ):
        assert len(source(write("numbers.jsonl", numbers)).labels.names) == 60


def test_several_labels_in_one_text(write):
    rows = [{"text": "film", "label": label} for label in ("war; old", "", "war;war", "old;") * 5]
    found = source(write("a.csv", rows), validation=write("v.csv", rows[:4]), label_delimiter=";")
    assert found.labels.names == ("old", "war")
    assert found.splits["validation"]["label"][:] == [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_declared_names_of_labels(tmp_path):
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    hidden = [{"sentence": "c", "label": -1}] * 3
    train = [{"sentence": f"a {i}", "label": i % 2} for i in range(6)] + hidden[:1]
    splits = {"train": train, "dev": train[:2], "test": hidden}
    for name, rows in splits.items():
        Dataset.from_list(rows, features=features).to_parquet(tmp_path / "set" / f"{name}.parquet")
    data = TextSource(dataset_name=str(tmp_path / "set"), split_names={"validation": "validation"})
    with pytest.warns(UserWarning, match="labels?") as said:
        assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 6, "validation": 2}
    assert data.labels.names == ("no", "yes")
    assert data.facts["unlabelled"] == {"train": 1}
    messages = " ".join(str(item.message) for item in said)
    assert "train: 1 of 7 examples have no label (-1) and are left out" in messages
    assert "test has no labels, or hides them (-1): nothing is measured on it" in messages


@pytest.mark.parametrize("chosen", [{"train": "validation"}, {"validation": "train"}, {"test": "validation"}])
def test_a_split_has_one_role(tmp_path, chosen):
    for name in ("train", "validation"):
        Dataset.from_list(TWO).to_parquet(tmp_path / "set" / f"{name}.parquet")
    data = TextSource(dataset_name=str(tmp_path / "set"), split_names=chosen)
    with pytest.raises(ValueError, match=r"are both the split '(train|validation)' of .*: name different ones"):
        data.splits  # noqa: B018


def test_names_of_several_labels(tmp_path):
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["no", "yes"]))})
    rows = [{"text": "a", "label": [1]}, {"text": "b", "label": []}] * 3
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "train.parquet")
    found = TextSource(dataset_name=str(tmp_path), validation_split_percentage=50)
    # configs and cards tell it, and not where it lies
    assert found.place == f"data set {tmp_path.name}"
    assert found.labels.names == ("no", "yes")
    assert sorted(found.splits["train"]["label"][:]) == sorted(
        [0.0, float(row["text"] == "a")] for row in found.splits["train"]
    )


@pytest.mark.parametrize("label", [-1, -1.0, None])
def test_tests_without_labels(label, write):
    rows = [{"text": "a", "label": i % 4 if label == -1 else i / 4} for i in range(8)]
    test = [{"text": "b"} | ({} if label is None else {"label": label})] * 2
    found = source(write("a.jsonl", rows), validation=write("v.jsonl", rows), test=write("t.jsonl", test))
    with pytest.warns(UserWarning, match=r"t\.jsonl has no labels, or hides them"):
        assert list(found.splits) == ["train", "validation"]


def test_difficulty(write):
    rows = [
        {"text": "a", "label": i % 2, "hard": str(i), "share": i / 4, "kind": f"k{i}", "odd": i % 2 == 1, "mixed": i}
        for i in range(6)
    ]
    rows[3] |= {"mixed": "3.5", "share": 1}
    found = source(write("a.jsonl", rows), slice_by=("hard", "share", "kind", "odd", "mixed"))
    types_ = {"hard": "int64", "share": "float64", "kind": "string", "odd": "string", "mixed": "float64"}
    assert found.slice_types == types_
    assert found.info.slice_columns == (*types_, "length")
    row = next(row for split in found.splits for row in rows_of(found, split) if row["hard"] == 3)
    assert row == {"text": "a", "label": 1, "hard": 3, "share": 1.0, "kind": "k3", "odd": "True", "mixed": 3.5}


def test_a_changed_file_is_read_again(write):
    first = source(write("a.csv", TWO))
    before = first.version, rows_of(first)
    second = source(write("a.csv", [{**row, "text": "x"} for row in TWO]))
    assert second.version != before[0]
    assert {row["text"] for row in rows_of(second)} == {"x"}
    again = source(write("a.csv", TWO))
    assert (again.version, rows_of(again)) == before


@pytest.mark.parametrize("kind", [TextSource, DocumentSource])
def test_a_newer_reader_reads_a_file_again(kind, write, monkeypatch):
    """What was read before stands in the cache of `datasets`: a mended reader must not be answered from it."""
    files = {"train": write("a.jsonl", TWO), "validation": write("v.jsonl", TWO)}
    assert rows_of(kind(files=files))[0]["text"] == "film 0"
    monkeypatch.setattr(examples if kind is TextSource else documents, "text_of", lambda row, column: "mended")
    assert rows_of(kind(files=files))[0]["text"] == "film 0", "the same reader reads it once"
    monkeypatch.setattr(benchmark_files, "version", lambda name: "2.0")
    assert rows_of(kind(files=files))[0]["text"] == "mended"


def test_broken_rows_can_be_left_out(write, tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row) for row in TWO]
    lines[3:3] = ["{", json.dumps({"text": " ", "label": "good"}), json.dumps({"text": 3, "label": "good"})]
    lines.append(json.dumps({"text": "a", "label": None}))
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"a\.jsonl, line 4: .*on_error"):
        source(str(path)).scans  # noqa: B018
    found = source(str(path), on_error="skip")
    with pytest.warns(UserWarning, match="4 broken rows were left out: .*text is empty.*; and 1 more"):
        assert sum(rows.num_rows for rows in found.splits.values()) == len(TWO)
    assert found.facts["skipped"] == {"train": 4}


def test_encodings_and_line_ends(write, tmp_path):
    rows = [{"text": f"süß {i}", "label": i % 2} for i in range(4)]
    path = write("a.csv", rows, "latin-1")
    with pytest.raises(ValueError, match=r"the byte 0xFC is not utf-8.*encoding"):
        source(path).scans  # noqa: B018
    assert rows_of(source(path, encoding="latin-1", validation=write("v.csv", rows, "latin-1")))[0]["text"] == "süß 0"
    marked = tmp_path / "m.csv"
    marked.write_bytes(b"\xef\xbb\xbftext,label\r\na,0\r\nb,1\r\n")
    assert source(str(marked)).places["train"].columns == ["text", "label"]


def test_the_same_bytes_in_another_encoding_are_other_texts(write):
    rows = [{"text": f"caf\xe9 \x80 {i}", "label": i % 2} for i in range(4)]
    path = write("a.csv", rows, "latin-1")
    read = {name: rows_of(source(path, encoding=name)) for name in ("latin-1", "cp1252")}
    assert "\x80" in read["latin-1"][0]["text"]
    assert "\u20ac" in read["cp1252"][0]["text"]


def test_files_of_folders_that_are_no_texts(tmp_path):
    for name, content in {"a.TXT": "\ufefffilm", "b.txt": "film", "c.html": "<p>film", "d": "film"}.items():
        for label in ("bad", "good"):
            (tmp_path / "films" / label).mkdir(parents=True, exist_ok=True)
            (tmp_path / "films" / label / name).write_text(content, encoding="utf-8")
    (tmp_path / "films" / "README.md").write_text("about")
    found = source(str(tmp_path / "films"))
    with pytest.warns(UserWarning, match=r"films: 4 of 8 files are no texts .* left out, such as bad/c\.html"):
        rows = rows_of(found) + rows_of(found, "validation")
    assert [row["text"] for row in rows] == ["film"] * 4


LABELLED = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
BAD_LABELS = [
    ([0, "x"], r"mixture of integer \(a\.jsonl, line 1\), text \(a\.jsonl, line 2\): make them all of one type"),
    ([0, [0]], "mixture of integer .*, list"),
    ([True, 1], "mixture of text .*, integer"),
    ([0, None], r"a\.jsonl, line 2: label is None: expected a label; correct it, or pass --on_error skip"),
    ([0, ""], "line 2: label is '': expected a label"),
    ([0, {"a": 1}], r"label is \{'a': 1\}: expected a label"),
    ([0.5, float("nan")], "label is nan: expected a label"),
    ([0.5, 1e300], r"line 2: the label is '1e\+300': expected a number of 32 bits"),
    ([["a"], [["a"]]], r"label is \['a'\]: expected a label"),
    ([["a"], ["a + b"]], r"called 'a \+ b': results join several labels by ' \+ '"),
    ([[], []], "no training example has any label"),
    ([1.5, 1.5], "all training examples have the label 1.5: there is nothing to learn"),
]


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS)
def test_bad_labels(labels, message, write):
    rows = [{"text": f"film {i}", "label": label} for i, label in enumerate(labels)]
    with pytest.raises(ValueError, match=message):
        source(write("a.jsonl", rows)).splits  # noqa: B018


BAD_TEXTS = [
    ("", "text is empty"),
    (" \n", "text is empty"),
    (3, "text is 3, which is no text"),
    (None, "text is None"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS)
def test_bad_texts(text, message, write):
    with pytest.raises(ValueError, match=rf"a\.jsonl, line 3: {message}"):
        source(write("a.jsonl", [*LABELLED, {"text": text, "label": 0}])).splits  # noqa: B018


@pytest.mark.parametrize("name", ["new.csv", "new.jsonl"])
def test_labels_that_training_has_not(name, write):
    rows = [*TWO, {"text": "x", "label": "ugly"}, {"text": "x", "label": "ugly"}]
    message = (
        r"validation has 1 label that training has not: 'ugly' \(2 times\), first at new\.\w+, line 2\d; training has "
        "'bad', 'good': correct them, or name all labels with --label_list"
    )
    with pytest.raises(ValueError, match=message):
        source(write("a.csv", TWO), validation=write(name, rows)).splits  # noqa: B018
    assert source(write("a.csv", TWO), validation=write(name, rows), label_names=("bad", "good", "ugly")).splits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text_columns": ("txt",)},
            r"text_column is 'txt': a\.csv has the columns 'text', 'label'; did you mean text",
        ),
        ({"slice_by": ("text",)}, "slice_by is 'text', a name that examples use themselves"),
        (
            {"text_columns": ("text", "text")},
            "text_column is text, text: expected one or two columns beside the label's",
        ),
        (
            {"text_columns": ("label",)},
            "a.csv has no column 'label' beside text_column 'label': name one of 'text' with --label_column",
        ),
        ({"label_names": ("good",)}, "train has 1 label that label_list has not: 'bad'"),
        ({"label_names": ("good", "bad", "bad")}, "label_list is good, bad, bad: name each label once"),
        ({"do_regression": True}, "a.csv, line 2: the label is 'bad': expected a number of 32 bits"),
        ({"do_regression": True, "label_names": ("a", "b")}, "label_list is a, b and do_regression true"),
    ],
)
def test_options_that_do_not_fit(options, message, write):
    with pytest.raises(ValueError, match=message):
        source(write("a.csv", TWO), **options).splits  # noqa: B018


def test_places_that_do_not_fit(write, tmp_path):
    path = write("a.csv", TWO)
    with pytest.raises(ValueError, match=r"train_file and validation_file are both '.*': name different examples"):
        source(path, validation=path).splits  # noqa: B018
    for content, message in ((b"", "the file is empty"), (b"text,label\n", "has no examples")):
        (tmp_path / "e.csv").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            source(path, validation=str(tmp_path / "e.csv")).splits  # noqa: B018
    with pytest.raises(ValueError, match="splits have texts in different columns"):
        source(path, validation=write("v.csv", [{"sentence": "a", "label": "bad"}])).splits  # noqa: B018
    with pytest.raises(ValueError, match=r"a has 2 training examples and nothing to evaluate on.* is 5: raise it"):
        TextSource(files={"train": write("a.csv", TWO[:2])}).splits  # noqa: B018
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "t.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match=r"for each label, or name a file of rows, such as .*tables/t\.csv$"):
        source(str(tmp_path / "tables")).splits  # noqa: B018
    with pytest.raises(ValueError, match=r"tables has no text files .*, or name a file of rows, such as .*t\.csv$"):
        DocumentFolder(str(tmp_path / "tables"), "utf-8", line_by_line=False)
    (tmp_path / "a.zip").write_bytes(b"PK and no archive")
    with pytest.raises(ValueError, match=r"^\S*a\.zip: expected a folder or a zip file"):
        source(str(tmp_path / "a.zip")).splits  # noqa: B018
    (tmp_path / "t.txt").write_text("a\nb\n")
    expected = r"t\.txt has no column 'label': name one of 'text' with --label_column, .* train --task"
    with pytest.raises(ValueError, match=expected):
        source(str(tmp_path / "t.txt")).splits  # noqa: B018


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


def test_a_copy_of_a_task_without_a_split(monkeypatch):
    splits = {"train": Dataset.from_list(PAIRS), "validation": Dataset.from_list(PAIRS)}
    monkeypatch.setattr(TextSource, "load_data_set", lambda self: splits)
    message = "a split of task_name 'mnli' is 'validation_matched': nyu-mll/glue has the splits train, validation"
    with pytest.raises(ValueError, match=message):
        TextSource(task_name="mnli").splits  # noqa: B018


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
def test_data_are_called_by_their_training_file_but_for_its_split_and_its_machine(path, name):
    assert TextSource(files={"train": path}).name == name
