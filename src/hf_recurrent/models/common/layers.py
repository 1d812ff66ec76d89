"""Building blocks below all others: dropout that is fast on a CPU, and the dtypes of rounding."""

import torch
from torch import nn

# torch draws a number of 24 bits or more for each unit; a unit's fate needs fewer, and four are read from one draw here
LEVELS = 1 << 16
LOWEST = torch.iinfo(torch.int16).min


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Half precision widened to float32; float32 and float64 as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computing_dtype(tensor: torch.Tensor) -> torch.dtype:
    """What kernels compute in: autocast's type within autocast."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def noise_like(states: torch.Tensor, p: float) -> torch.Tensor:
    """Zeros with probability `p`, to within 1 / 131072 and less than one, elsewhere what keeps the mean at one."""
    dropped = round(p * LEVELS)
    draws = torch.empty((states.numel() + 3) // 4, dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    levels = draws.view(torch.int16)[: states.numel()].view(states.shape)
    noise = torch.empty(states.shape, dtype=states.dtype)
    return torch.ge(levels, LOWEST + dropped, out=noise).mul_(LEVELS / (LEVELS - dropped))


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """`torch.nn.functional.dropout`, faster on the processor."""
    if not training or p == 0.0:
        return states
    # a share of all levels does not fit into their type
    if states.device.type != "cpu" or torch.compiler.is_compiling() or round(p * LEVELS) == LEVELS:
        return nn.functional.dropout(states, p)
    return states * noise_like(states, p)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, faster on the processor."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return dropout(states, self.p, self.training)
