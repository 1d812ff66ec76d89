"""A campaign of trials, each drawn from a generator of its own, so that one can be repeated."""

import random
from collections.abc import Callable
from typing import NamedTuple

from fuzz.campaigns import Findings


class Trial(NamedTuple):
    """How a trial ended: what was tried, the first of `kinds` being that of the table, and what disagreed."""

    kinds: tuple[str, ...]
    faults: tuple[str, ...]


def campaign_of(draw: Callable[[random.Random], Trial], seconds: float, count: float, seed: int) -> Findings:
    """Trials for so long, or so many of them."""
    found = Findings(("same", "different"))
    for number in found.trials(seconds, count):
        trial = draw(random.Random(f"{seed} {number}"))
        found.counts[trial.kinds[0]]["different" if trial.faults else "same"] += 1
        found.faults += [f"seed {seed}, trial {number} ({', '.join(trial.kinds)}): {each}" for each in trial.faults]
    return found
