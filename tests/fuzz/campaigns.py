"""A campaign: random cases until a time or a number is reached, and its report."""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable
from unittest import mock

import datasets
import huggingface_hub
from transformers.utils import logging

from fuzz.verdict import Case, counts


def campaign_of(draw: Callable[[random.Random], Case], *, seconds: float, count: float, seed: int) -> list[Case]:
    """Cases that `draw` makes, each from a generator of its own so that one can be repeated."""
    logging.set_verbosity_error()
    datasets.disable_progress_bars()
    cases, end = [], time.monotonic() + seconds
    # rows made here stay out of the user's cache
    with (
        tempfile.TemporaryDirectory() as cache,
        mock.patch.object(datasets.config, "HF_DATASETS_CACHE", cache),
        mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True),
    ):
        for number in itertools.count():
            if len(cases) >= count or time.monotonic() >= end:
                return cases
            cases.append(draw(random.Random(f"{seed} {number}")))


def report(cases: list[Case]) -> str:
    """The number of each verdict, and the cases that are not clear."""
    rest = [case for case in cases if case.verdict != "clear"]
    lines = [f"{case.verdict}: {case.subject} {case.name}={case.value!r}\n  {case.message[-600:]}" for case in rest]
    return "\n".join([*lines, str(counts(cases))])


def main_of(campaign: Callable[..., list[Case]]) -> None:
    """Run a campaign as its flags say; exit with status 1 if a case is silent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    cases = campaign(**vars(parser.parse_args()))
    sys.stdout.write(report(cases) + "\n")
    sys.exit(counts(cases)["silent"] > 0)
