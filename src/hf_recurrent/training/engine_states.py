"""Weights and optimiser states of sharded parameters (FSDP2), and of whole ones for an engine that shards them.

Sharding keeps optimiser states by the names of parameters, other engines by their numbers.
"""

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import load
from safetensors.torch import load_model
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from ..models.common.sharding import is_sharded

# parameters that no loss depends on may have no state, for which accelerate refuses the others
WHOLE = StateDictOptions(full_state_dict=True, strict=False)


def fresh_copy(model: Any) -> Any:
    """A whole model of the same config, with weights of its own."""
    kind = next(each for each in type(model).__mro__ if not issubclass(each, FSDPModule))
    # a process that made it would draw other numbers than a run that went on
    with torch.random.fork_rng(devices=[]):
        return kind(model.config)


def whole_model(model: Any) -> Any:
    """A sharded model as a whole one on the first process's CPU, which all processes call for; None on the others."""
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if torch.distributed.get_rank() > 0:
        return None
    whole = fresh_copy(model)
    whole.load_state_dict(weights)
    return whole


def load_weights(model: Any, weights: Path) -> None:
    """Load safetensors of the whole model."""
    if not is_sharded(model):
        load_model(model, weights)
        return
    whole = fresh_copy(model)
    load_model(whole, weights)
    set_model_state_dict(model, whole.state_dict(), options=WHOLE)


def load_optimizer(model: Any, optimizer: torch.optim.Optimizer, states: Path) -> None:
    """Load what an engine has written of the optimiser."""
    saved = by_name(load(states, map_location="cpu"), model, optimizer)
    set_optimizer_state_dict(model, optimizer, saved, options=WHOLE)


def by_name(saved: dict[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's state with names of parameters, where it has their numbers.

    Raises:
        ValueError: it is of another number of parameters.
    """
    groups = saved["param_groups"]
    found = [number for group in groups for number in group["params"]]
    if not all(isinstance(number, int) for number in found):
        return saved
    names = {parameter: name for name, parameter in model.named_parameters()}
    ours = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    if len(ours) != len(found):
        raise ValueError(f"the optimiser's state is of {len(found)} parameters, and the model has {len(ours)}")
    named = dict(zip(found, ours, strict=True))
    return {
        "state": {named[number]: state for number, state in saved["state"].items()},
        "param_groups": [{**group, "params": [named[number] for number in group["params"]]} for group in groups],
    }
