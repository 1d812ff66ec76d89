"""Learning-rate schedules of "Investigating Recurrent Transformers with Dynamic Halt", by their authors' names.

W warm-up steps, T training steps, t the 0-based optimiser step. Each function gives the factor of the base learning
rate at step t, as the authors' `scheduler_controller` does.
"""

import math
from collections.abc import Callable
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers.trainer_utils import SchedulerType

from .recipes import near_matches


def rootwarmup(t: int, warmup: int, total: int) -> float:
    """min(1, (t + 1) / W) / sqrt(max(t + 1, W)): the base rate is that of step 1, not the peak."""
    return justwarmup(t, warmup, total) / math.sqrt(max(t + 1, warmup))


def justwarmup(t: int, warmup: int, total: int) -> float:
    """min(1, (t + 1) / W), then constant."""
    return min(1.0, (t + 1) / max(warmup, 1))


def cosine2(t: int, warmup: int, total: int) -> float:
    """min(1, (t + 1) / W) * (1 + cos(pi * ((max(0, t - W) / (T - W)) mod 1))) / 2."""
    progress = max(0, t - warmup) / max(total - warmup, 1)
    return justwarmup(t, warmup, total) * 0.5 * (1.0 + math.cos(math.pi * (progress % 1.0)))


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "rootwarmup": rootwarmup,
    "justwarmup": justwarmup,
    "cosine2": cosine2,
}


def schedule_names() -> list[str]:
    """Ours, then those of transformers."""
    return [*SCHEDULES, *(schedule.value for schedule in SchedulerType)]


def check_schedule(name: str) -> None:
    """Raise a ValueError for a schedule that neither this package nor transformers has."""
    known = schedule_names()
    if name not in known:
        raise ValueError(f"lr_schedule is {name!r}: expected one of {', '.join(known)}{near_matches(name, known)}")


def make_schedule(name: str, optimizer: Optimizer, warmup: int, total: int) -> LambdaLR:
    """The scheduler of one of `SCHEDULES`; `warmup` and `total` in optimiser steps."""
    # functools.partial is not saved with the scheduler's state, so a checkpoint holds numbers only
    return LambdaLR(optimizer, partial(SCHEDULES[name], warmup=warmup, total=total))
