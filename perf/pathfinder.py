"""Pathfinder drawings that a core makes in a second, by size and length of the contours.

    python -m perf pathfinder

Seconds are processor time of this process; the making of tables is not counted.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from hf_recurrent.benchmarks.lra.pathfinder.generate import generate
from hf_recurrent.benchmarks.lra.pathfinder.settings import SETTINGS, make_settings

from .core import Table, measure

SMALLEST = min(SETTINGS)
ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--contour-lengths", type=int, nargs="+", default=[6, 9, 14], help="of 32 x 32 pixels")
    parser.add_argument("--number", type=int, default=100, help="of drawings of 32 x 32 pixels; a fifth of larger ones")
    parser.set_defaults(repeats=3)


def row_of(size: int, contour_length: int, args: argparse.Namespace) -> dict:
    """Drawings a second, and attempts at the two long contours of each."""
    settings = make_settings(size, contour_length)
    keys = np.arange(1, 1 + (args.number if size == SMALLEST else max(1, args.number // 5)), dtype=np.uint64)
    timing = measure({"generate": lambda: generate(settings, keys)}, args)["generate"]
    return {
        "pixels": f"{size} x {size}",
        "contours": contour_length,
        "drawings a second": len(keys) / timing.median,
        "attempts": float(generate(settings, keys).attempts.mean()),
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    cases = [(size, length) for size in args.sizes for length in (args.contour_lengths if size == SMALLEST else [14])]
    yield Table("Drawings", [row_of(size, length, args) for size, length in cases])
