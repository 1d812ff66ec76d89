"""Modes of a model for the time of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def inference_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every submodule gets its own mode back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
