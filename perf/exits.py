"""What an early exit costs beside a fixed depth of as many steps.

    python -m perf exits
    python -m perf exits --cards model_cards/ut-listops --batch-sizes 1 32

The first table is of checkpoints with their calibrated exit, on batches of the test split, sorted by length as
`hf-recurrent evaluate` reads it. `steps` is the mean of the executed steps over examples, `of tokens` that over tokens,
which is larger where long examples take more. `ratio` is the time of the passes with the exit over that of the same
batches at a fixed depth, in each batch of as many steps as its tokens take on average (interpolated between the two
depths next to it): 1 if an exit costs nothing. `of all` is the time over that of all steps. The second table is of a
model of `preset: tiny` with random weights, whose exit is set so that about 45% of the steps are taken.
"""

import argparse
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hf_recurrent import GUTConfig, GUTForSequenceClassification
from hf_recurrent.tasks.checkpoints import Request, evaluation_splits, load_checkpoint, requested_task

from .core import Table, measure, quartiles
from .models import LABELS, VOCABULARY, Batch, mixed_batch, tune_depth

CARDS = Path(__file__).parents[1] / "model_cards"
ON_DEVICES = False
STEPS, SHARE = 20, 0.45


def add_options(parser: argparse.ArgumentParser) -> None:
    names = ("ndr-ctl-forward", "ndr-listops", "ndr-arithmetic", "gut-listops")
    parser.add_argument("--cards", type=Path, nargs="+", default=[CARDS / name for name in names])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--examples", type=int, default=256, help="of the test split, about")
    parser.set_defaults(repeats=9)


@torch.no_grad()
def read(model: torch.nn.Module, batches: list[Batch], depths: list[int], **options: Any) -> None:
    for batch, depth in zip(batches, depths, strict=True):
        model(**batch, max_depth=depth, **options)


@torch.no_grad()
def executed(model: torch.nn.Module, batches: list[Batch]) -> tuple[float, list[float], list[int]]:
    """Mean steps of all rows, and mean steps of the tokens of each batch with their number."""
    found, by_token, tokens = [], [], []
    for batch in batches:
        steps, lengths = model(**batch).ponder_steps.float(), batch["attention_mask"].sum(-1)
        found.append(steps)
        tokens.append(int(lengths.sum()))
        by_token.append((steps * lengths).sum().item() / tokens[-1])
    return torch.cat(found).mean().item(), by_token, tokens


def row_of(model: torch.nn.Module, batches: list[Batch], args: argparse.Namespace) -> dict[str, Any]:
    most = model.config.num_hidden_layers
    steps, by_token, tokens = executed(model, batches)
    below = [min(most - 1, math.floor(depth)) for depth in by_token]
    # between the two depths, by the tokens of each batch
    share = sum(n * (mean - low) for n, mean, low in zip(tokens, by_token, below, strict=True)) / sum(tokens)
    depths = {"few": below, "many": [low + 1 for low in below], "all": [most] * len(batches)}
    ways = {name: partial(read, model, batches, each, exit_criterion="learned") for name, each in depths.items()}
    timings = measure({"exit": partial(read, model, batches, depths["all"]), **ways}, args)
    rounds = zip(*(timings[name].seconds for name in ("exit", "few", "many")), strict=True)
    low, middle, high = quartiles([taken / (few + share * (many - few)) for taken, few, many in rounds])
    places = sum(each["attention_mask"].numel() for each in batches)
    mean = sum(n * depth for n, depth in zip(tokens, by_token, strict=True)) / sum(tokens)
    return {
        "steps": steps,
        "of tokens": mean,
        "of": most,
        "padding %": 100 * (1 - sum(tokens) / places),
        "exit ms": 1e3 * timings["exit"].median,
        "ratio": middle,
        "quartiles": (low, high),
        "of all": timings["exit"].ratio(timings["all"])[0],
        "ideal": mean / most,
    }


def batches_of(card: Path, batch_size: int, examples: int) -> tuple[torch.nn.Module, list[Batch]]:
    checkpoint = load_checkpoint(card, "cpu")
    data = checkpoint.results["data"]
    request = Request(data["name"], data["config"], splits=("test",))
    split = next(evaluation_splits(checkpoint, request, requested_task(checkpoint, request)))
    every = max(1, len(split.dataset) // examples)
    batches = list(split.batches(checkpoint.tokenizer, batch_size))[every // 2 :: every]
    return checkpoint.model, [{name: each[name] for name in ("input_ids", "attention_mask")} for each in batches]


def tiny(args: argparse.Namespace, batch_size: int) -> tuple[torch.nn.Module, list[Batch]]:
    torch.manual_seed(args.seed)
    sizes = {"vocab_size": VOCABULARY, "num_labels": LABELS, "num_hidden_layers": STEPS, "initializer_range": 1.0}
    config = GUTConfig.preset("tiny", exit_criterion="confidence", exit_threshold=0.5, **sizes)
    model = GUTForSequenceClassification(config).eval()
    batch = mixed_batch(args, batch_size, longest=32)
    tune_depth(model, batch, SHARE)
    return model, [batch]


def tables(args: argparse.Namespace) -> Iterator[Table]:
    rows = [
        {"card": card.name, "batch": size, **row_of(*batches_of(card, size, args.examples), args)}
        for card in args.cards
        for size in args.batch_sizes
    ]
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    yield Table("Calibrated exits over a fixed depth of as many steps", rows, f"Geometric mean of `ratio`: {mean:.2f}.")
    rows = [{"batch": size, **row_of(*tiny(args, size), args)} for size in args.batch_sizes]
    yield Table(f"An exit of `preset: tiny`, width 64, up to 32 tokens, at most {STEPS} steps", rows)
