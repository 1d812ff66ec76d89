"""Ouro and Huginn at fixed depths and by exit criteria: bits per token, steps and time on the same text.

    python docs/your_data/make_python_data.py
    hf-recurrent train docs/your_data/ouro.yaml --output_dir runs/ouro
    hf-recurrent train docs/your_data/huginn.yaml --output_dir runs/huginn
    python -m perf language_exits source_test.txt --checkpoints runs/ouro runs/huginn

Tokens of these checkpoints are bytes. `same token %` compares the likeliest next tokens with
those of all steps. `computed` and `last` are the ways of `skipped_steps`: with the first, others see a stopped token's
keys of every step, which are all computed; with the second those of its last step. Bits are of all blocks of the text
that are read, times of a part of them.
"""

import argparse
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_recurrent.models.config.exit_criteria import LEARNED
from hf_recurrent.tasks.checkpoints import load_checkpoint

from .core import Table, compared, measure

ON_DEVICES = False
WAYS = ("computed", "last")
# criterion, its threshold or patience, and steps before which it stops no token; the gate is Ouro's
EXITS = (
    *((LEARNED, value, None) for value in (0.3, 0.5, 0.7, 0.9)),
    *(("convergence", value, None) for value in (0.03, 0.1, 0.3)),
    *(("agreement", value, None) for value in (5e-4, 5e-3, 5e-2)),
    *(("stability", value, None) for value in (1, 2)),
    *(("confidence", value, steps) for steps in (None, 2) for value in (0.5, 0.7, 0.9)),
    ("entropy", 1.0, None),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", default="source_test.txt", help="a text that it was not trained on")
    usual = [Path("runs/ouro"), Path("runs/huginn")]
    parser.add_argument("--checkpoints", type=Path, nargs="+", default=usual, help="of language models")
    parser.add_argument("--blocks", type=int, default=400, help="of the text, evenly over it")
    parser.add_argument("--block-size", type=int, default=128, help="tokens of a block, which is read by itself")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--timed", type=int, default=2, help="batches that are timed")


def blocks_of(text: str, tokenizer: PreTrainedTokenizerBase, args: argparse.Namespace) -> list[torch.Tensor]:
    """Token ids (B, S) of blocks, in batches."""
    characters = args.block_size * math.ceil(len(text) / max(1, args.blocks) / args.block_size)
    # a block begins where its part of the text does
    parts = [text[start : start + characters] for start in range(0, len(text), characters)]
    ids = [tokenizer(part, add_special_tokens=False).input_ids[: args.block_size] for part in parts]
    whole = torch.tensor([block for block in ids if len(block) == args.block_size][: args.blocks])
    return list(whole.split(args.batch_size))


class Reading(NamedTuple):
    """Result of reading some blocks: bits of all predicted tokens, the likeliest ones (N,), and steps of all tokens."""

    bits: float
    likeliest: torch.Tensor
    steps: torch.Tensor


@torch.no_grad()
def read(model: Any, batches: list[torch.Tensor], skipped_steps: str, options: dict[str, Any]) -> Reading:
    model.config.skipped_steps = skipped_steps
    bits, likeliest, steps = 0.0, [], []
    for ids in batches:
        outputs = model(ids, **options)
        logits = outputs.logits[:, :-1].flatten(0, 1)
        bits += nn.functional.cross_entropy(logits, ids[:, 1:].flatten(), reduction="sum").item() / math.log(2)
        likeliest.append(logits.argmax(-1))
        steps.append(outputs.ponder_steps.flatten())
    return Reading(bits, torch.cat(likeliest), torch.cat(steps).float())


def all_steps(model: Any, steps: int) -> dict[str, Any]:
    """Options of a call in which no token stops before so many steps."""
    return {"max_depth": steps, **({"halting_threshold": 1.0} if model.config.halting != "none" else {})}


def exits_of(model: Any) -> dict[str, dict[str, Any]]:
    """Options of calls by what stops tokens."""
    found = {}
    for criterion, value, min_depth in EXITS:
        if criterion == LEARNED:
            if model.config.halting != "none":
                found[f"gate {value:g}"] = {"halting_threshold": value}
            continue
        setting = "exit_patience" if criterion == "stability" else "exit_threshold"
        start = "" if min_depth is None else f", from step {min_depth}"
        found[f"{criterion} {value:g}{start}"] = {
            "exit_criterion": criterion,
            setting: value,
            "min_depth": min_depth,
        }
    return found


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for folder in args.checkpoints:
        yield from tables_of(folder, args)


def tables_of(folder: Path, args: argparse.Namespace) -> Iterator[Table]:
    """Fixed depths up to twice the usual one, and exits, of a checkpoint."""
    checkpoint = load_checkpoint(folder, "cpu", tasks=("text-generation",))
    model, depth = checkpoint.model, checkpoint.model.config.num_hidden_layers
    batches = blocks_of(Path(args.text).read_text(encoding="utf-8"), checkpoint.tokenizer, args)
    tokens = sum(ids[:, 1:].numel() for ids in batches)
    title = f"{folder.name}, {tokens:,} tokens of {Path(args.text).name}"
    full = read(model, batches, "last", all_steps(model, depth))

    def row(reading: Reading) -> dict[str, Any]:
        same = (reading.likeliest == full.likeliest).float().mean().item()
        return {
            "steps": reading.steps.mean().item(),
            "bits per token": reading.bits / tokens,
            "same token %": 100 * same,
        }

    fixed = [(steps, read(model, batches, "last", all_steps(model, steps))) for steps in range(1, 2 * depth + 1)]
    rows = [{"max_depth": steps, **row(reading)} for steps, reading in fixed]
    yield Table(f"{title}: fixed depths, of which the config has {depth}", rows)
    ways = {("all steps", "-"): ("last", all_steps(model, depth))}
    ways |= {(name, way): (way, options) for name, options in exits_of(model).items() for way in WAYS}
    timings = measure({name: partial(read, model, batches[: args.timed], *way) for name, way in ways.items()}, args)
    rows = [
        {"exit": name, "skipped_steps": way, **row(read(model, batches, *ways[name, way])), **times}
        for (name, way), times in ((each.pop("way"), each) for each in compared(timings, ("all steps", "-")))
    ]
    yield Table(f"{title}: exits", rows)
