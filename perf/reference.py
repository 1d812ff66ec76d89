"""The authors' models and ours with equal weights, side by side.

    python -m perf reference --dynamic-halt FOLDER --ndr FOLDER --sut FOLDER

The folders hold the authors' code as they published it (JRC1995/InvestigatingRecurrentTransformers,
RobertCsordas/ndr, shawntan/SUT), which needs einops; nothing of it is kept here. Their models get random weights, and
ours the same through the converter of their checkpoints. What their code imports and a CPU does not have is stood in
for, see `perf/authors.py`. Outputs and losses must agree before anything is timed, without dropout, over batches of
mixed lengths, and of the longest alone. `padding %` is the share of places without a token, which our models leave out.
`ours / theirs` is the ratio of the times with its quartiles, then of the peak memory of tensors, then of
multiply-accumulates; `error` is the largest difference of outputs, relative to the largest output.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from . import authors
from .authors import Pair
from .core import Table, measure, peak_bytes
from .models import add_size_options, random_lengths
from .work import counted

TOLERANCE = 1e-4
ON_DEVICES = False


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=128, steps=8)
    for origin in ORIGINS:
        parser.add_argument(f"--{origin.replace('_', '-')}", type=Path, metavar="FOLDER")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lengths", type=int, nargs=2, default=(20, 100), help="shortest and longest")
    parser.add_argument("--new-tokens", type=int, default=16, help="decoded greedily, of models that translate")


ORIGINS: dict[str, tuple[Callable[..., Pair], tuple[str, ...]]] = {
    "dynamic_halt": (authors.dynamic_halt, tuple(authors.DYNAMIC_HALT)),
    "ndr": (authors.neural_data_router, ("ndr",)),
    "sut": (authors.sparse_universal, ("sut", "sut_seq2seq")),
}


def error(pair: Pair, functions: dict[str, Callable[[], torch.Tensor]], name: str) -> float:
    """Largest difference, relative to the largest output. Raises RuntimeError if it is too large."""
    theirs, ours = (functions[side]().detach().float() for side in ("theirs", "ours"))
    found = ((theirs - ours).abs().max() / theirs.abs().max()).item()
    if not found <= TOLERANCE:
        raise RuntimeError(f"outputs of {name} differ by {found:.1e} of the largest: nothing to compare")
    return found


def modes_of(pair: Pair) -> Iterator[tuple[str, dict[str, Callable[[], torch.Tensor]], dict[str, Callable[[], None]]]]:
    """Modes with the functions that must agree and the ways to time."""

    def training_step(side: str) -> Callable[[], None]:
        def step() -> None:
            pair.loss[side]().backward()
            getattr(pair, side).zero_grad()

        return step

    yield "inference", pair.forward, {side: torch.no_grad()(call) for side, call in pair.forward.items()}
    if pair.decode is not None:
        yield "decoding", pair.decode, pair.decode
    for model in (pair.theirs, pair.ours):
        model.train()
    yield "training step", pair.loss, {side: training_step(side) for side in pair.loss}


def rows_of(name: str, pair: Pair, args: argparse.Namespace) -> Iterator[dict]:
    lengths = random_lengths(args.batch_size, *args.lengths, args.seed)
    for model in (pair.theirs, pair.ours):
        model.eval()
    for mode, functions, ways in modes_of(pair):
        found = error(pair, functions, f"{name}, {mode}")
        timings = measure(ways, args)
        ratio, low, high = timings["ours"].ratio(timings["theirs"])
        memory = {side: peak_bytes(way, args.device) for side, way in ways.items()}
        products = {side: counted(getattr(pair, side), way).products for side, way in ways.items()}
        yield {
            "model": name,
            "mode": mode,
            "padding %": 100 * (1 - lengths.float().mean().item() / args.lengths[1]),
            "ours / theirs": ratio,
            "quartiles": (low, high),
            "ours ms": 1e3 * timings["ours"].median,
            "theirs ms": 1e3 * timings["theirs"].median,
            "memory": memory["ours"] / memory["theirs"],
            "products": products["ours"] / products["theirs"],
            "error": found,
        }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    given = {origin: getattr(args, origin) for origin in ORIGINS if getattr(args, origin) is not None}
    if not given:
        raise SystemExit(f"no folder was given: pass --{' or --'.join(ORIGINS)} FOLDER with the authors' code")
    for origin, folder in given.items():
        make, names = ORIGINS[origin]
        rows = []
        for name, shortest in itertools.product(names, args.lengths):
            torch.manual_seed(args.seed)
            sizes = argparse.Namespace(**{**vars(args), "lengths": (shortest, args.lengths[1])})
            rows += rows_of(name, make(folder, name, sizes), sizes)
        yield Table(f"{folder.name}: width {args.hidden_size}, {args.num_steps} steps", rows)
