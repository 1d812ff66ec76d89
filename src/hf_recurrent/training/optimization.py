"""Optimiser and learning-rate schedules of papers; schedules have their authors' names.

W warm-up steps, T training steps, t the 0-based optimiser step. Each function gives the factor of the base learning
rate at step t: those of "Investigating Recurrent Transformers with Dynamic Halt" as the authors' `scheduler_controller`
does, the one of "Block-Recurrent Transformers", and the one of fairseq, with which translation is trained.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor, zeros
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers.optimization import Adafactor
from transformers.trainer_utils import SchedulerType


def ramp(t: int, warmup: int) -> float:
    """min(1, (t + 1) / W)."""
    return min(1.0, (t + 1) / max(warmup, 1))


def one_cycle(t: int, warmup: int, total: int, ends: tuple[float, float], peak: float) -> float:
    """From `ends[0]` at t = 0 in a straight line to `peak` at t = W - 1, and to `ends[1]` at t = T - 1.

    Those are the two phases of `OneCycleLR(pct_start=W / T, anneal_strategy="linear")`.
    """
    top, last = max(warmup, 1) - 1, max(total, warmup, 1) - 1
    # schedulers move on after the last step too
    t = min(t, last)
    if t < top:
        return ends[0] + (peak - ends[0]) * t / top
    return peak + (ends[1] - peak) * (t - top) / max(last - top, 1)


def adam_beta1(t: int, warmup: int, total: int) -> float:
    """Adam's beta1 under the authors' linearwarmup: 0.95 at t = 0, 0.85 at t = W - 1, 0.95 at t = T - 1."""
    return one_cycle(t, warmup, total, (0.95, 0.95), 0.85)


# fairseq's --warmup-init-lr
FAIRSEQ_FIRST_RATE = 1e-7
SCHEDULES: dict[str, Callable[..., float]] = {
    # min(1, (t + 1) / W) / sqrt(max(t + 1, W)): the base rate is that of step 1, not the peak
    "rootwarmup": lambda t, warmup, total: ramp(t, warmup) / math.sqrt(max(t + 1, warmup)),
    # min(1, (t + 1) / W), then constant
    "justwarmup": lambda t, warmup, total: ramp(t, warmup),
    # min(1, (t + 1) / W) * (1 + cos(pi * ((max(0, t - W) / (T - W)) mod 1))) / 2
    "cosine2": lambda t, warmup, total: (
        ramp(t, warmup) * 0.5 * (1.0 + math.cos(math.pi * (max(0, t - warmup) / max(total - warmup, 1) % 1.0)))
    ),
    # 1 / 25 at t = 0, 1 at t = W - 1, 1 / 250,000 at t = T - 1, in straight lines; the authors' one, an `OneCycleLR`,
    # cycles Adam's beta1 as well, whatever was configured: see `adam_beta1`
    "linearwarmup": lambda t, warmup, total: one_cycle(t, warmup, total, (1 / 25, 1 / 25e4), 1.0),
    # min(t, W) / W / sqrt(max(t, W)): nothing at t = 0, and 1 / sqrt(W) at its peak; the one of "Block-Recurrent
    # Transformers", for Adafactor with a base rate of 1 (PG19), 0.5 (arXiv) or 0.25 (GitHub)
    "rsqrt_std": lambda t, warmup, total: min(t, max(warmup, 1)) / max(warmup, 1) / math.sqrt(max(t, warmup, 1)),
    # from `start` at t = 0 in a straight line to 1 at t = W, then sqrt(W / t); `make_schedule` sets `start` so that the
    # rate of the first step is `FAIRSEQ_FIRST_RATE`, whatever the base rate is
    "inverse_sqrt_fairseq": lambda t, warmup, total, start=0.0: (
        start + (1.0 - start) * t / warmup if t < warmup else math.sqrt(max(warmup, 1) / max(t, 1))
    ),
}


def schedule_names() -> list[str]:
    """Ours, then those of transformers."""
    return [*SCHEDULES, *(schedule.value for schedule in SchedulerType)]


def make_schedule(
    name: str, optimizer: Optimizer, warmup: int, total: int, *, cycle_adam_beta1: bool = False
) -> LambdaLR:
    """The scheduler of one of `SCHEDULES`; `warmup` and `total` in optimiser steps.

    With `cycle_adam_beta1` it sets the optimiser's beta1 to `adam_beta1` too.
    """
    # 0 is a base rate that leaves the model as it is
    start = FAIRSEQ_FIRST_RATE / (optimizer.defaults["lr"] or 1.0)
    options = {"start": start} if name == "inverse_sqrt_fairseq" else {}

    # the scheduler's state does not hold a function, so a checkpoint has numbers only
    def factor(t: int) -> float:
        for group in optimizer.param_groups if cycle_adam_beta1 else ():
            group["betas"] = (adam_beta1(t, warmup, total), *group["betas"][1:])
        return SCHEDULES[name](t, warmup, total, **options)

    return LambdaLR(optimizer, factor)


# below this, factored second moments save nothing worth their error
MIN_FACTORED_DIM = 128


class MomentumAdafactor(Adafactor):
    """The Adafactor of "Block-Recurrent Transformers".

    That of transformers with momentum 0.9 of the scaled updates, which factors large matrices only.

    At update t = 1, 2, ... of a parameter p, second moments decay by 1 - t^-0.8; the update is clipped to a root mean
    square of 1, multiplied by the learning rate and by max(RMS(p), 1e-3), and averaged with momentum 0.9 without bias
    correction. There is no weight decay. Source: optax.adafactor as the authors' code configures it. torch's own has no
    momentum and bounds the learning rate by 1 / sqrt(t).
    """

    def __init__(self, params: Iterable[nn.Parameter] | Iterable[dict], lr: float = 1.0, beta1: float | None = 0.9):
        super().__init__(params, lr=lr, beta1=beta1, scale_parameter=True, relative_step=False, warmup_init=False)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter.grad, DTensor) and not self.state[parameter]:
                    self.state[parameter] = self.sharded_state(group, parameter.grad)
        return super().step(closure)

    def sharded_state(self, group: dict, grad: DTensor) -> dict[str, DTensor | int]:
        """The state before the first update of a sharded parameter (FSDP2): that of transformers, in shards."""
        factored, has_momentum = self._get_options(group, grad.shape)
        state: dict[str, DTensor | int] = {"step": 0, "RMS": 0}
        if has_momentum:
            state["exp_avg"] = torch.zeros_like(grad)
        if not factored:
            return {**state, "exp_avg_sq": torch.zeros_like(grad)}
        # columns go over all shards
        columns = zeros(grad.shape[:-2] + grad.shape[-1:], dtype=grad.dtype, device_mesh=grad.device_mesh)
        return {**state, "exp_avg_sq_row": torch.zeros_like(grad.mean(-1)), "exp_avg_sq_col": columns}

    @staticmethod
    def _rms(tensor: torch.Tensor) -> torch.Tensor:
        rms = Adafactor._rms(tensor)
        return rms.full_tensor() if isinstance(rms, DTensor) else rms

    @staticmethod
    def _get_options(param_group: dict, param_shape: tuple[int, ...]) -> tuple[bool, bool]:
        factored = len(param_shape) >= 2 and min(param_shape[-2:]) >= MIN_FACTORED_DIM
        return factored, param_group["beta1"] is not None
