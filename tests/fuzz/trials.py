"""A campaign whose trials end with a name and the faults that they found, and its report."""

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from transformers.utils import logging


class Trial(NamedTuple):
    """How a trial ended: what was tried, in `kinds` that are counted, and what disagreed."""

    kinds: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass
class Counts:
    """Numbers of trials by kind, and what disagreed, with the seed and number of the trial."""

    trials: Counter = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{number:7d} {name}" for name, number in sorted(self.trials.items())]
        return "\n".join([*lines, f"{len(self.faults):7d} disagreements", *self.faults])


def campaign_of(draw: Callable[[random.Random], Trial], seconds: float | None, count: int | None, seed: int) -> Counts:
    """Trials for so long, or so many of them, each from a generator of its own so that one can be repeated."""
    counts = Counts()
    end = None if seconds is None else time.monotonic() + seconds
    for number in itertools.count():
        if number == count or (end is not None and time.monotonic() > end):
            return counts
        trial = draw(random.Random(f"{seed} {number}"))
        counts.trials.update((*trial.kinds, "trials"))
        counts.faults += [f"seed {seed}, trial {number} ({', '.join(trial.kinds)}): {each}" for each in trial.faults]


def main_of(campaign: Callable[..., Counts]) -> None:
    """Run a campaign as its flags say; exit with status 1 if anything disagreed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--count", type=int, help="trials")
    parser.add_argument("--seed", type=int, default=0)
    flags = vars(parser.parse_args())
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    counts = campaign(**flags)
    sys.stdout.write(f"{counts}\n")
    sys.exit(bool(counts.faults))
