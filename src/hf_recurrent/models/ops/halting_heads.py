"""Heads that turn the state of a halting unit, a sequence or a token, into its halting probability.

Shapes: U units (any number of leading dims), E width. Equations are those of the dynamic-halt paper.
"""

from functools import partial

import torch
from torch import nn

from .initialization import initialized_linear, torch_default
from .layers import ReproducibleLinear, deciding_dtype


class HaltingHead(nn.Module):
    """Conditional halting probability `sigmoid(W2 GELU(W1 x + b1) + b2)` (Eq. 5), in float32.

    Transition-aware heads see the state before and after the candidate step side by side (Eq. 17).
    """

    def __init__(self, hidden_size: int, transition_aware: bool, bias_init: float):
        super().__init__()
        features = 2 * hidden_size if transition_aware else hidden_size
        self.up_proj = initialized_linear(features, hidden_size, torch_default, kind=ReproducibleLinear)
        self.down_proj = initialized_linear(
            hidden_size, 1, partial(torch_default, bias=bias_init), kind=ReproducibleLinear
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(U, E) or (U, 2E) -> (U,)."""
        # the head stays in float32 when the rest of a checkpoint is loaded in half precision
        with torch.autocast(features.device.type, enabled=False):
            dtype = deciding_dtype(self.up_proj, self.down_proj)
            inner = nn.functional.gelu(self.up_proj(features.to(dtype)))
            return self.down_proj(inner).squeeze(-1).float().sigmoid()


class LinearHaltingHead(nn.Module):
    """Halting probability `sigmoid(w x + b)`, in float32."""

    def __init__(self, hidden_size: int, bias_init: float | None):
        super().__init__()
        initializer = partial(torch_default, bias=bias_init)
        self.proj = initialized_linear(hidden_size, 1, initializer, kind=ReproducibleLinear)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(U, E) -> (U,)."""
        with torch.autocast(features.device.type, enabled=False):
            return self.proj(features.to(deciding_dtype(self.proj))).squeeze(-1).float().sigmoid()
