"""Checks of the engine that a launcher or a setting asks for, before anything is made, and its choice of kernels."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.environment import parse_flag_from_env
from transformers import TrainingArguments

# the launcher's variables of engines whose checkpoints are no whole models
OTHERS = {"ACCELERATE_USE_DEEPSPEED": "DeepSpeed", "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM"}
STATE = "a state goes from chunk to chunk and from step to step of a text, which this divides within attention alone"
# sizes of accelerate's `ParallelismConfig` -> why there is none above 1
UNDIVIDED = {
    "tp_size": "the models have no plan of tensor parallelism",
    "cp_size": STATE,
    "sp_size": STATE,
}


def avoid_broken_kernels() -> None:
    """Leave cuDNN's kernel for SDPA out: in half precision its gradients may be NaN (PyTorch issue 196678)."""
    torch.backends.cuda.enable_cudnn_sdp(False)


def join_processes_on_cpus() -> None:
    """Let the processes of a launcher train together where there are no GPUs.

    accelerate would let each of them train by itself without `use_cpu`, which its launcher does not hand on from a
    file with MULTI_GPU. FSDP is refused there later on.
    """
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if several and not torch.accelerator.is_available() and not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        os.environ["ACCELERATE_USE_CPU"] = "true"


def check_launcher() -> None:
    """Raise a ValueError if the launcher asks for what these runs are not served by."""
    for variable, engine in OTHERS.items():
        if parse_flag_from_env(variable):
            raise ValueError(
                f"the launcher asks for {engine}, which these runs do not take: set distributed_type to FSDP, which "
                "divides parameters and optimiser states as well, or MULTI_GPU"
            )
    if parse_flag_from_env("ACCELERATE_USE_PARALLELISM_CONFIG"):
        check_parallelism({name: os.environ.get(f"PARALLELISM_CONFIG_{name.upper()}", 1) for name in UNDIVIDED})


def check_engine_settings(args: TrainingArguments) -> None:
    """Raise a ValueError for settings of transformers that ask for the same."""
    if args.deepspeed:
        raise ValueError(
            f"deepspeed is {args.deepspeed!r}, which these runs do not take: leave it out, and give the launcher a "
            "file with distributed_type FSDP"
        )
    if args.parallelism_config is not None:
        check_parallelism(vars(args.parallelism_config))


def check_parallelism(sizes: Mapping[str, Any]) -> None:
    """Raise a ValueError for a division of a model, or of its texts, that models of this package cannot have."""
    for name, reason in UNDIVIDED.items():
        size = sizes.get(name)
        if size is not None and int(size) > 1:
            raise ValueError(f"{name} is {size}: {reason}; set it to 1, and divide parameters by FSDP2")


def require_gpus_for_sharding() -> None:
    """Raise a ValueError if a launcher asks for FSDP where accelerate has none, which it would not say."""
    if parse_flag_from_env("ACCELERATE_USE_FSDP"):
        raise ValueError("the launcher asks for FSDP, which needs GPUs: on CPUs take MULTI_GPU with use_cpu: true")


def check_fsdp_plugin(plugin: FullyShardedDataParallelPlugin) -> None:
    """Raise a ValueError for a way to shard parameters that leaves no whole checkpoint."""
    kind = plugin.state_dict_type.name
    if plugin.fsdp_version != 2:
        raise ValueError(f"fsdp_version is {plugin.fsdp_version}: set it to 2 in accelerate's config")
    if kind != "FULL_STATE_DICT":
        raise ValueError(f"fsdp_state_dict_type is {kind}, whose parts load nowhere else: set it to FULL_STATE_DICT")
    if plugin.cpu_ram_efficient_loading:
        raise ValueError(
            "fsdp_cpu_ram_efficient_loading is true: each process evaluates the whole model, set it to false"
        )
