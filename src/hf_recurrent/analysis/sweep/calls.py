"""How many applications of the shared block a pass takes, from the steps at which its halting units stopped.

Shapes: B rows, U halting units of a row (tokens, chunks, sentences, or the row itself), L most depth steps.
"""

from typing import Any

import numpy as np

from ..halting.inference import halting_of
from ..halting.record import ADDITIVE


def executed_calls(
    steps: np.ndarray, config: Any, most_steps: int, sentences: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Block calls of each row, and how many units it has: two (B,).

    A call is one unit through the block once, where units that have halted are left out (`compaction`). A unit that
    stops after k steps takes k calls; one more where halting is judged by what the block would make of the unit
    (`transition_aware`), unless no step was left. Under adaptive computation time halted tokens go on for the others to
    read, so that all take as many as the deepest.

    Args:
        steps: (B, U) accepted steps, negative where there is no unit.
        most_steps: L.
        sentences: (B, U) which sentence a token belongs to, where the sentences of a pair are read apart.
    """
    live = steps >= 0
    units = live.sum(1)
    if not config.hard_stop or _judges_by_halted(config) or never_spares(config):
        return units * most_steps, units
    if halting_of(config) in ADDITIVE:
        groups = np.zeros_like(steps) if sentences is None else sentences
        calls = np.zeros(len(steps), dtype=np.int64)
        for group in np.unique(groups[live]):
            members = live & (groups == group)
            calls += members.sum(1) * np.where(members, steps, 0).max(1)
        return calls, units
    taken = np.minimum(steps + bool(getattr(config, "transition_aware", False)), most_steps)
    return np.where(live, taken, 0).sum(1), units


def _judges_by_halted(config: Any) -> bool:
    """Whether running means count what the block would make of halted tokens, so that no step can be spared."""
    return getattr(config, "halted_candidates", False) and getattr(config, "running_mean", False)


def never_spares(config: Any) -> bool:
    """Whether tokens that have halted go on being computed, as the reference of sparse models does."""
    return getattr(config, "halted_tokens", "frozen") == "released"
