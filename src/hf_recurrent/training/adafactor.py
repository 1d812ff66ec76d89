"""Adafactor as "Block-Recurrent Transformers" was trained with it."""

from collections.abc import Iterable

from torch import nn
from transformers.optimization import Adafactor

# below this, factored second moments save nothing worth their error
MIN_FACTORED_DIM = 128


class MomentumAdafactor(Adafactor):
    """transformers' Adafactor with momentum 0.9 of the scaled updates, which factors large matrices only.

    At update t = 1, 2, ... of a parameter p, second moments decay by 1 - t^-0.8; the update is clipped to a root mean
    square of 1, multiplied by the learning rate and by max(RMS(p), 1e-3), and averaged with momentum 0.9 without bias
    correction. There is no weight decay. Source: optax.adafactor as the authors' code configures it. torch's own has no
    momentum and bounds the learning rate by 1 / sqrt(t).
    """

    def __init__(self, params: Iterable[nn.Parameter] | Iterable[dict], lr: float = 1.0, beta1: float | None = 0.9):
        super().__init__(params, lr=lr, beta1=beta1, scale_parameter=True, relative_step=False, warmup_init=False)

    @staticmethod
    def _get_options(param_group: dict, param_shape: tuple[int, ...]) -> tuple[bool, bool]:
        factored = len(param_shape) >= 2 and min(param_shape[-2:]) >= MIN_FACTORED_DIM
        return factored, param_group["beta1"] is not None
