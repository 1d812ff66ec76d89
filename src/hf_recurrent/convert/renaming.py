"""Rename tables: the authors' parameter names -> ours, with nothing missing, unexpected or unused."""

import re
from collections.abc import Iterable

import torch


def rename(name: str, table: dict[str, str]) -> str | None:
    """Our name for one of theirs, None if no pattern of the table matches all of it."""
    for pattern, replacement in table.items():
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(replacement)
    return None


def our_names(weights: Iterable[str], table: dict[str, str]) -> dict[str, str]:
    """Their names of weights -> ours, of those that the table knows."""
    names = {theirs: rename(theirs, table) for theirs in weights}
    return {theirs: ours for theirs, ours in names.items() if ours is not None}


def load_renamed(model: torch.nn.Module, weights: dict[str, torch.Tensor], names: dict[str, str]) -> None:
    """Copy `weights[theirs]` into the parameter `names[theirs]`, for every parameter of the model.

    Raises:
        ValueError: weights without a name, parameters without weights, or shapes that differ.
    """
    parameters = dict(model.named_parameters())
    problems = [f"unexpected {theirs}" for theirs in weights if theirs not in names]
    problems += [f"missing {ours}" for ours in sorted(parameters.keys() - set(names.values()))]
    for theirs, ours in names.items():
        if ours not in parameters:
            problems.append(f"{theirs} has no place ({ours} does not exist)")
        elif weights[theirs].shape != parameters[ours].shape:
            problems.append(f"{theirs} is {tuple(weights[theirs].shape)}, expected {tuple(parameters[ours].shape)}")
    if problems:
        raise ValueError("the weights do not fit the config: " + "; ".join(problems))
    with torch.no_grad():
        for theirs, ours in names.items():
            parameters[ours].copy_(weights[theirs])
