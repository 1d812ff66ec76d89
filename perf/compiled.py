"""Training steps whose block `torch.compile` has compiled, against eager ones, on batches of many shapes.

    python -m perf compiled
    python -m perf compiled --device cuda --dtype bfloat16 --hidden-sizes 512

`graphs` are those that all batches and depths have made, `first round s` the seconds of the first reading of all
batches, compilation included. `ratio` is the time of the later rounds over that without compilation.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._inductor.config
from torch._dynamo.utils import counters

from .core import Table, measure, time_columns
from .models import add_size_options, build, mixed_batch, padded_batch, random_lengths, train_step, tune_depth
from .packing import each

ARCHITECTURES = ("ut", "gut")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, steps=6)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[128, 256])
    parser.add_argument("--depth", type=float, default=0.5, help="share of token-steps that halting leaves")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--length", type=int, default=64, help="longest sequence; the shortest has a quarter of it")


def batches_of(args: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    """Batches of which each has a number of rows and a width of its own."""
    sizes = [(args.batch_size - number, args.length - 2 * number) for number in range(args.batches)]
    lengths = (random_lengths(rows, longest // 4, longest, args.seed + rows) for rows, longest in sizes)
    return [padded_batch(few, args) for few in lengths]


def first_compiled(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the seconds of a call that compiles anew, whatever was compiled or stored before."""
    torch._inductor.config.force_disable_caches = True
    torch.compiler.reset()
    counters.clear()
    start = time.perf_counter()
    return call(), time.perf_counter() - start


def row_of(architecture: str, compaction: bool, args: argparse.Namespace) -> dict:
    eager, compiled = (build(architecture, args, compaction=compaction) for _ in range(2))
    found = tune_depth(eager, mixed_batch(args, args.batch_size, args.length), args.depth)
    compiled.config.halting_threshold = eager.config.halting_threshold
    compiled.model.block.compile()
    batches = batches_of(args)
    ways = {
        name: each(train_step, model.train(), batches) for name, model in (("eager", eager), ("compiled", compiled))
    }
    _, seconds = first_compiled(ways["compiled"])
    timings = measure(ways, args)
    return {
        "architecture": architecture,
        "width": args.hidden_size,
        "compaction": "yes" if compaction else "no",
        "r": found,
        "graphs": counters["stats"]["unique_graphs"],
        "first round s": seconds,
        "eager ms": 1e3 * timings["eager"].median,
        **time_columns(timings["compiled"], timings["eager"]),
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    rows = []
    for width in args.hidden_sizes:
        args.hidden_size = width
        for architecture in args.architectures:
            rows += [row_of(architecture, compaction, args) for compaction in (True, False)]
    sizes = f"{args.batches} batches of up to {args.batch_size} sequences and {args.length} tokens"
    yield Table(f"Compiled blocks: training steps, {sizes}, at most {args.num_steps} steps", rows)
