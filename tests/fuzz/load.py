"""The campaign of load: threads that call one model, and processes that load one benchmark, all at once.

cd tests; python -m fuzz.load --seconds 600 --seed 0
"""

import math
import random
import sys

import datasets

from fuzz.campaigns import Findings, main
from fuzz.loading.processes import processes_trial
from fuzz.loading.threads import threads_trial
from fuzz.trials import Trial, campaign_of

# trials of a model for each of a benchmark
MODELS_PER_BENCHMARK = 10


def draw(rng: random.Random) -> Trial:
    if rng.randrange(MODELS_PER_BENCHMARK + 1) == 0:
        return processes_trial(rng, processes=100)
    return threads_trial(rng, threads=64)


def campaign(*, seconds: float = math.inf, count: float = math.inf, seed: int = 0) -> Findings:
    """Trials for so long, or so many of them -> what was found."""
    datasets.disable_progress_bars()
    return campaign_of(draw, seconds, count, seed)


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
