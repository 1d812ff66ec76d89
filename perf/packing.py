"""Work and time that padding costs: batches of mixed lengths against sorted ones, and against none.

    python -m perf packing
    python -m perf packing --architectures ndr sut --hidden-size 512

The same sequences are read in batches as they come, in batches sorted by length, and as batches of as many tokens whose
sequences have all the mean length. Every unit takes all steps. `ratio` is the time over that without padding,
`products` and `token-steps` are the same of counted work.
"""

import argparse
from collections.abc import Callable, Iterator

import torch

from .core import Table, measure, time_columns
from .models import add_size_options, build, infer, padded_batch, random_lengths, train_step
from .work import counted

ARCHITECTURES = ("ut", "gut", "xpos_transformer", "ndr", "sut", "tlb", "gutlb")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=256, steps=4)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs=2, default=(20, 100), help="shortest and longest")


def batches_of(args: argparse.Namespace) -> dict[str, list[dict[str, torch.Tensor]]]:
    lengths = random_lengths(args.rows, *args.lengths, args.seed)
    mixed = lengths.split(args.batch_size)
    return {
        "no padding": [padded_batch(torch.full_like(few, round(few.float().mean().item())), args) for few in mixed],
        "sorted": [padded_batch(few, args) for few in lengths.sort().values.split(args.batch_size)],
        "mixed": [padded_batch(few, args) for few in mixed],
    }


def each(step: Callable, model: torch.nn.Module, batches: list[dict[str, torch.Tensor]]) -> Callable[[], None]:
    def call() -> None:
        for batch in batches:
            step(model, batch)

    return call


def rows_of(architecture: str, args: argparse.Namespace) -> Iterator[dict]:
    halts = architecture not in ("xpos_transformer", "tlb", "ndr")
    depth = {"halting": "none"} if halts else {}
    model = build(architecture, args, **depth)
    if architecture == "ndr":
        model.config.exit_criterion = "learned"
    batches = batches_of(args)
    for mode, step in (("inference", infer), ("training step", train_step)):
        model.train(mode != "inference")
        ways = {name: each(step, model, group) for name, group in batches.items()}
        timings = measure(ways, args)
        works = {name: counted(model, way) for name, way in ways.items()}
        base = works["no padding"]
        for name, timing in timings.items():
            yield {
                "architecture": architecture,
                "mode": mode,
                "batches": name,
                **time_columns(timing, timings["no padding"]),
                "products": works[name].products / base.products,
                "token-steps": works[name].token_steps / base.token_steps,
                "over sorted": timing.ratio(timings["sorted"])[0],
            }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    lengths = " to ".join(map(str, args.lengths))
    rows = [row for architecture in args.architectures for row in rows_of(architecture, args)]
    yield Table(
        f"Padding: {lengths} tokens, batches of {args.batch_size}, width {args.hidden_size}, {args.num_steps} steps",
        rows,
    )
