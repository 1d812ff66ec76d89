"""Predictions of a whole file: in its order, in windows, and written as a whole."""

import csv
import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import normalizers, processors

from hf_recurrent.analysis import predict
from hf_recurrent.analysis.predict import PredictionSettings, predict_file
from hf_recurrent.analysis.predictors import Classifier
from hf_recurrent.data.reading import Reading, read_rows
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_language_model, make_model
from support.tokenizer import make_tokenizer

NUMBER = 30


@pytest.fixture
def model():
    return make_model(BY_NAME["gut"], num_labels=3)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(predict, "WINDOW_ROWS", 8)


def texts(number=NUMBER):
    return [" ".join(f"w{4 + (row * place) % 20}" for place in range(1, 2 + row % 7)) for row in range(number)]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def file(tmp_path):
    return write_lines(tmp_path / "new.jsonl", [{"id": row, "text": text} for row, text in enumerate(texts())])


def run(model, file, output, *, overwrite=False, on_error="raise", **settings):
    settings = PredictionSettings(**{"batch_size": 3, "skips_rows": on_error == "skip", **settings})
    rows = read_rows(file, Reading(on_error=on_error))
    return predict_file(model, make_tokenizer(), rows, output, settings, place=file.name, overwrite=overwrite)


def alone(model, rows, **options):
    """Label, probability and steps of each text by itself."""
    tokenizer, found = make_tokenizer(), []
    with torch.no_grad():
        for text in rows:
            output = model.eval()(**tokenizer(text, return_tensors="pt"), **options)
            probability, label = output.logits[0].softmax(-1).max(-1)
            found.append((model.config.id2label[label.item()], probability.item(), output.ponder_steps.item()))
    return found


def check(table, expected):
    assert table["prediction"].to_pylist() == [label for label, _, _ in expected]
    assert table["probability"].to_pylist() == pytest.approx([probability for _, probability, _ in expected], abs=1e-5)
    assert table["steps"].to_pylist() == [steps for _, _, steps in expected]


@pytest.mark.parametrize("options", [{}, {"max_depth": 1}, {"exit_criterion": "confidence", "exit_threshold": 0.35}])
def test_rows_are_in_order_and_as_alone(model, file, tmp_path, options):
    model.train()
    done = run(model, file, tmp_path / "o.parquet", keep_columns=("id",), options=options)
    assert model.training, "its mode is restored"
    assert (done.rows, done.cut, done.skipped) == (NUMBER, 0, [])
    table = pq.read_table(tmp_path / "o.parquet")
    assert table.column_names == ["id", "prediction", "probability", "steps"]
    assert table["id"].to_pylist() == list(range(NUMBER))
    check(table, alone(model, texts(), **options))
    assert sorted(os.listdir(tmp_path)) == ["new.jsonl", "o.parquet"]


def test_formats_agree(model, file, tmp_path):
    for name in ("o.parquet", "o.csv", "o.jsonl"):
        run(model, file, tmp_path / name, keep_columns=("id", "text"), all_probabilities=True)
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    lines = read_lines(tmp_path / "o.jsonl")
    with open(tmp_path / "o.csv", newline="") as opened:
        cells = list(csv.DictReader(opened))
    assert len(rows) == len(lines) == len(cells) == NUMBER
    for row, line, cell in zip(rows, lines, cells, strict=True):
        assert list(row) == list(line) == list(cell)
        for name, value in row.items():
            assert line[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)
            assert cell[name] == str(line[name])
        assert len(cell["probability"]) < 14, "no digits of rounding"


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_values_within_columns(model, tmp_path, suffix):
    rows = [{"both": {"de": text, "id": row}, "id": -1} for row, text in enumerate(texts())]
    file = tmp_path / f"new{suffix}"
    if suffix == ".jsonl":
        write_lines(file, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    run(model, file, tmp_path / "o.parquet", text_columns=("both.de",), keep_columns=("both.id", "id"))
    table = pq.read_table(tmp_path / "o.parquet")
    check(table, alone(model, texts()))
    assert table["both.id"].to_pylist() == list(range(NUMBER))
    assert set(table["id"].to_pylist()) == {-1}
    with pytest.raises(ValueError, match=r"1: both.en is None, which is no text: both has 'de', 'id'"):
        run(model, file, tmp_path / "p.parquet", text_columns=("both.en",))
    with pytest.raises(ValueError, match=r"keep_columns is 'both.en': new.* did you mean both.de or both.id"):
        run(model, file, tmp_path / "p.parquet", text_columns=("both.de",), keep_columns=("both.en",))
    with pytest.raises(ValueError, match=r"text_column is 'neither.de': new.* has the columns 'both', 'id'"):
        run(model, file, tmp_path / "p.parquet", text_columns=("neither.de",))


@pytest.mark.parametrize("limit", [8, 11, NUMBER + 1])
def test_the_first_rows_alone(model, file, tmp_path, limit):
    assert run(model, file, tmp_path / "o.parquet", keep_columns=("id",), limit=limit).rows == min(limit, NUMBER)
    found = pq.read_table(tmp_path / "o.parquet")
    assert found["id"].to_pylist() == list(range(min(limit, NUMBER)))
    check(found, alone(model, texts()[:limit]))


@pytest.mark.parametrize(("name", "error"), [("o.parquet", KeyboardInterrupt), ("o.csv", OSError)])
def test_a_failed_run_leaves_what_was_there(model, file, tmp_path, monkeypatch, name, error):
    """In the second window, when the first one has been written."""
    rows, calls = Classifier.rows, []

    def stopped(self, inputs, texts, offsets):
        calls.extend(texts)
        if len(calls) > 9:
            raise error
        return rows(self, inputs, texts, offsets)

    before = {"new.jsonl": file.read_bytes()}
    for content in (None, b"of before"):
        if content is not None:
            (tmp_path / name).write_bytes(content)
            before[name] = content
        with monkeypatch.context() as patch:
            patch.setattr(Classifier, "rows", stopped)
            with pytest.raises(error):
                run(model, file, tmp_path / name, overwrite=True)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        calls.clear()
    with pytest.raises(ValueError, match=rf"{re.escape(name)} exists: pass overwrite"):
        run(model, file, tmp_path / name)
    run(model, file, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_bytes() != b"of before"


def test_broken_rows_and_rows_without_text(model, tmp_path):
    rows = [json.dumps({"id": row, "text": text}) for row, text in enumerate(texts())]
    rows[3], rows[9], rows[20] = "{", '{"id": 9, "text": null}', '{"id": 20, "text": ["w5"]}'
    file = tmp_path / "new.jsonl"
    file.write_text("\n".join(rows))
    with pytest.raises(ValueError, match=r"new\.jsonl: line 4 is no JSON"):
        run(model, file, tmp_path / "o.parquet")
    assert os.listdir(tmp_path) == ["new.jsonl"]
    with pytest.warns(UserWarning, match="1 broken row was left out: line 4"):
        done = run(model, file, tmp_path / "o.parquet", on_error="skip", keep_columns=("id",))
    # the line that is no JSON is no row
    assert (done.rows, [number for number, _ in done.skipped]) == (27, [9, 20])
    kept = [row for row in range(NUMBER) if row not in (3, 9, 20)]
    table = pq.read_table(tmp_path / "o.parquet")
    assert table["id"].to_pylist() == kept
    check(table, alone(model, [texts()[row] for row in kept]))


def test_empty_texts_are_no_texts(model, tmp_path):
    file = write_lines(tmp_path / "new.jsonl", [{"text": "w5"}, {"text": " "}, {"text": "w6"}])
    with pytest.raises(ValueError, match="row 2: text is empty"):
        run(model, file, tmp_path / "o.csv")
    done = run(model, file, tmp_path / "o.csv", on_error="skip")
    assert (done.rows, done.skipped) == (2, [(2, "text is empty")])


def test_texts_without_tokens(tmp_path):
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("-", "")
    file = write_lines(tmp_path / "new.jsonl", [{"text": "w5 w6"}, {"text": "--"}, {"text": "w7"}])
    rows = read_rows(file, Reading())
    with pytest.raises(ValueError, match="row 2: its text has no token"):
        predict_file(model, tokenizer, rows, tmp_path / "o.jsonl", PredictionSettings(max_new_tokens=2))
    settings = PredictionSettings(max_new_tokens=2, skips_rows=True)
    done = predict_file(model, tokenizer, rows, tmp_path / "o.jsonl", settings)
    assert (done.rows, done.skipped) == (2, [(2, "its text has no token")])
    assert [list(row) for row in read_lines(tmp_path / "o.jsonl")] == [["prediction", "steps"]] * 2


def test_a_prefix_is_before_every_text(tmp_path):
    model, settings = make_language_model(LANGUAGE_BY_NAME["gut"]), {"max_new_tokens": 2, "keep_columns": ("text",)}
    plain = write_lines(tmp_path / "new.jsonl", [{"text": text} for text in ("w5 w6", "w7")])
    whole = write_lines(tmp_path / "whole.jsonl", [{"text": text} for text in ("w8 w9 w5 w6", "w8 w9 w7")])
    run(model, plain, tmp_path / "o.jsonl", source_prefix="w8 w9 ", **settings)
    run(model, whole, tmp_path / "p.jsonl", **settings)
    run(model, plain, tmp_path / "q.jsonl", **settings)
    prefixed, same, without = (read_lines(tmp_path / name) for name in ("o.jsonl", "p.jsonl", "q.jsonl"))
    assert [row["text"] for row in prefixed] == ["w5 w6", "w7"]
    assert [row["prediction"] for row in prefixed] == [row["prediction"] for row in same]
    assert [row["prediction"] for row in prefixed] != [row["prediction"] for row in without]


def test_pairs(tmp_path):
    model = make_model(BY_NAME["gut_siamese"]).eval()
    rows = [{"a": text, "b": other} for text, other in zip(texts(), reversed(texts()), strict=True)]
    file = write_lines(tmp_path / "new.jsonl", rows)
    run(model, file, tmp_path / "o.parquet", text_columns=("a", "b"))
    write_lines(file, [{"text": row["a"], "text_pair": row["b"], "c": "w5"} for row in rows])
    run(model, file, tmp_path / "same.parquet")
    table = pq.read_table(tmp_path / "o.parquet")
    assert table == pq.read_table(tmp_path / "same.parquet")
    tokenizer = make_tokenizer()
    for row, found in zip(rows, table.to_pylist(), strict=True):
        with torch.no_grad():
            output = model(**tokenizer(row["a"], row["b"], return_tensors="pt"))
        assert found["prediction"] == model.config.id2label[output.logits.argmax().item()]
        assert found["steps"] == pytest.approx(output.ponder_steps.double().mean().item())


def test_columns_that_are_kept_have_their_types(model, tmp_path):
    values = {
        "whole": [1, 2, 3] * 10,
        "mixed numbers": [*range(20), *[0.5] * 10],
        "mixture": [*range(10), *["x"] * 10, *[{"a": [1]}] * 10],
        "late": [None] * 20 + ["x"] * 10,
        "never": [None] * NUMBER,
        "flag": [True, False, None] * 10,
    }
    rows = [{"text": "w5", **{name: column[row] for name, column in values.items()}} for row in range(NUMBER)]
    file = write_lines(tmp_path / "new.jsonl", rows)
    for name in ("o.parquet", "o.jsonl", "o.csv"):
        run(model, file, tmp_path / name, keep_columns=tuple(values))
    table = pq.read_table(tmp_path / "o.parquet")
    expected = values | {"mixture": [*map(str, range(10)), *["x"] * 10, *['{"a": [1]}'] * 10]}
    for name, column in expected.items():
        assert table[name].to_pylist() == column, name
        assert [row[name] for row in read_lines(tmp_path / "o.jsonl")] == column, name
    assert [str(table.schema.field(name).type) for name in ("whole", "mixed numbers", "late", "never", "flag")] == [
        "int64", "double", "string", "null", "bool",
    ]  # fmt: skip


def test_columns_of_a_table_keep_their_types(model, tmp_path):
    table = pa.table(
        {
            "text": texts(),
            "small": pa.array([1] * NUMBER, pa.int8()),
            "when": pa.array([0] * NUMBER, pa.timestamp("us")),
            "raw": pa.array([b"\xff"] * NUMBER),
            "gap": pa.array([float("nan")] * NUMBER),
            "list": pa.array([[1.5]] * NUMBER, pa.list_(pa.float64())),
        }
    )
    pq.write_table(table, tmp_path / "new.parquet")
    kept = ("small", "when", "raw", "gap", "list")
    for name in ("o.parquet", "o.jsonl", "o.csv"):
        run(model, tmp_path / "new.parquet", tmp_path / name, keep_columns=kept)
    found = pq.read_table(tmp_path / "o.parquet").select(kept)
    assert found.schema == table.select(kept).schema
    assert found.drop("gap") == table.select(kept).drop("gap")
    assert np.isnan(found["gap"].to_numpy()).all()
    line = read_lines(tmp_path / "o.jsonl")[0]
    assert [line[name] for name in kept] == [1, "1970-01-01 00:00:00", "\\xff", None, [1.5]]
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("1,1970-01-01 00:00:00,\\xff,,[1.5],")


TYPES = [
    ({}, {}, ["string", "float", "float"]),
    ({}, {"all_probabilities": True}, ["string", *["float"] * 5]),
    ({"problem_type": "regression"}, {}, ["list<element: float>", "float"]),
    (
        {"problem_type": "multi_label_classification"},
        {"all_probabilities": True},
        ["list<element: string>", "list<element: float>", *["float"] * 4],
    ),
]


@pytest.mark.parametrize(("options", "settings", "types"), TYPES)
def test_columns_have_the_same_types_without_any_rows(options, settings, types, file, tmp_path):
    model, empty = make_model(BY_NAME["gut"], **options), write_lines(tmp_path / "empty.jsonl", [{"text": " "}] * 9)
    for name in ("o.parquet", "o.jsonl", "o.csv"):
        run(model, file, tmp_path / name, keep_columns=("id",), **settings)
        done = run(model, empty, tmp_path / f"empty {name}", on_error="skip", keep_columns=("text",), **settings)
        assert (done.rows, len(done.skipped)) == (0, 9)
    whole, without = (pq.read_table(tmp_path / f"{name}o.parquet").schema for name in ("", "empty "))
    assert [str(kind) for kind in whole.types] == ["int64", *types]
    assert [str(kind) for kind in without.types] == ["string", *types]
    assert (tmp_path / "empty o.csv").read_text().strip() == ",".join(without.names)
    assert (tmp_path / "empty o.jsonl").read_text() == ""
    assert list(read_lines(tmp_path / "o.jsonl")[0]) == whole.names


def test_steps_of_fixed_depths_are_numbers_without_values(tmp_path, file):
    run(make_model(BY_NAME["xpos_transformer"]), file, tmp_path / "o.parquet")
    steps = pq.read_table(tmp_path / "o.parquet")["steps"]
    assert str(steps.type) == "float"
    assert steps.null_count == NUMBER


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl"])
def test_each_window_is_written_before_the_next_one(model, file, tmp_path, monkeypatch, name):
    rows, sizes = Classifier.rows, []

    def watched(self, inputs, texts, spans):
        sizes.append(sum(path.stat().st_size for path in tmp_path.glob(f".{name}*")))
        return rows(self, inputs, texts, spans)

    monkeypatch.setattr(Classifier, "rows", watched)
    monkeypatch.setattr(predict, "WINDOW_ROWS", 500)
    write_lines(file, [{"text": text} for text in texts(2000)])
    run(model, file, tmp_path / name, keep_columns=("text",), batch_size=250)
    assert len({*sizes}) == 4
    assert sorted(os.listdir(tmp_path)) == ["new.jsonl", name]


def test_a_tokenizer_without_padding(model, file, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    rows = read_rows(file, Reading())
    predict_file(model, tokenizer, rows, tmp_path / "o.parquet", PredictionSettings(batch_size=3))
    check(pq.read_table(tmp_path / "o.parquet"), alone(model, texts()))


REFUSED = [
    ({"text_columns": ("txt",)}, "text_column is 'txt': new.jsonl has the columns 'id', 'text'; did you mean text?"),
    ({"text_columns": ("id", "text", "id")}, "text_column is id, text, id: name one column, or two of a pair"),
    ({"keep_columns": ("ident",)}, "keep_columns is 'ident'"),
    ({"keep_columns": ("text", "text")}, "the output would have the columns text twice"),
    (
        {"max_new_tokens": 3},
        "max_new_tokens is 3, but it is for models that write text, not for classifiers: leave it out",
    ),
    ({"options": {"max_depth": 0}}, "max_depth is 0"),
    ({"max_seq_length": 1}, "max_seq_length is 1: no text can be cut to so few tokens"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_refused_settings(model, file, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        run(model, file, tmp_path / "o.parquet", **settings)
    assert os.listdir(tmp_path) == ["new.jsonl"]


def test_refused_places_and_columns(model, file, tmp_path):
    with pytest.raises(ValueError, match=re.escape("its name should end in one of .parquet, .csv, .jsonl")):
        run(model, file, tmp_path / "o.txt")
    (tmp_path / "o.csv").mkdir()
    with pytest.raises(ValueError, match="which is a folder"):
        run(model, file, tmp_path / "o.csv", overwrite=True)
    write_lines(file, [{"text": "w5", "steps": 3}, {"text": 3}])
    with pytest.raises(ValueError, match="the output would have the columns steps twice: rename them"):
        run(model, file, tmp_path / "p.csv", keep_columns=("steps",))
    write_lines(file, [{"a": "w5", "b": "w6"}])
    with pytest.raises(ValueError, match="columns a, b: name one column, or two of a pair, with --text_column"):
        run(model, file, tmp_path / "o.parquet")
    siamese, language = make_model(BY_NAME["gut_siamese"]), make_language_model(LANGUAGE_BY_NAME["gut"])
    with pytest.raises(ValueError, match="text_column is a: name two columns, for the model reads pairs"):
        run(siamese, file, tmp_path / "o.parquet", text_columns=("a",))
    with pytest.raises(ValueError, match=r"text_column is a, b: name one column$"):
        run(language, file, tmp_path / "o.parquet", text_columns=("a", "b"), max_new_tokens=1)
    with pytest.raises(ValueError, match="all_probabilities is True, but it is for classifiers"):
        run(language, file, tmp_path / "o.parquet", text_columns=("a",), all_probabilities=True)
    with pytest.raises(ValueError, match="has no head"):
        run(model.model, file, tmp_path / "o.parquet", text_columns=("a",))
