"""What every campaign is made of: a clock, counts of cases by kind and outcome, a table of them, and a command line.

A campaign is a module of this folder with a function `campaign(*, seconds, count, seed)` that returns its `Findings`,
and that runs as a program:

    cd tests; python -m fuzz.invariances --seconds 600 --count 1000 --seed 0

It ends with a table of counts and, if it found a fault or tried nothing, with exit status 1.
"""

import argparse
import itertools
import math
import random
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.utils import logging


@dataclass
class Findings:
    """What a campaign has tried, and what it found.

    Attributes:
        columns: outcomes that the table shows first, in this order.
        counts: kind of case -> outcome -> number.
        faults: broken promises; `str` shows each.
        notes: lines on what is no fault.
    """

    columns: Sequence[str] = ()
    counts: defaultdict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))
    faults: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(counter.total() for counter in self.counts.values())

    def number(self, outcome: str) -> int:
        return sum(counter[outcome] for counter in self.counts.values())

    def trials(self, seconds: float = math.inf, count: float = math.inf, faults: float = math.inf) -> Iterator[int]:
        """0, 1, ... until the time is over or so many cases or faults are counted; at least 0."""
        end = time.monotonic() + seconds
        for number in itertools.count():
            if number and (time.monotonic() >= end or self.total >= count or len(self.faults) >= faults):
                return
            yield number

    def table(self) -> str:
        """Rows of kinds, columns of outcomes, and their sums."""
        seen = {outcome: None for counter in self.counts.values() for outcome in counter}
        columns = list(dict.fromkeys([*self.columns, *seen]))
        rows = [*sorted(self.counts.items()), ("all", Counter({outcome: self.number(outcome) for outcome in columns}))]
        first, width = max(len(name) for name, _ in rows), max(map(len, ["10000", *columns]))
        lines = ["".join([" " * first, *(f" {column:>{width}}" for column in columns)])]
        for name, counter in rows:
            lines.append("".join([f"{name:{first}}", *(f" {counter[column]:{width}}" for column in columns)]))
        return "\n".join(lines)

    def __str__(self) -> str:
        last = f"{self.total} cases, {len(self.faults)} faults"
        return "\n".join([*map(str, self.faults), *self.notes, self.table(), last])


def campaign_of(
    draw: Callable[[random.Random], tuple[str, Sequence[str]]], seconds: float, count: float, seed: int
) -> Findings:
    """Trials, each drawn from a generator of its own as its kind and faults, so that one can be repeated."""
    found = Findings(("same", "different"))
    for number in found.trials(seconds, count):
        kind, faults = draw(random.Random(f"{seed} {number}"))
        found.counts[kind]["different" if faults else "same"] += 1
        found.faults += [f"seed {seed}, trial {number} ({kind}): {each}" for each in faults]
    return found


def main(campaign: Callable[..., Findings], description: str, argv: Sequence[str] | None = None) -> int:
    """Run a campaign as its flags say and show its findings -> the exit status."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop, 60 if nothing else is given")
    parser.add_argument("--count", type=float, default=math.inf, help="cases after which to stop")
    parser.add_argument("--seed", type=int, default=0)
    flags = vars(parser.parse_args(argv))
    if flags["seconds"] == flags["count"] == math.inf:
        flags["seconds"] = 60.0
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    found = campaign(**flags)
    print(found)
    return int(bool(found.faults) or found.total == 0)
