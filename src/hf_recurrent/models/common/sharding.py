"""Models on several processes: what ranks agree on, and when divided parameters (FSDP2) are gathered."""

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


def touch_all_parameters(states: torch.Tensor, module: nn.Module) -> torch.Tensor:
    """Give every parameter a zero gradient at least.

    Data-parallel ranks wait for each other's gradient of every parameter, and a rank whose batch halts at once uses
    none of the block's. Sharded parameters are left out: their ranks take the same steps, see `is_sharded`.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or not torch.is_grad_enabled():
        return states
    whole = [p for p in module.parameters() if p.requires_grad and not hasattr(p, "device_mesh")]
    return states + 0.0 * sum(parameter.sum() for parameter in whole)


def largest_over_ranks(count: int, device: torch.device) -> int:
    counts = torch.tensor(count, device=device)
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
    return int(counts)


def same_on_all_ranks(values: list[int], device: torch.device) -> list[int]:
    """The first rank's values."""
    shared = torch.tensor(values, device=device)
    torch.distributed.broadcast(shared, src=0)
    return shared.tolist()
