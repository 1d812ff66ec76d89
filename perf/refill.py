"""Time of many examples of mixed lengths and depths, with the batch refilled at every depth step.

    python -m perf refill
    python -m perf refill --examples 10000 --architectures gut --hidden-sizes 64

Four ways to run a model over the same examples: a `DepthBatcher`, which fills the places of examples that have halted
with waiting ones; plain batches of similar lengths and as many tokens, from which halted units are gathered out; the
same batches with every step taken, and with one step. The halting threshold is searched for the wanted depth; r is the
share of token-steps that halting leaves. Times are over that of every step; `over line` is a time over one step + r *
(every step - one step), with its quartiles over the rounds.
"""

import argparse
from collections.abc import Callable, Iterator

import torch

from hf_recurrent.inference import DepthBatcher

from .core import Table, measure, over_line, quartiles
from .models import Batch, add_size_options, build, executed_fraction, infer, padded_batch, random_lengths, tune_depth

ARCHITECTURES = ("ut", "gut", "ndr", "sut")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, steps=12)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--depths", type=float, nargs="+", default=[0.15, 0.3, 0.5], help="fractions of --num-steps")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--length", type=int, default=64, help="longest example; the shortest has a quarter of it")


def sorted_batches(args: argparse.Namespace) -> list[Batch]:
    """All examples in batches of so many tokens, the longest first."""
    lengths = random_lengths(args.examples, args.length // 4, args.length, args.seed).sort(descending=True).values
    batches, start = [], 0
    while start < len(lengths):
        stop = start + max(1, args.batch_tokens // int(lengths[start]))
        batches.append(padded_batch(lengths[start:stop], args))
        start = stop
    return batches


def examples_of(batches: list[Batch], seed: int) -> list[dict[str, torch.Tensor]]:
    """The examples of all batches in random order."""
    pairs = (zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True) for batch in batches)
    examples = [{"input_ids": ids[mask].cpu()} for pair in pairs for ids, mask in pair]
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))
    return [examples[place] for place in order.tolist()]


def ways_of(model: torch.nn.Module, batches: list[Batch], args: argparse.Namespace) -> dict[str, Callable[[], None]]:
    config, examples = model.config, examples_of(batches, args.seed)
    name = "halting_threshold" if config.exit_criterion == "learned" else "exit_threshold"
    threshold = getattr(config, name)

    def in_batches(threshold: float, **options) -> Callable[[], None]:
        def call() -> None:
            setattr(config, name, threshold)
            for batch in batches:
                infer(model, {**batch, **options})

        return call

    def refilled() -> None:
        setattr(config, name, threshold)
        for _ in DepthBatcher(model, batch_tokens=args.batch_tokens)(examples):
            pass

    return {
        "refilled": refilled,
        "batches": in_batches(threshold),
        "every step": in_batches(1.0),
        "one step": in_batches(1.0, max_steps=1),
    }


def row_of(model: torch.nn.Module, batches: list[Batch], args: argparse.Namespace) -> dict:
    sizes = [int(batch["attention_mask"].sum()) for batch in batches]
    shares = [executed_fraction(model, batch) for batch in batches]
    share = sum(map(float.__mul__, shares, map(float, sizes))) / sum(sizes)
    timings = measure(ways_of(model, batches, args), args)
    row = {"r": share, "every step ms": 1e3 * timings["every step"].median}
    for way in ("refilled", "batches"):
        low, middle, high = quartiles(over_line(timings, way, share))
        row |= {
            way: timings[way].ratio(timings["every step"])[0],
            f"{way} over line": middle,
            f"{way} quartiles": (low, high),
        }
    return row


def tables(args: argparse.Namespace) -> Iterator[Table]:
    batches = sorted_batches(args)
    sizes = f"{args.examples} examples of up to {args.length} tokens, at most {args.num_steps} steps"
    for architecture in args.architectures:
        rows = []
        for width in args.hidden_sizes:
            args.hidden_size = width
            model = build(architecture, args)
            for depth in args.depths:
                tune_depth(model, batches[len(batches) // 2], depth)
                rows.append({"width": width, **row_of(model, batches, args)})
        yield Table(f"Refilled batches of {architecture}, {sizes}", rows)
