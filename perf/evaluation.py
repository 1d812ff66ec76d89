"""Throughput of `hf-recurrent evaluate`, beside a bare loop.

    python -m perf evaluation
    python -m perf evaluation --checkpoint model_cards/ndr-ctl-forward --benchmark compositional_table_lookup \
        --config forward

Both answer the same examples. `evaluate` starts from their texts and ends with tables of accuracy and depth by
difficulty. The bare loop runs on batches of the same size that are sorted by length, encoded and padded beforehand.
Drawing the examples and loading the checkpoint are left out.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from hf_recurrent.tasks.base import Split
from hf_recurrent.tasks.checkpoints import Request, evaluation_splits, load_checkpoint, requested_task

from .core import Table, compared, measure

CHECKPOINT = Path(__file__).parents[1] / "tests" / "checkpoints" / "gut-listops-cpu"
ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--benchmark", default="listops", help="that the checkpoint answers")
    parser.add_argument("--config", help="of the benchmark")
    parser.add_argument("--split", default="train")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64)


def tables(args: argparse.Namespace) -> Iterator[Table]:
    checkpoint = load_checkpoint(args.checkpoint, "cpu")
    request = Request(args.benchmark, args.config, splits=(args.split,), limit=args.examples)
    task = requested_task(checkpoint, request)

    def split() -> Split:
        return next(evaluation_splits(checkpoint, request, task))

    def evaluate() -> None:
        split().measure(checkpoint.model, checkpoint.tokenizer, args.batch_size)

    batches = [dict(batch) for batch in split().batches(checkpoint.tokenizer, args.batch_size)]

    @torch.no_grad()
    def bare() -> None:
        for batch in batches:
            (checkpoint.model(**batch).logits.argmax(-1) == batch["labels"]).sum()

    rows = compared(measure({"bare loop": bare, "evaluate": evaluate}, args), "bare loop")
    number = len(split().dataset)
    title = f"Evaluation of {args.checkpoint.name}, {number:,} examples"
    yield Table(title, [{**row, "examples a second": 1e3 * number / row["ms"]} for row in rows])
