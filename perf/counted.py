"""Counted work of small models of every architecture, for inference, training and decoding.

    python -m perf counted

The numbers are the same on every machine, so that a test sets those of today beside the stored ones. Sequences have
mixed lengths, and halting leaves about 0.4 of the token-steps. `products` are multiply-accumulates, `calls` those of
operators (views excepted), `waits` those for a number or a shape that a GPU would have to tell, `token-steps` the
tokens that depth steps or layers are applied to. `over alone` is the ratio of the products to those of each sequence by
itself.
"""

import argparse
import functools
from collections.abc import Callable, Iterator

import torch

from .core import Table, device_is_cuda
from .models import Batch, add_size_options, build, infer, mixed_batch, padded_batch, random_lengths, train_step
from .models import tune_depth as tune
from .work import Work, counted, device_waits

ARCHITECTURES = ("ut", "gut", "xpos_transformer", "ndr", "sut", "tlb", "gutlb", "block_recurrent", "rnn")
TITLE = "Counted work of small models"
MEASURES = ("products", "calls", "waits", "token-steps", "over alone")
TOLERANCE = 0.15


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=64, steps=6)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=32, help="longest sequence; the shortest has a quarter of it")
    parser.add_argument("--new-tokens", type=int, default=4, help="decoded behind each prompt")
    parser.add_argument("--depth", type=float, default=0.4, help="share of token-steps that halting leaves")


def alone(batch: Batch) -> Iterator[Batch]:
    """Each sequence as a batch without padding."""
    for row, mask in enumerate(batch["attention_mask"].bool()):
        yield {name: values[row : row + 1, mask] for name, values in batch.items()}


def generate(model: torch.nn.Module, batch: Batch, tokens: int) -> torch.Tensor:
    return model.generate(**batch, max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0)


def calls_of(architecture: str, args: argparse.Namespace) -> Iterator[tuple[str, torch.nn.Module, Callable, Batch]]:
    """Modes with their models, steps and batches."""
    batch = mixed_batch(args, args.batch_size, args.length)
    model = build(architecture, args)
    halts = architecture not in ("xpos_transformer", "tlb", "block_recurrent", "rnn")
    if halts:
        tune(model, batch, args.depth)
    yield "inference", model, infer, batch
    if halts:
        # exit criteria are of evaluation
        model.config.exit_criterion = "learned"
    yield "training", model.train(), train_step, batch
    model = build(architecture, args, causal=True)
    prompts = padded_batch(random_lengths(args.batch_size, args.length // 4, args.length, args.seed), args, left=True)
    if halts and architecture != "ndr":
        tune(model, prompts, args.depth)
    yield "decoding", model, lambda model, prompts: generate(model, prompts, args.new_tokens), prompts


def rows_of(architecture: str, args: argparse.Namespace) -> Iterator[tuple[dict, Work]]:
    for mode, model, step, batch in calls_of(architecture, args):
        call = functools.partial(step, model, batch)
        work = counted(model, call)
        # in training as in inference
        rows = [] if mode == "training" else alone(batch)
        single = sum(counted(model, functools.partial(step, model, row)).products for row in rows)
        row = {
            "architecture": architecture,
            "mode": mode,
            "products": work.products,
            "calls": work.calls,
            "waits": work.waits,
            "token-steps": work.token_steps,
            "over alone": work.products / single if single else None,
        }
        if device_is_cuda(args.device):
            row["GPU waits"] = device_waits(call)
        yield row, work


def regressions(before: list[dict], now: list[dict], tolerance: float = TOLERANCE) -> list[str]:
    """What got worse by more than the tolerance, by architecture and mode; a row that is gone is worse, too."""
    found = {(row["architecture"], row["mode"]): row for row in now}
    worse = []
    for row in before:
        key = row["architecture"], row["mode"]
        if key not in found:
            worse.append(f"{' '.join(key)}: not counted any more")
            continue
        for name in MEASURES:
            if row[name] is not None and found[key][name] > row[name] * (1 + tolerance):
                worse.append(f"{' '.join(key)}: {name} {found[key][name]:.6g}, before {row[name]:.6g}")
    return worse


def tables(args: argparse.Namespace) -> Iterator[Table]:
    counts = [count for architecture in args.architectures for count in rows_of(architecture, args)]
    rows = [row for row, _ in counts]
    yield Table(TITLE, rows)
    parts = list(dict.fromkeys(part for _, work in counts for part, _ in work.parts.most_common()))
    yield Table(
        "Products by part of the model",
        [
            {
                "architecture": row["architecture"],
                "mode": row["mode"],
                **{part: work.parts[part] / work.products for part in parts},
            }
            for row, work in counts
        ],
    )
