"""Campaigns of malformed input: random cases, each from a generator of its own, and the verdicts on their answers."""

import random
import tempfile
from collections.abc import Callable
from unittest import mock

import datasets
import huggingface_hub

from fuzz.campaigns import Findings
from fuzz.refusing.verdict import VERDICTS, Case

# the share of answers that must be clear; the others may be obscure, but nothing worse
CLEAR_SHARE = 0.99


def campaign_of(draw: Callable[[random.Random], Case], *, seconds: float, count: float, seed: int) -> Findings:
    """Verdicts on the cases that `draw` makes."""
    found = Findings(VERDICTS)
    datasets.disable_progress_bars()
    # rows made here stay out of the user's cache
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.object(datasets.config, "HF_DATASETS_CACHE", cache),
        mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True),
    ):
        for number in found.trials(seconds, count):
            add(found, draw(random.Random(f"{seed} {number}")))
    share = found.number("clear") / found.total
    if share < CLEAR_SHARE:
        found.faults.append(f"only {share:.1%} of the answers are clear, of {CLEAR_SHARE:.0%} that must be")
    return found


def add(found: Findings, case: Case) -> None:
    """Count a case, by its subject up to a bracket."""
    found.counts[case.subject.partition(" (")[0]][case.verdict] += 1
    if case.verdict == "obscure":
        found.notes.append(str(case))
    elif case.verdict != "clear":
        found.faults.append(case)
