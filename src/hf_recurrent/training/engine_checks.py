"""Checks of the engine that a launcher or a setting asks for, before anything is made, and its choice of kernels."""

import os

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.environment import parse_flag_from_env


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
