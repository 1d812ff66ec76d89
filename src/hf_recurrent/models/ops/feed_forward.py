"""Position-wise feed-forward networks and gates, with GELU (Gated Universal Transformer) or ReLU (Neural Data Router).

Shapes: E width, F inner width; every tensor is (..., E).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from .initialization import Initializer, initialized_linear, relu_input, uniform_between, xavier
from .layers import Dropout


class FeedForward(nn.Module):
    """`W2 GELU(W1 x + b1) + b2` with dropout after each map (Eq. 4 of "Recurrent Transformers with Dynamic Halt").

    Args:
        activation: in the place of GELU.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        dropout: float,
        initializer: Initializer | None = xavier,
        activation: Callable[[torch.Tensor], torch.Tensor] = nn.functional.gelu,
    ):
        super().__init__()
        self.up_proj = initialized_linear(hidden_size, intermediate_size, initializer)
        self.down_proj = initialized_linear(intermediate_size, hidden_size, initializer)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.dropout(self.up_proj(hidden_states)))
        return self.dropout(self.down_proj(inner))


class GatedLinearUnit(nn.Module):
    """`W3 (activation(W1 x) * W2 x)` without biases ("GLU Variants Improve Transformer", arXiv 2002.05202)."""

    def __init__(self, config, activation: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.activation = activation

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))


class ReLUFeedForward(nn.Module):
    """`W2 Dropout(ReLU(W1 x + b1)) + b2`.

    Args:
        output_initializer: of the second map; the first is Xavier-uniform with ReLU's gain.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        dropout: float,
        output_initializer: Callable[[nn.Linear], None] = uniform_between,
    ):
        super().__init__()
        self.up_proj = initialized_linear(hidden_size, intermediate_size, relu_input)
        self.down_proj = initialized_linear(intermediate_size, hidden_size, output_initializer)
        self.dropout = Dropout(dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.dropout(self.up_proj(hidden_states).relu()))


class CopyGate(ReLUFeedForward):
    """`sigmoid` of a network as wide as the model: how much of each unit is overwritten (Eq. 3 of the NDR paper).

    Args:
        bias_init: initial bias of the gate; at -3 a state is mostly copied at first.
    """

    def __init__(self, hidden_size: int, dropout: float, bias_init: float):
        super().__init__(hidden_size, hidden_size, dropout, partial(uniform_between, bias=bias_init))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states).sigmoid()
