"""Position-wise feed-forward networks.

Shapes: E width, F inner width; every tensor is (..., E).
"""

from collections.abc import Callable

import torch
from torch import nn

from .initialization import Initializer, initialized_linear, xavier
from .layers import Dropout

Activation = Callable[[torch.Tensor], torch.Tensor]


class FeedForward(nn.Module):
    """`W2 activation(W1 x + b1) + b2` with dropout after W1 and W2 ("Recurrent Transformers with Dynamic Halt", Eq. 4).

    Args:
        initializer: of both maps; None for transformers' own.
        output_initializer: of the second map, if it has one of its own.
        drops_output: whether there is dropout after the second map.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        dropout: float,
        initializer: Initializer | None = xavier,
        activation: Activation = nn.functional.gelu,
        output_initializer: Initializer | None = None,
        drops_output: bool = True,
    ):
        super().__init__()
        self.up_proj = initialized_linear(hidden_size, intermediate_size, initializer)
        self.down_proj = initialized_linear(intermediate_size, hidden_size, output_initializer or initializer)
        self.dropout = Dropout(dropout)
        self.activation, self.drops_output = activation, drops_output

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        updated = self.down_proj(self.activation(self.dropout(self.up_proj(hidden_states))))
        return self.dropout(updated) if self.drops_output else updated


class GatedLinearUnit(nn.Module):
    """`W3 (activation(W1 x) * W2 x)` without biases ("GLU Variants Improve Transformer", arXiv 2002.05202).

    Args:
        initializers: of W1 and W2, and of W3; None for transformers' own.
        fused: whether one map computes both `W1 x` and `W2 x`.
    """

    def __init__(
        self,
        config,
        activation: Activation,
        initializers: tuple[Initializer | None, Initializer | None] = (None, None),
        fused: bool = False,
    ):
        super().__init__()
        of_input, of_output = initializers
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = None if fused else initialized_linear(width, inner, of_input, bias=False)
        self.up_proj = initialized_linear(width, 2 * inner if fused else inner, of_input, bias=False)
        self.down_proj = initialized_linear(inner, width, of_output, bias=False)
        self.activation = activation

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        inner = self.up_proj(hidden_states)
        gate, inner = inner.chunk(2, dim=-1) if self.gate_proj is None else (self.gate_proj(hidden_states), inner)
        return self.down_proj(self.activation(gate) * inner)
