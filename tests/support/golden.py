"""Golden cases of the reference implementations, as recorded under `tests/parity/`."""

from pathlib import Path

import torch
from safetensors.torch import load_file

# the keys of recorded gradients in a case's io.safetensors start with it
GRADIENT = "gradient of "


def load_case(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Inputs and outputs of a case, and its gradients by the authors' parameter names; none were recorded of some."""
    tensors = load_file(folder / "io.safetensors")
    gradients = {name.removeprefix(GRADIENT): tensors.pop(name) for name in list(tensors) if name.startswith(GRADIENT)}
    return tensors, gradients
