"""Heads that turn the state of a halting unit, a sequence or a token, into its halting probability.

Shapes: U units (any number of leading dims), F features.
"""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn

from .initialization import initialized_linear, torch_default
from .layers import ReproducibleLinear, deciding_dtype


class HaltingHead(nn.Sequential):
    """Conditional halting probability of units, in float32: `sigmoid(w x + b)`, or with an inner layer
    `sigmoid(W2 GELU(W1 x + b1) + b2)` (Eq. 5 of the dynamic-halt paper).

    Args:
        num_features: of a unit. Transition-aware heads see the state before and after the candidate step side by side
            (Eq. 17).
        bias_init: initial bias of the last layer; torch's default if None.
        inner_size: width of the inner layer; None without.
    """

    def __init__(self, num_features: int, bias_init: float | None, inner_size: int | None = None):
        linear, last = partial(initialized_linear, kind=ReproducibleLinear), partial(torch_default, bias=bias_init)
        if inner_size is None:
            layers = {"proj": linear(num_features, 1, last)}
        else:
            inner = linear(num_features, inner_size, torch_default)
            layers = {"up_proj": inner, "activation": nn.GELU(), "down_proj": linear(inner_size, 1, last)}
        super().__init__(OrderedDict(layers))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(U, F) -> (U,)."""
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                return self(features)
        # the head stays in float32 when the rest of a checkpoint is loaded in half precision
        return super().forward(features.to(deciding_dtype(self[0], self[-1]))).squeeze(-1).float().sigmoid()
