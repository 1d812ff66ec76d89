"""Models on several processes: what ranks agree on, and when divided parameters (FSDP2) are gathered."""

import torch
from torch import nn


def is_sharded(module: nn.Module) -> bool:
    """Whether a step gathers parameters, or reduces gradients, collectively (FSDP2): ranks must take as many.

    Asked of modules: parameters that stay gathered after a forward pass are plain tensors until the backward pass.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(each, FSDPModule) for each in module.modules())


def gather_for_methods(model: nn.Module) -> None:
    """Let layers that are sharded by themselves gather their parameters for their `gathered_methods`, too.

    Otherwise they do it for their forward pass only. The forward pass must not call such a method, after which the
    parameters are divided again; and results must not be views of parameters.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    from torch.distributed.fsdp import register_fsdp_forward_method

    # layers before what wraps them for checkpoints, which finds their methods in them
    for module in reversed(list(model.modules())):
        for name in getattr(module, "gathered_methods", ()):
            # of a layer that has been registered it is an attribute
            if name not in vars(module):
                register_fsdp_forward_method(module, name)


def touch_all_parameters(states: torch.Tensor, module: nn.Module) -> torch.Tensor:
    """Give every parameter a zero gradient at least.

    Data-parallel ranks wait for each other's gradient of every parameter, and a rank whose batch halts at once uses
    none of the block's. Of sharded parameters only the rank's own part is touched, which gathers nothing: an optimiser
    whose states lack a parameter that no loss depends on is not resumed.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or not torch.is_grad_enabled():
        return states
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    own = [each.to_local() if hasattr(each, "device_mesh") else each for each in learned]
    return states + 0.0 * sum(parameter.sum() for parameter in own)


def largest_over_ranks(count: int, device: torch.device) -> int:
    counts = torch.tensor(count, device=device)
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
    return int(counts)


def same_on_all_ranks(values: list[int], device: torch.device) -> list[int]:
    """The first rank's values."""
    shared = torch.tensor(values, device=device)
    torch.distributed.broadcast(shared, src=0)
    return shared.tolist()
