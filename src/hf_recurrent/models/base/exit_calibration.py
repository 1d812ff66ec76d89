"""The binding of a calibrated exit criterion to the weights and settings that it was calibrated with.

`config.exit_calibration` is plain data, among others the `benchmark` and `split` of the examples, the `fields` of the
config that were calibrated, with their values, and the digest of the `weights`.
"""

import hashlib
from collections.abc import Iterable, Mapping

import torch

# how names of the weights of a probe begin
PROBE = "exit_probe."


def weights_digest(model, state_dict: Mapping[str, torch.Tensor] | None = None) -> str:
    """SHA-256, in hexadecimal digits, of a model's weights: names, dtypes, shapes and bytes in the order of names.

    Tied weights count once; devices do not count.

    Args:
        state_dict: the weights, where they are not to be read from the model.
    """
    state = model.state_dict() if state_dict is None else state_dict
    return tensors_digest((name, state[name]) for name in sorted(state.keys() - model.all_tied_weights_keys.keys()))


def tensors_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256, in hexadecimal digits, of named tensors in their order: names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        tensor = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def exit_digest(model, criterion: str | None, state_dict: Mapping[str, torch.Tensor] | None = None) -> str:
    """`weights_digest` of the weights on which answers and an exit by `criterion` depend: a probe is for its own."""
    state = model.state_dict() if state_dict is None else state_dict
    if criterion != "probe":
        state = {name: tensor for name, tensor in state.items() if not name.startswith(PROBE)}
    return weights_digest(model, state)


def calibration_problem(model, state_dict: Mapping[str, torch.Tensor] | None = None) -> str | None:
    """Why the promise of `config.exit_calibration` does not hold; None if it holds or there is none.

    The model is one with a head. Weights that are not in memory are not looked into.
    """
    # layers that are not shared have no exit criteria
    if model.config.capabilities.exit_criterion is None:
        return None
    calibration = model.config.exit_calibration
    if calibration is None:
        return None
    changed = [
        f"{name}={getattr(model.config, name)!r} instead of {value!r}"
        for name, value in calibration["fields"].items()
        if getattr(model.config, name) != value
    ]
    if changed:
        reason = f"the config has {', '.join(changed)}"
    elif not getattr(model, "is_quantized", False):
        state = model.state_dict() if state_dict is None else state_dict
        if any(tensor.is_meta for tensor in state.values()):
            return None
        criterion = calibration["fields"].get("exit_criterion")
        # earlier versions took a probe along
        if calibration["weights"] in (exit_digest(model, criterion, state), weights_digest(model, state)):
            return None
        reason = "the weights are others (fine-tuned, merged or cast)"
    else:
        reason = "the weights are quantised"
    return (
        f"the exit criterion was calibrated on {calibration['benchmark']} ({calibration['split']}), but {reason}: its "
        "guarantee is void; run `hf-recurrent calibrate` again"
    )
