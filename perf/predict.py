"""Memory and throughput of `hf-recurrent predict` on short rows.

    python perf/predict.py
    python perf/predict.py --rows 200000 --fewer-rows 20000 --repeats 3

The first figure is throughput: rows a second of processor time, from a CSV to a Parquet file, over those of a bare loop
over ideal batches, which are encoded and padded beforehand, sorted by length over all rows, and of the same size. Both
take turns in one process, with one thread. The second is the peak memory of a process that predicts a file of
`--fewer-rows` rows, and of one that predicts `--rows`.
"""

import argparse
import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import hf_recurrent  # noqa: F401 - registers the architectures
from hf_recurrent.analysis.predict import PredictionSettings, predict_file
from hf_recurrent.analysis.text_batches import TextEncoder, padded_batches
from hf_recurrent.text_data.rows import Rows

CHECKPOINT = Path(__file__).parents[1] / "model_cards" / "gut-listops-cpu"
OPERATORS = ("MAX", "MIN", "MED", "SM")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fewer-rows", type=int, default=100_000)
    parser.add_argument("--throughput-rows", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--max-steps", type=int, default=2, help="depth of the memory runs, for time's sake")
    parser.add_argument("--peak-of", type=Path, help="only predict this file, and print the peak memory in MiB")
    return parser.parse_args()


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


def print_peak(args: argparse.Namespace) -> None:
    settings = PredictionSettings(keep_columns=("id",), options={"max_steps": args.max_steps})
    predict_file(*load(args.checkpoint), Rows(args.peak_of), args.peak_of.with_suffix(".parquet"), settings)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure_memory(args: argparse.Namespace, folder: Path) -> None:
    print("rows       peak memory")
    for number in (args.fewer_rows, args.rows):
        path = write_rows(folder / f"{number}.csv", number)
        flags = ["--checkpoint", args.checkpoint, "--max-steps", str(args.max_steps), "--peak-of", path]
        done = subprocess.run([sys.executable, __file__, *flags], capture_output=True, text=True, check=True)
        print(f"{number:9,}  {float(done.stdout.split()[-1]):7.0f} MiB")


def measure_throughput(args: argparse.Namespace, folder: Path) -> None:
    model, tokenizer = load(args.checkpoint)
    path = write_rows(folder / "throughput.csv", args.throughput_rows)
    settings = PredictionSettings(keep_columns=("id",))
    encoded = TextEncoder(tokenizer)([row["text"] for row in Rows(path)])
    sizes = settings.batch_size, settings.batch_tokens
    batches = [inputs for _, inputs in padded_batches(encoded, *sizes, tokenizer.pad_token_id)]

    def bare() -> None:
        with torch.no_grad():
            for inputs in batches:
                model(**inputs)

    def predict() -> None:
        predict_file(model, tokenizer, Rows(path), folder / "throughput.parquet", settings, overwrite=True)

    seconds: dict[str, list[float]] = {"bare": [], "predict": []}
    for _ in range(args.repeats):
        for name, way in (("bare", bare), ("predict", predict)):
            started = time.process_time()
            way()
            seconds[name].append(time.process_time() - started)
    print(f"{args.throughput_rows:,} rows, processor seconds, the least of {args.repeats}")
    for name, found in seconds.items():
        print(f"{name:8s} {min(found):7.2f} s  {args.throughput_rows / min(found):8,.0f} rows/s")
    print(f"throughput of predict over the bare loop: {min(seconds['bare']) / min(seconds['predict']):.3f}")


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if args.peak_of is not None:
        print_peak(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure_throughput(args, Path(folder))
        measure_memory(args, Path(folder))


if __name__ == "__main__":
    main()
