"""Models whose parameters are divided among processes (FSDP2): what is agreed on, and when parameters are gathered."""

import torch
from torch import nn


def is_sharded(module: nn.Module) -> bool:
    """Whether each step gathers parameters collectively (FSDP2), so that all ranks must take the same number."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    return any(hasattr(parameter, "device_mesh") for parameter in module.parameters())


def gather_for_methods(model: nn.Module) -> None:
    """Let layers that are sharded by themselves gather their parameters for their `gathered_methods`, too.

    Otherwise they do it for their forward pass only. The forward pass must not call such a method, after which the
    parameters are divided again; and results must not be views of parameters.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    from torch.distributed.fsdp import register_fsdp_forward_method

    for module in model.modules():
        for name in getattr(module, "gathered_methods", ()):
            # of a layer that has been registered it is an attribute
            if name not in vars(module):
                register_fsdp_forward_method(module, name)


def largest_over_ranks(count: int, device: torch.device) -> int:
    counts = torch.tensor(count, device=device)
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
    return int(counts)


def same_on_all_ranks(values: list[int], device: torch.device) -> list[int]:
    """The first rank's values."""
    shared = torch.tensor(values, device=device)
    torch.distributed.broadcast(shared, src=0)
    return shared.tolist()
