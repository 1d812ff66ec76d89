"""Memory and throughput of `hf-recurrent predict` on short rows.

    python -m perf predict
    python -m perf predict --rows 200000 --fewer-rows 20000 --repeats 3

The first figure is throughput, from a CSV to a Parquet file, beside that of a bare loop over ideal batches, which are
encoded and padded beforehand, sorted by length over all rows, and of the same size. The second is the peak memory of a
process that predicts a file of `--fewer-rows` rows, and of one that predicts `--rows`.
"""

import argparse
import csv
import random
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the architectures
from hf_recurrent.analysis.predict import PredictionSettings, by_length, predict_file
from hf_recurrent.data.reading import Reading, read_rows

from .core import Table, compared, in_new_process, measure

CHECKPOINT = Path(__file__).parents[1] / "tests" / "checkpoints" / "gut-listops-cpu"
OPERATORS = ("MAX", "MIN", "MED", "SM")
ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fewer-rows", type=int, default=100_000)
    parser.add_argument("--throughput-rows", type=int, default=4096)
    parser.add_argument("--max-depth", type=int, default=2, help="depth of the memory runs, for time's sake")
    parser.set_defaults(repeats=20)


def write_rows(path: Path, number: int) -> Path:
    """A CSV file of ListOps expressions of 3 to 12 words, with ids."""
    choose = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text"))
        for row in range(number):
            digits = choose.choices("0123456789", k=choose.randint(2, 10))
            writer.writerow((row, f"[{choose.choice(OPERATORS)} {' '.join(digits)} ]"))
    return path


def load(folder: Path) -> tuple:
    return AutoModelForSequenceClassification.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def peak_of(path: Path, args: argparse.Namespace) -> float:
    """Peak memory in MiB of a process that predicts a file."""
    torch.set_num_threads(args.threads)
    settings = PredictionSettings(keep_columns=("id",), options={"max_depth": args.max_depth})
    predict_file(*load(args.checkpoint), read_rows(path, Reading()), path.with_suffix(".parquet"), settings)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def throughput(args: argparse.Namespace, folder: Path) -> list[dict]:
    model, tokenizer = load(args.checkpoint)
    path = write_rows(folder / "throughput.csv", args.throughput_rows)
    settings = PredictionSettings(keep_columns=("id",))
    ids = tokenizer([row["text"] for row in read_rows(path, Reading())])["input_ids"]
    sizes = settings.batch_size, settings.batch_tokens
    batches = [
        tokenizer.pad({"input_ids": [ids[place] for place in places]}, return_tensors="pt")
        for places in by_length(np.array(list(map(len, ids))), np.arange(len(ids)), *sizes)
    ]

    @torch.no_grad()
    def bare() -> None:
        for inputs in batches:
            model(**inputs)

    def predict() -> None:
        predict_file(
            model, tokenizer, read_rows(path, Reading()), folder / "throughput.parquet", settings, overwrite=True
        )

    rows = compared(measure({"bare loop": bare, "predict": predict}, args), "bare loop")
    return [{**row, "rows a second": 1e3 * args.throughput_rows / row["ms"]} for row in rows]


def tables(args: argparse.Namespace) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as folder:
        yield Table(f"Throughput, {args.throughput_rows:,} rows", throughput(args, Path(folder)))
        files = {number: write_rows(Path(folder) / f"{number}.csv", number) for number in (args.fewer_rows, args.rows)}
        peaks = {number: in_new_process(peak_of, path, args) for number, path in files.items()}
        yield Table("Peak memory", [{"rows": number, "MiB": peak} for number, peak in peaks.items()])
