"""Messy files of kinds that people post: all commands read each right, or refuse it in one line with a remedy."""

import csv
import gzip
import io
import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

WORDS = ["the", "a", "film", "plot", "actor", "scene", "music", "was", "is", "of", "and", "very", "much"]
DRAW = random.Random(3)
TEXTS = [f"{' '.join(DRAW.choices(WORDS, k=8))} {('bad', 'good')[i % 2]} {i}" for i in range(60)]
LABELS = ["neg", "pos"] * 30
BINARY = {"neg", "pos"}


def table(rows: Any, names: str = "text label", sep: str = ",", end: str = "\n", quoted: bool = True) -> str:
    """The text of a CSV file."""
    if not quoted:
        return end.join(sep.join(map(str, row)) for row in [names.split(), *rows]) + end
    text = io.StringIO()
    csv.writer(text, delimiter=sep, lineterminator=end).writerows([names.split(), *rows])
    return text.getvalue()


def lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class Messy(NamedTuple):
    """A file, and what commands make of it.

    Attributes:
        reading: flags of each command, `training` those of `train` alone.
        labels: names of the labels; "numbers" of a regression.
        texts: of all rows that are predicted, in their order.
        unlabelled: rows that training and evaluation leave out.
        refused: the message without `reading` and `training`, where these are its remedy.
    """

    content: str | bytes
    labels: set[str] | str = BINARY
    reading: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    texts: list[str] = TEXTS
    text_column: str = "text"
    unlabelled: int = 0
    refused: str | None = None


PAIRS = list(zip(TEXTS, LABELS, strict=True))
COFFEE = [f"{text} Käse “gut”" for text in TEXTS]
QUOTED = [('"' if i == 3 else "") + text + ('"' if i == 9 else "") for i, text in enumerate(TEXTS)]
LATTER = [text for i, text in enumerate(TEXTS) if i != 5]
MESSY = {
    "cp1252.csv": Messy(
        table(zip(COFFEE, LABELS, strict=True)).encode("cp1252"),
        reading=("--encoding", "cp1252"),
        texts=COFFEE,
        refused=r"byte 0xe4 is not utf-8: pass the file's encoding, such as --encoding latin-1",
    ),
    "utf16.csv": Messy(
        table(PAIRS, sep="\t").encode("utf-16"),
        reading=("--encoding", "utf-16", "--delimiter", "\t"),
        refused="byte 0xff is not utf-8: .*--encoding .*utf-16",
    ),
    "bom.csv": Messy(("\ufeff" + table(PAIRS, end="\r\n")).encode()),
    "semicolons.csv": Messy(
        table(PAIRS, sep=";"),
        reading=("--delimiter", ";"),
        refused="the only column is 'text;label': pass --delimiter ';'",
    ),
    "excel.csv": Messy("sep=;\n" + table(PAIRS, sep=";")),
    "tabs.csv": Messy(table(PAIRS, sep="\t"), reading=("--delimiter", "\t"), refused="pass --delimiter '.t'"),
    "quotes.csv": Messy(
        table(zip(QUOTED, LABELS, strict=True), quoted=False),
        reading=("--quoting", "none"),
        texts=QUOTED,
        refused="row 4: a line of the quoted value of 'text', '.*', looks like a row.*--quoting none",
    ),
    "line_breaks.csv": Messy(
        table([(text.replace(" ", ",\n", 1), label) for text, label in PAIRS]),
        texts=[text.replace(" ", ",\n", 1) for text in TEXTS],
    ),
    "ragged.csv": Messy(
        table(
            [(text + ", and more" if i == 5 else text, label) for i, (text, label) in enumerate(PAIRS)], quoted=False
        ),
        reading=("--on_error", "skip"),
        texts=LATTER,
        refused="line 7 has 3 values, and the header 2 columns: .*--on_error skip",
    ),
    "empty_cell.csv": Messy(
        table([("" if i == 5 else text, label) for i, (text, label) in enumerate(PAIRS)]),
        reading=("--on_error", "skip"),
        texts=LATTER,
        refused="row 6: text is empty; correct it, or pass --on_error skip",
    ),
    "index.csv": Messy(table([(i, *pair) for i, pair in enumerate(PAIRS)], "Unnamed:_0 text label")),
    "length.csv": Messy(table([(text, len(text), label) for text, label in PAIRS], "text length label")),
    "dates.csv": Messy(
        table([("2024-01-01", *pair) for pair in PAIRS], "date review sentiment"),
        training=("--text_column", "review", "--label_column", "sentiment"),
        text_column="review",
        refused="no column 'label': name one of 'date', 'review', 'sentiment' with --label_column",
    ),
    "pairs.tsv": Messy(
        table([(text, text[::-1], label) for text, label in PAIRS], "sentence1 sentence2 label", sep="\t"),
        text_column="sentence1",
    ),
    "compressed.csv.gz": Messy(gzip.compress(table(PAIRS).encode())),
    "array.json": Messy(json.dumps([{"text": text, "label": label} for text, label in PAIRS])),
    "broken.jsonl": Messy(
        lines({"text": text, "label": label} for text, label in PAIRS).replace(f'"text": "{TEXTS[5]}"', '"text'),
        reading=("--on_error", "skip"),
        texts=LATTER,
        refused="line 6 is no JSON .*correct it, or pass --on_error skip",
    ),
    "ignored.jsonl": Messy(
        lines({"text": text, "label": -100 if i % 10 == 0 else i % 2} for i, text in enumerate(TEXTS)),
        labels={"0", "1"},
        unlabelled=6,
    ),
    "multi_hot.jsonl": Messy(
        lines({"text": text, "labels": [i % 2, i % 3 // 2, i % 5 // 4]} for i, text in enumerate(TEXTS)),
        labels={"LABEL_0", "LABEL_1", "LABEL_2"},
    ),
    "columns.csv": Messy(
        table([(text, i % 2, i % 3 // 2, i % 5 // 4) for i, text in enumerate(TEXTS)], "text joy anger fear"),
        labels={"joy", "anger", "fear"},
        training=("--label_column", "joy", "anger", "fear"),
        refused="no column 'label': name one of 'text', 'joy', 'anger', 'fear' with --label_column",
    ),
    "written_lists.csv": Messy(
        table([(text, ["['joy']", "['anger', 'joy']"][i % 2]) for i, text in enumerate(TEXTS)]), labels={"anger", "joy"}
    ),
    "look_alike.csv": Messy(
        table([(text, ["bar", "caf\u00e9", "bar", "cafe\u0301"][i % 4]) for i, text in enumerate(TEXTS)]),
        labels={"bar", "caf\u00e9"},
    ),
    "scores.csv": Messy(
        table([(text, i / 10) for i, text in enumerate(TEXTS)], "text score"),
        labels="numbers",
        training=("--label_column", "score"),
        refused="no column 'label': name one of 'text', 'score' with --label_column",
    ),
}
REFUSED = {
    "constant.csv": (
        table([(text, "pos") for text in TEXTS]),
        "all training examples have the label pos: there is nothing to learn",
    ),
    "missing_scores.csv": (
        table([(text, "" if i == 5 else i / 10) for i, text in enumerate(TEXTS)]),
        "row 6: label is '': expected a label",
    ),
    "twice.csv": (
        table([(text, *pair) for text, pair in zip(TEXTS, PAIRS, strict=True)], "text text label"),
        "'text'.*once",
    ),
    "headless.csv": (table(PAIRS).partition("\n")[2], "has no column 'label'"),
    "header.csv": ("text,label\n", "holds no rows"),
    "empty.csv": ("", "empty: the first line should name the columns"),
    "zero_byte.csv": (
        table(PAIRS).replace("film", "fi\0m"),
        "a byte of zero, which is no text: pass the file's --encoding",
    ),
    "squad.json": (
        json.dumps(
            {
                "data": [
                    {"paragraphs": [{"context": "In Rome.", "qas": [{"id": "1", "question": "Where?", "answers": []}]}]}
                ]
            }
        ),
        "no column 'label': name one of 'id', 'question', 'context', 'answers' .*choose another task",
    ),
}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def train(run: Any, file: Path, folder: Path, *words: str) -> Any:
    tiny = ("--model_type", "ut", "--config", "{preset: tiny, num_hidden_layers: 2}", "--max_steps", "1", "--use_cpu")
    half = ("--validation_split_percentage", "50")
    return run("train", "--train_file", file, "--output_dir", folder, *tiny, *half, *words)


def errors(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith(("error", "Traceback"))]


@pytest.mark.parametrize("name", MESSY)
def test_a_messy_file_is_read_right(name, run, succeed, tmp_path):
    messy = MESSY[name]
    file, folder = write(tmp_path / name, messy.content), tmp_path / "run"
    if messy.refused:
        status, _, err = train(run, file, folder)
        assert status == 1
        assert len(errors(err)) == 1
        assert re.search(messy.refused, err), err
        assert not (folder / "config.json").exists()
    status, _, err = train(run, file, folder, *messy.reading, *messy.training)
    assert status == 0, err
    config = json.loads((folder / "config.json").read_text())
    names = set(config.get("id2label", {}).values())
    assert config["problem_type"] == "regression" if messy.labels == "numbers" else names == messy.labels
    num_labelled = len(messy.texts) - messy.unlabelled
    counts = json.loads((folder / "results.json").read_text())["data"]["parameters"]["examples"]
    assert sum(counts.values()) == num_labelled

    tables = tmp_path / "tables.json"
    succeed("evaluate", folder, file, "--output", tables, *messy.reading)
    assert sum(table["n"] for table in json.loads(tables.read_text())["splits"].values()) == num_labelled

    certain = ("--tolerance", "0.5", "--confidence", "0.6", "--output", tmp_path / "calibrated")
    (tmp_path / "test").mkdir()
    tests = write(tmp_path / "test" / name, messy.content)
    status, _, err = run("calibrate", folder, file, "--test_file", tests, *certain, *messy.reading)
    assert status == 0 or len(errors(err)) == 1, err
    assert (status == 0) == (messy.labels != "numbers"), err

    output = tmp_path / "predictions.jsonl"
    succeed("predict", folder, "--file", file, "--output", output, "--keep_column", messy.text_column, *messy.reading)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row[messy.text_column] for row in rows] == messy.texts
    answers = {
        name
        for row in rows
        for name in (row["prediction"] if isinstance(row["prediction"], list) else [row["prediction"]])
    }
    assert messy.labels == "numbers" or answers <= messy.labels
    succeed("publish", folder, "org/name", "--dry_run")


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_says_nothing_is_refused(name, run, tmp_path):
    content, message = REFUSED[name]
    status, _, err = train(run, write(tmp_path / name, content), tmp_path / "run")
    assert status == 1
    assert len(errors(err)) == 1
    assert re.search(message, err), err
    assert not (tmp_path / "run" / "config.json").exists()
