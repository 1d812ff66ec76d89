"""Modes of a model for the time of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
