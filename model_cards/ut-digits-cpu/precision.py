"""Number types in which results may be rounded."""

import torch


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Half precision widened to float32; float32 and float64 as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computing_dtype(tensor: torch.Tensor) -> torch.dtype:
    """What kernels compute in: autocast's type within autocast."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype
