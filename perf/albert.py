"""ALBERT here and in transformers: loading, the forward pass, and the same with half of the sequences leaving early.

    python -m perf albert
    python -m perf albert --size large --rows 8 --length 128

Both have the same random weights. In `half leave` the classifier of one step is sure of every second sequence, which
leaves the batch after it. `peak MiB` is the memory of tensors that a call adds at its peak.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from transformers import AlbertConfig, AlbertForSequenceClassification, PreTrainedModel

from hf_recurrent import AlbertRecurrentConfig, from_pretrained_recurrent
from hf_recurrent.convert.albert import ALBERT

from .core import MEBIBYTE, Table, compared, measure, peak_bytes
from .models import infer

ON_DEVICES = False
SIZES = ("tiny", "small", "base", "large")
THEIRS, OURS, HALF = "transformers", "this package", "this package, half leave"
SURE = 1e6


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--rows", type=int, default=16, help="of a batch")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sequence")
    parser.add_argument("--exit", type=int, default=6, help="the step after which half of the sequences leave")


def save_random(folder: Path, size: str) -> None:
    fields = ALBERT.their_fields(AlbertRecurrentConfig.preset(size))
    AlbertForSequenceClassification(AlbertConfig(**fields, num_labels=3)).save_pretrained(folder)


def let_half_leave(model: PreTrainedModel, batch: dict[str, torch.Tensor], step: int) -> None:
    """Make the classifier of a step sure of the half of a batch whose features are large, and the others of nothing."""
    with torch.no_grad():
        features = model.model(**batch, max_depth=step, exit_criterion="learned").pooler_output
    direction = features[0] - features.mean(0)
    scores = features @ direction
    with torch.no_grad():
        for classifier in model.classifiers:
            nn.init.zeros_(classifier.weight)
            nn.init.zeros_(classifier.bias)
        scale = SURE / (scores - scores.median()).abs().max()
        model.classifiers[step - 1].weight[2] = scale * direction
        # between the two values in the middle
        middle = scores.sort().values[len(scores) // 2 - 1 : len(scores) // 2 + 1].mean()
        model.classifiers[step - 1].bias[2] = -scale * middle
    model.config.exit_criterion, model.config.exit_threshold = "confidence", 0.75


def loaders(folder: Path) -> dict[str, Callable[[], PreTrainedModel]]:
    return {
        THEIRS: partial(AlbertForSequenceClassification.from_pretrained, folder),
        OURS: partial(from_pretrained_recurrent, folder),
    }


def with_memory(ways: dict[str, Callable[[], object]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each way: times, and peak memory."""
    rows = compared(measure(ways, args), THEIRS)
    return [row | {"peak MiB": peak_bytes(ways[row["way"]], args.device) / MEBIBYTE} for row in rows]


def tables(args: argparse.Namespace) -> Iterator[Table]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_random(folder, args.size)
        ways = loaders(folder)
        yield Table(f"Loading ALBERT {args.size}", with_memory(ways, args))
        theirs, ours = (load().eval() for load in ways.values())
        half = from_pretrained_recurrent(folder, step_classifiers="separate", ignore_mismatched_sizes=True).eval()
    ids = torch.randint(4, theirs.config.vocab_size, (args.rows, args.length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    let_half_leave(half, batch, args.exit)
    steps = infer(half, batch).ponder_steps
    calls = {name: partial(infer, model, batch) for name, model in ((THEIRS, theirs), (OURS, ours), (HALF, half))}
    difference = (infer(theirs, batch).logits - infer(ours, batch).logits).abs().max().item()
    yield Table(
        f"ALBERT {args.size}, {args.rows} sequences of {args.length} tokens, {steps.float().mean():.1f} of "
        f"{theirs.config.num_hidden_layers} steps where half leave, logits within {difference:.0e} of transformers'",
        with_memory(calls, args),
    )
