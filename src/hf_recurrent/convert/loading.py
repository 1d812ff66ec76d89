"""What all origins share: names of tensors by a table, strict loading, and checks of what a config says."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

# a new model of ours, the table of names, and tensors of its shapes under their names
Prepared = tuple[PreTrainedModel, Mapping[str, str], dict[str, torch.Tensor]]


def rename(name: str, table: Mapping[str, str]) -> str:
    """A name after the replacements of all patterns of a table, one after another."""
    for pattern, replacement in table.items():
        name = re.sub(pattern, replacement, name)
    return name


def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor], names: Mapping[str, str]) -> None:
    """Copy `weights[theirs]` into the parameter `names[theirs]`, for every parameter of the model.

    Raises:
        ValueError: weights that are missing, unexpected or of another shape, all of which it lists.
    """
    parameters = dict(model.named_parameters())
    problems = [f"missing {ours}" for ours in sorted(parameters.keys() - {names[theirs] for theirs in weights})]
    for theirs, tensor in weights.items():
        parameter = parameters.get(names[theirs])
        if parameter is None:
            problems.append(f"unexpected {theirs}")
        elif tensor.shape != parameter.shape:
            problems.append(f"{theirs} is {tuple(tensor.shape)}, expected {tuple(parameter.shape)}")
    if problems:
        raise ValueError("the weights do not fit the config: " + "; ".join(problems))
    with torch.no_grad():
        for theirs, tensor in weights.items():
            parameters[names[theirs]].copy_(tensor)


def one_of(config: Mapping[str, Any], name: str, choices: Collection[Any]) -> Any:
    """The value of a config's field.

    Raises:
        ValueError: it is none of the choices.
    """
    value = config.get(name)
    if value not in choices:
        expected = "one of " * (len(choices) > 1) + ", ".join(map(repr, choices))
        raise ValueError(f"config.{name} is {value!r}: expected {expected}")
    return value
