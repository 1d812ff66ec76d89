"""Initialisation: each linear layer carries its initialiser, because transformers only initialises modules that own
parameters when the code is not its own.

The schemes are those of the papers' reference implementations.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from transformers import initialization as init

Initializer = Callable[[nn.Linear], None]


def xavier(linear: nn.Linear, gain: float = 1.0) -> None:
    """Xavier-uniform weights, biases within rounding of zero."""
    init.xavier_uniform_(linear.weight, gain=gain)
    if linear.bias is not None:
        init.normal_(linear.bias, std=1e-6)


def torch_default(linear: nn.Linear, bias: float | None = None) -> None:
    """torch's own scheme, or a constant bias."""
    init.kaiming_uniform_(linear.weight, a=math.sqrt(5))
    default_bias(linear, bias)


def default_bias(linear: nn.Linear, bias: float | None = None) -> None:
    """torch's own scheme for the bias, if there is one, or a constant."""
    if linear.bias is None:
        return
    bound = 1 / math.sqrt(linear.in_features)
    if bias is None:
        init.uniform_(linear.bias, -bound, bound)
    else:
        init.constant_(linear.bias, bias)


def uniform_between(
    linear: nn.Linear, gain: float = 1.0, fans: tuple[int, int] | None = None, bias: float | None = None
) -> None:
    """Xavier-uniform weights between layers of these sizes (its own if None), with torch's bias or a constant one."""
    fan_in, fan_out = (linear.in_features, linear.out_features) if fans is None else fans
    bound = gain * math.sqrt(6 / (fan_in + fan_out))
    init.uniform_(linear.weight, -bound, bound)
    default_bias(linear, bias)


def embedding_like(std: float) -> Callable[[nn.Linear], None]:
    """Normal weights, as the embedding table they may be tied to."""
    return partial(normal, std=std)


def normal(linear: nn.Linear, std: float) -> None:
    init.normal_(linear.weight, std=std)


attention_input = partial(xavier, gain=1 / math.sqrt(2))
relu_input = partial(uniform_between, gain=math.sqrt(2))


def initialized_linear(
    in_features: int,
    out_features: int,
    initializer: Initializer | None,
    bias: bool = True,
    kind: type[nn.Linear] = nn.Linear,
) -> nn.Linear:
    """A linear layer that `RecurrentPreTrainedModel` initialises with `initializer`, or as transformers does."""
    layer = kind(in_features, out_features, bias=bias)
    layer.initializer = initializer
    return layer


# standard deviation of a standard normal truncated at two
TRUNCATED_NORMAL_STD = 0.87962566103423978


def truncated_normal(linear: nn.Linear, scale: float = 1.0, bias_std: float = 0.0) -> None:
    """Normal weights truncated at two deviations, of variance `scale / in_features`; normal biases."""
    std = math.sqrt(scale / linear.in_features) / TRUNCATED_NORMAL_STD
    init.trunc_normal_(linear.weight, std=std, a=-2 * std, b=2 * std)
    if linear.bias is not None:
        init.normal_(linear.bias, std=bias_std)


class LearnedTensor(nn.Module):
    """A single parameter with its initialisation."""

    def __init__(self, *shape: int, std: float | None = None, value: float = 0.0):
        """Initialise to `value` or, with `std`, to a normal distribution around it."""
        super().__init__()
        self.std, self.value = std, value
        self.weight = nn.Parameter(torch.empty(shape))

    @staticmethod
    def initializer(module: "LearnedTensor") -> None:
        if module.std is None:
            init.constant_(module.weight, module.value)
        else:
            init.normal_(module.weight, mean=module.value, std=module.std)

    def forward(self) -> torch.Tensor:
        return self.weight
