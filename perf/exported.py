"""Exported graphs of a fixed depth, and with a loop that ends with the last unit, on easy and hard batches.

    python -m perf exported
    python -m perf exported --runtimes onnx --rows 8

`steps` are those of the row that takes the most, of at most so many. `fixed ms` is the time of a batch by the graph of
all steps, `ratio` that of the loop's graph over it, in the same runtime. Both batches have the same shape, so that only
depth differs. It needs the extra `export`.
"""

import argparse
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.deploy.export import FORMATS, export_model

from .core import Table, measure, time_columns
from .models import Batch, infer

ON_DEVICES = False
RUNTIMES = ("torch", "onnx")
CHECKPOINT = Path(__file__).parents[1] / "model_cards" / "ndr-ctl-forward"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", default=str(CHECKPOINT), help="a classifier of compositional table lookup")
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--rows", type=int, default=32, help="of a batch")
    parser.add_argument("--easy", type=int, default=2, help="the most functions of an easy example")
    parser.add_argument("--hard", type=int, default=8, help="the fewest functions of a hard one")


def batches_of(tokenizer, args: argparse.Namespace) -> dict[str, Batch]:
    """An easy batch and a hard one, padded to the same length."""
    splits = load_benchmark("compositional_table_lookup", "forward")
    rows = [row for name in ("validation", "test_basic", "test_ood") for row in splits[name]]
    chosen = {
        "easy": [row["text"] for row in rows if row["depth"] <= args.easy],
        "hard": [row["text"] for row in rows if row["depth"] >= args.hard],
    }
    encoded = {name: tokenizer(texts[: args.rows])["input_ids"] for name, texts in chosen.items()}
    length = max(len(ids) for texts in encoded.values() for ids in texts)
    return {
        name: dict(tokenizer.pad({"input_ids": texts}, padding="max_length", max_length=length, return_tensors="pt"))
        for name, texts in encoded.items()
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    # threads of a pool would wait for the next batch at full speed
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(args.checkpoint).eval()
    batches = {
        name: {key: batch[key] for key in ("input_ids", "attention_mask")}
        for name, batch in batches_of(tokenizer, args).items()
    }
    steps = {name: int(infer(model, batch).ponder_steps.max()) for name, batch in batches.items()}
    rows = []
    with TemporaryDirectory() as folder, torch.no_grad():
        for runtime in args.runtimes:
            graphs = {}
            for depth in ("fixed", "loop"):
                path = Path(folder) / f"{depth}{FORMATS[runtime].suffix}"
                export_model(model, path, runtime, depth, rows=args.rows)
                graphs[depth] = FORMATS[runtime].load(path)
            for name, batch in batches.items():
                timings = measure({depth: partial(graph, batch) for depth, graph in graphs.items()}, args)
                rows.append(
                    {
                        "runtime": runtime,
                        "batch": name,
                        "steps": steps[name],
                        "fixed ms": 1e3 * timings["fixed"].median,
                        **time_columns(timings["loop"], timings["fixed"]),
                    }
                )
    shape = " x ".join(map(str, next(iter(batches.values()))["input_ids"].shape))
    yield Table(f"Exported graphs: batches of {shape}, at most {model.config.num_hidden_layers} steps", rows)
