"""Modes of a model for the time of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..models.common.sharding import is_sharded


@contextmanager
def inference_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every submodule gets its own mode back afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def is_divided(model: torch.nn.Module) -> bool:
    """Whether parts of a model lie on several devices or are sharded, so that only its forward pass unites them."""
    return len(set(getattr(model, "hf_device_map", {}).values())) > 1 or is_sharded(model)
