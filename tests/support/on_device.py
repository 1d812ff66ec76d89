"""Models of the tests on another device: `pytest --device cuda`, or `--device imitated` on a CPU.

A model moves to the device when it is first called or generates; what it is given moves there, and what it answers
comes back. Everything around models stays on the CPU, so that tests are as they are; those that reach into a moved
model with tensors of their own cannot be run so.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map
from transformers import GenerationMixin, PreTrainedModel

from gpu import imitation
from parity import reference

from . import compare

depth = threading.local()


def moved(value: Any, device: str) -> Any:
    """Tensors of nested values on a device; caches stay where they are."""
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, value)


def at_the_boundary(function: Callable, device: str) -> Callable:
    """A method of a model that takes and gives tensors of the CPU; calls within it are not changed."""

    @functools.wraps(function)
    def call(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        if getattr(depth, "inside", False):
            return function(model, *args, **kwargs)
        depth.inside = True
        try:
            model.to(device)
            args, kwargs = moved((args, kwargs), device)
            return moved(function(model, *args, **kwargs), "cpu")
        finally:
            depth.inside = False

    return call


def reference_at_the_boundary(load: Callable, device: str) -> Callable:
    """`load_reference` whose references run on a device, and take and give tensors of the CPU."""

    @functools.wraps(load)
    def call(*args: Any, **kwargs: Any) -> Any:
        reference = load(*args, **kwargs)
        run = type(reference).run

        def on_device(io: dict[str, torch.Tensor], *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
            depth.inside = True
            try:
                reference.model.to(device)
                return moved(run(reference, moved(io, device), *args, **kwargs), "cpu")
            finally:
                depth.inside = False

        reference.run = on_device
        return reference

    return call


def install(device: str) -> Callable[[], None]:
    """Let every model compute on a device -> a function that ends it."""
    context = imitation.installed() if device == "imitated" else None
    if context is not None:
        context.__enter__()
        device = "cuda"
    torch.backends.cudnn.allow_tf32 = False
    owners = {"__call__": (PreTrainedModel, torch.nn.Module), "generate": (GenerationMixin, GenerationMixin)}
    plain_functions = {name: getattr(source, name) for name, (_, source) in owners.items()}
    for name, (owner, _) in owners.items():
        setattr(owner, name, at_the_boundary(plain_functions[name], device))
    plain, load = compare.assert_close, reference.load_reference
    reference.load_reference = reference_at_the_boundary(load, device)

    def assert_close(actual: Any, expected: Any, *args: Any, **kwargs: Any) -> None:
        plain(*moved((actual, expected), "cpu"), *args, **kwargs)

    compare.assert_close = assert_close

    def end() -> None:
        compare.assert_close, reference.load_reference = plain, load
        del PreTrainedModel.__call__
        GenerationMixin.generate = plain_functions["generate"]
        if context is not None:
            context.__exit__(None, None, None)

    return end
