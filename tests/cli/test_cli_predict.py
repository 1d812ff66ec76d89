"""`hf-recurrent predict`."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.families import LANGUAGE_BY_NAME, VOCAB_SIZE, make_language_model, slow
from support.sut_models import make_sut
from support.tokenizer import make_tokenizer

TEXTS = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "[MIN 1 2 ]", "[SM 1 2 3 4 5 6 7 8 9 ]"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("id,text\n" + "".join(f"{name},{text}\n" for name, text in zip("abc", TEXTS, strict=True)))
    return path


def test_labels_probabilities_and_steps(run, run_folder, file, tmp_path):
    status, out, err = run("predict", run_folder, "--file", file, "--output", tmp_path / "p.csv", "--keep-column", "id")
    assert status == 0, err
    assert out.endswith(f"3 rows\nwrote {tmp_path / 'p.csv'}\n")
    assert "predicting" in err
    assert "3/3" in err
    tokenizer = AutoTokenizer.from_pretrained(run_folder)
    model = AutoModelForSequenceClassification.from_pretrained(run_folder).eval()
    with open(tmp_path / "p.csv", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert list(rows[0]) == ["id", "prediction", "probability", "steps"]
    for name, text, row in zip("abc", TEXTS, rows, strict=True):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"))
        probability, label = output.logits[0].softmax(-1).max(-1)
        assert (row["id"], row["prediction"]) == (name, model.config.id2label[label.item()])
        assert float(row["probability"]) == pytest.approx(probability.item(), abs=1e-5)
        assert float(row["steps"]) == output.ponder_steps.item()


def test_depth_and_precision_can_be_chosen(run, run_folder, file, tmp_path):
    def predict(*flags):
        words = ["predict", run_folder, "--file", file, "--output", tmp_path / "p.jsonl", "--overwrite"]
        status, _, err = run(*words, "--disable-tqdm", *flags)
        assert (status, err) == (0, "")
        return [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]

    assert {row["steps"] for row in predict("--max-depth", "1")} == {1}
    assert {row["steps"] for row in predict("--halting-threshold", "0.01")} != {row["steps"] for row in predict()}
    early = predict("--exit-criterion", "confidence", "--exit-threshold", "0.2", "--all-probabilities")
    assert sum(row["steps"] for row in early) < sum(row["steps"] for row in predict())
    assert [row["probability"] for row in early] == [
        max(value for name, value in row.items() if name.startswith("probability_")) for row in early
    ]
    half, whole = predict("--dtype", "bfloat16"), predict()
    assert [row["probability"] for row in half] != [row["probability"] for row in whole]
    assert half[0]["probability"] == pytest.approx(whole[0]["probability"], abs=0.05)


def make_translator():
    return make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()


def make_writer():
    return make_language_model(LANGUAGE_BY_NAME["gut"])


@pytest.mark.parametrize("make", [make_writer, slow(make_translator)])
def test_language_models_and_encoder_decoders_write(run, tmp_path, make):
    file = tmp_path / "new.jsonl"
    file.write_text("".join(json.dumps({"source": text, "n": 1}) + "\n" for text in ("w5 w6", "w7", "w8 w9 w10")))
    folder = save_checkpoint(make(), tmp_path / "model", make_tokenizer())
    words = ["predict", folder, "--file", file, "--output", tmp_path / "p.parquet", "--disable-tqdm"]
    status, _, err = run(*words, "--max-new-tokens", "3")
    assert status == 0, err
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["prediction", "steps"]
    assert all(isinstance(text, str) for text in table["prediction"].to_pylist())
    assert all(0 <= steps <= 9 for steps in table["steps"].to_pylist())


def test_help_has_the_options_of_broken_rows(succeed):
    assert {"--on_error", "--encoding"} <= {*succeed("predict", "--help")[0].split()}


@pytest.mark.filterwarnings("default:.*broken row")
def test_what_was_cut_or_skipped_is_said(run, run_folder, tmp_path):
    file = tmp_path / "new.csv"
    file.write_bytes(b"id,text\na,[MIN 1 2 ]\nb,\nc,[MAX 1 2 3 4 5 6 ]\n1,2,3\n")
    flags = ["--file", file, "--output", tmp_path / "p.parquet", "--on-error", "skip", "--max-seq-length", "6"]
    status, _, err = run("predict", run_folder, *flags, "--disable-tqdm")
    assert status == 0, err
    assert err.splitlines() == [
        "warning: 1 of 2 texts are longer than 6 tokens and were cut to that (--max_seq_length)",
        f"warning: {file}, row 2 was skipped: text is empty",
        "warning: 1 rows were skipped",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--file", "nwe.csv"], "nwe.csv does not exist; did you mean new.csv?"),
        (["--file", "."], "error: . is a folder: name one file"),
        (["--output", "p.xlsx"], "its name should end in one of .parquet, .csv, .jsonl"),
        (
            ["--output", "old.csv"],
            "error: old.csv exists: pass overwrite to replace it (--overwrite), or name another file",
        ),
        (
            ["--output", "new.csv", "--overwrite"],
            "error: output is 'new.csv', the file with the rows: name another one",
        ),
        (
            ["--text-column", "txt"],
            "error: text_column is 'txt': new.csv has the columns 'id', 'text'; did you mean text?",
        ),
        (["--dtype", "int8"], "'int8' is not one of 'auto', 'float32', 'bfloat16', 'float16'"),
        (["--on-error", "ignore"], "error: on_error is 'ignore': expected one of raise, skip"),
        (["--exit-criterion", "patience"], "'patience' is not one of 'learned',"),
        (["--batch-size", "0"], "error: Invalid value for '--batch_size'"),
        (["--encoding", "utf-99"], "error: encoding is 'utf-99'"),
    ],
)
def test_refusals(refuse, run_folder, file, monkeypatch, flags, message):
    monkeypatch.chdir(file.parent)
    (file.parent / "old.csv").touch()
    given = {"--file": "new.csv", "--output": "p.csv"}
    words = [word for name, value in given.items() if name not in flags for word in (name, value)]
    assert message in refuse("predict", run_folder, *words, *flags)
    assert sorted(os.listdir()) == ["new.csv", "old.csv", "run"]


@pytest.mark.nightly
def test_a_killed_command_leaves_no_output(run, run_folder, tmp_path):
    file, output, number = tmp_path / "new.csv", tmp_path / "p.parquet", 40_000
    file.write_text("id,text\n" + "".join(f"{row},[MAX {row % 10} {row // 10 % 10} ]\n" for row in range(number)))
    words = ["--file", file, "--output", output, "--keep-column", "id", "--max-depth", "1"]
    command = [sys.executable, "-c", "from hf_recurrent.cli import main; main()", "predict", run_folder, *words]
    progress = tmp_path / "progress.txt"
    with progress.open("wb") as errors:
        process = subprocess.Popen(list(map(str, command)), stderr=errors, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 300
        # some rows have been predicted
        while not re.search(r"[1-9]\d*/40000", progress.read_text()):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not output.exists()
    status, out, err = run("predict", run_folder, *words)
    assert status == 0, err
    assert "40,000 rows" in out
    assert pq.read_table(output)["id"].to_pylist() == list(map(str, range(number)))
    assert not list(tmp_path.glob(".p.parquet.*"))
