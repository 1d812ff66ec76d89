"""Recorders of what modules compute, gradients under the authors' names, and the keys that a case must have."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch


def record_calls(module: torch.nn.Module, select: Callable[[tuple, object], object], into: list) -> Callable[[], None]:
    """Append `select(args, output)` of each call of a module -> a function that ends the recording."""
    return module.register_forward_hook(lambda _, args, output: into.append(select(args, output))).remove


@contextmanager
def recorded(*modules: torch.nn.Module) -> Iterator[list]:
    """The outputs of all calls of these modules, in order."""
    outputs: list = []
    removers = [record_calls(module, lambda _, output: output, outputs) for module in modules]
    try:
        yield outputs
    finally:
        for remove in removers:
            remove()


def require_keys(tensors: dict[str, torch.Tensor], keys: Iterable[str]) -> None:
    missing = [key for key in keys if key not in tensors]
    if missing:
        raise ValueError(f"io lacks {', '.join(missing)}: it has {', '.join(sorted(tensors))}")


def their_gradients(
    model: torch.nn.Module,
    theirs: dict[str, torch.Tensor],
    ours: dict[str, torch.Tensor],
    prefix: str = "grad.",
    zeros: bool = False,
) -> dict[str, torch.Tensor]:
    """Gradients of the authors' parameters, from gradients of ours through the conversion of their tensors.

    Args:
        theirs: their parameters, by name.
        ours: values of our parameters by name, which were computed from `theirs`.
        prefix: the beginning of the names of gradients.
        zeros: whether parameters without a gradient have one of zeros, or are left out.
    """
    pairs = []
    for name, parameter in model.named_parameters():
        if parameter.grad is not None or zeros:
            pairs.append((ours[name], torch.zeros_like(parameter) if parameter.grad is None else parameter.grad))
    known = {name: tensor for name, tensor in theirs.items() if tensor.requires_grad}
    values, gradients = zip(*pairs, strict=True)
    found = torch.autograd.grad(values, list(known.values()), gradients, retain_graph=True, allow_unused=True)
    named = zip(known, found, strict=True)
    return {f"{prefix}{name}": gradient for name, gradient in named if gradient is not None}
