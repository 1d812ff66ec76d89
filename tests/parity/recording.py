"""Recorders of what modules compute, and the keys that a case must have."""

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
