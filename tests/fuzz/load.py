"""The campaign of load: threads that call one model at once, each of which gets what it gets alone.

cd tests; python -m fuzz.load --seconds 600 --seed 0
"""

import math
import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from fuzz.campaigns import Findings, campaign_of, main
from fuzz.comparing.agreement import TOLERANCE, difference
from fuzz.comparing.cases import make_model, precision
from fuzz.comparing.configs import drawn_options
from fuzz.comparing.properties import NEW_TOKENS, Comparison, Drawing, generates
from fuzz.comparing.runs import Result, Run, execute
from fuzz.invariances import HEADS, Comparisons, drawn_case, usable_bench

# how often threads take turns, in seconds
TURNS = 1e-5


def trial(
    rng: random.Random, threads: int = 64, heads: Sequence[tuple[str, str]] = tuple(HEADS)
) -> tuple[str, list[str]]:
    """A random model that threads call at once, and once more afterwards, against a copy that is called alone.

    Each call is a forward pass or `generate`, with a batch and a way to stop of its own.
    """
    case = usable_bench(drawn_case(rng, Comparisons(), *rng.choice(heads)).but(options={}), Comparisons()).case
    # in float64, so that no halting decision falls by rounding
    case = case.but(precise=True)
    model, alone, together = make_model(case), make_model(case), threading.Barrier(threads)
    drawing = Drawing(case, model.config, rng)
    runs = []
    for _ in range(threads):
        kind = "generate" if generates(drawing) and rng.random() < 0.5 else "forward"
        batch = drawing.batch("left" if kind == "generate" and not case.two_stacks else None)
        runs.append(Run(batch, kind, drawn_options(model.config, rng), new_tokens=NEW_TOKENS))

    def answer(model, run: Run, wait: bool = False) -> Result | str:
        if wait:
            together.wait()
        try:
            return execute(model, case, run)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    turns = sys.getswitchinterval()
    with precision(case), ThreadPoolExecutor(threads) as pool:
        expected = [answer(alone, run) for run in runs]
        sys.setswitchinterval(TURNS)
        try:
            actual = list(pool.map(lambda run: answer(model, run, wait=True), runs))
        finally:
            sys.setswitchinterval(turns)
        # the first call of all shows what is left behind
        actual.append(answer(model, runs[0]))
    faults = []
    for run, found, wanted in zip([*runs, runs[0]], actual, [*expected, expected[0]], strict=True):
        if isinstance(found, str) or isinstance(wanted, str):
            faults += [] if found == wanted else [f"{run.kind}, {run.options}: {found} instead of {wanted}"]
            continue
        gap = difference(found, wanted, Comparison(run, run), TOLERANCE[True])
        faults += [f"{run.kind}, {run.options}: {gap.name} differs"] * (gap.size > 1.0)
    return f"{case.architecture} {case.head}", faults


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Trials for so long, or so many of them -> what was found."""
    return campaign_of(trial, seconds, count, seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
