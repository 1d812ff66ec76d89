"""Golden cases of the reference implementations, as recorded under `tests/parity/`."""

from collections.abc import Callable, Iterable
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


# of outputs, and of gradients relative to each one's largest value
TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 1e-4


def assert_reproduced(
    found: dict[str, torch.Tensor],
    io: dict[str, torch.Tensor],
    outputs: Iterable[str],
    gradients: dict[str, torch.Tensor],
    select: Callable[[str, torch.Tensor], torch.Tensor],
) -> None:
    """All outputs of a case, and no others, are as recorded where `select` looks, and so are its gradients."""
    assert set(outputs) == {key for key in found if "/" not in key}
    for key in outputs:
        ours, theirs = (select(key, values) for values in (found[key], io[key]))
        assert ours.dtype == theirs.dtype
        if theirs.dtype == torch.int64:
            assert torch.equal(ours, theirs), key
            continue
        bound = TOLERANCE * max(1.0, theirs.nan_to_num().abs().max().item())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound, equal_nan=True, msg=key)
    assert gradients
    for key, expected in gradients.items():
        error = (found[key] - expected).abs().max() / expected.abs().max().clamp_min(1e-12)
        assert error <= GRADIENT_TOLERANCE, key
