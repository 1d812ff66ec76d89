"""Sharded parameters (FSDP2): how they may be sharded, and checkpoints that load whole or sharded.

Sharding keeps optimiser states by the names of parameters, other engines by their numbers.
"""

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import FullyShardedDataParallelPlugin, load
from safetensors.torch import load_model
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from ..models.ops.sharding import is_sharded

# what accelerate writes, whole, of a model whose parameters it has sharded
SHARDED_MODEL, SHARDED_OPTIMIZER = "pytorch_model_fsdp.bin", "optimizer.bin"
# parameters that no loss depends on may have no state, for which accelerate refuses the others
WHOLE = StateDictOptions(full_state_dict=True, strict=False)


def check_sharding(config: Any, plugin: FullyShardedDataParallelPlugin) -> None:
    """Raise a ValueError for a way to shard parameters that leaves no whole checkpoint, or that cannot be had here."""
    if config.capabilities.two_stacks:
        raise ValueError(
            f"the launcher asks for FSDP, but the two stacks of a {config.model_type} share embeddings, which it "
            "cannot shard: take MULTI_GPU"
        )
    kind = plugin.state_dict_type.name
    if plugin.fsdp_version != 2:
        raise ValueError(f"fsdp_version is {plugin.fsdp_version}: set it to 2 in accelerate's config")
    if kind != "FULL_STATE_DICT":
        raise ValueError(f"fsdp_state_dict_type is {kind}, whose parts load nowhere else: set it to FULL_STATE_DICT")
    if plugin.cpu_ram_efficient_loading:
        raise ValueError(
            "fsdp_cpu_ram_efficient_loading is true: each process evaluates the whole model, set it to false"
        )


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
    whole = fresh_copy(model) if is_sharded(model) else model
    load_model(whole, weights)
    if whole is not model:
        set_model_state_dict(model, whole.state_dict(), options=WHOLE)


def load_optimizer(model: Any, optimizer: torch.optim.Optimizer, states: Path) -> None:
    """Load what any engine has written of the optimiser.

    Raises:
        ValueError: it is of another number of parameters.
    """
    saved = load(states, map_location="cpu")
    places = [place for group in saved["param_groups"] for place in group["params"]]
    if all(isinstance(place, int) for place in places):
        names = {parameter: name for name, parameter in model.named_parameters()}
        ours = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
        if len(places) != len(ours):
            raise ValueError(
                f"{states} is the state of {len(places)} parameters, and the model has {len(ours)}: resume with the "
                "config of the checkpoint"
            )
        named = dict(zip(places, ours, strict=True))
        saved["state"] = {named[place]: state for place, state in saved["state"].items()}
        for group in saved["param_groups"]:
            group["params"] = [named[place] for place in group["params"]]
    set_optimizer_state_dict(model, optimizer, saved, options=WHOLE)
