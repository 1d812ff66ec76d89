"""Position-wise feed-forward networks: plain, and gated as in the Gated Universal Transformer.

Shapes: E width, F inner width; every tensor is (..., E).
"""

from collections.abc import Callable

import torch
from torch import nn

from .initialization import initialized_linear, xavier


class FeedForward(nn.Module):
    """`W2 GELU(W1 x + b1) + b2` with dropout after each map (Eq. 4 of "Recurrent Transformers with Dynamic Halt")."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        dropout: float,
        initializer: Callable[[nn.Linear], None] = xavier,
    ):
        super().__init__()
        self.up_proj = initialized_linear(hidden_size, intermediate_size, initializer)
        self.down_proj = initialized_linear(intermediate_size, hidden_size, initializer)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.gelu(self.dropout(self.up_proj(hidden_states)))
        return self.dropout(self.down_proj(inner))


class UpdateGate(FeedForward):
    """`sigmoid(W2 GELU(W1 x + b1) + b2)`: how much of each unit is overwritten (Eq. 10).

    The reference implementation drops out before both non-linearities, which is where the plain network's
    dropout already sits.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states).sigmoid()
