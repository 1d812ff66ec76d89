"""Checks of settings of transformers' `Trainer`, before anything is made."""

from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from ..inference.cuda_graphs import host_part
from .engine_checks import check_fsdp_plugin
from .recipes import require_known

SAMPLINGS = ("with_replacement", "by_length", "short_first", "balanced_lengths")


def check_choices(args: TrainingArguments) -> None:
    """Raise a ValueError for settings that do not go together, or that nothing here serves."""
    check_batch_sampling(args)
    require_one_batch_choice(args)
    check_precision(args)


def check_precision(args: TrainingArguments) -> None:
    """Raise a ValueError for fp16 without a GPU; transformers checks bf16."""
    if args.fp16 and (args.use_cpu or not torch.accelerator.is_available()):
        # accelerate would compute in float32, and say nothing
        raise ValueError("fp16 is True, but training runs on a CPU: set it to False, or bf16 and use_cpu to True")


def check_batch_sampling(args: TrainingArguments) -> None:
    """Raise a ValueError for an unknown sampling, or for a setting of another one."""
    if args.batch_sampling is not None:
        require_known("batch_sampling", args.batch_sampling, list(SAMPLINGS))
    if args.batch_sampling == "short_first":
        return
    for name, unset in (("short_first_steps", 0), ("short_first_share", 0.0), ("short_first_power", 1.0)):
        if (value := getattr(args, name)) != unset:
            raise ValueError(
                f"{name} is {value}, but batch_sampling {args.batch_sampling!r}: set batch_sampling to short_first, or "
                f"{name} to {unset}"
            )


def require_one_batch_choice(args: TrainingArguments) -> None:
    """Raise a ValueError if more than one setting chooses the examples of a batch."""
    limit = args.batch_tokens
    strategy = args.train_sampling_strategy
    choices = {
        "batch_tokens": limit,
        "batch_sampling": args.batch_sampling,
        "train_sampling_strategy": None if strategy == "random" else strategy,
    }
    if limit is not None:
        choices["per_device_train_batch_size"] = args.per_device_train_batch_size
        choices["auto_find_batch_size"] = args.auto_find_batch_size or None
    made = [f"{name} {value!r}" for name, value in choices.items() if value is not None]
    if len(made) > 1:
        first, second = made[0].replace(" ", " is ", 1), made[1]
        raise ValueError(f"{first} and {second}: both choose the examples of a batch, set one of them")


def check_sharding(trainer: Trainer) -> None:
    """Raise a ValueError for a way to shard parameters that leaves no whole checkpoint, or that cannot be had here."""
    if not trainer.is_fsdp_enabled:
        return
    if trainer.model.config.capabilities.two_stacks:
        kind = type(trainer.model).__name__
        raise ValueError(
            f"the launcher asks for FSDP, but the two stacks of {kind} share embeddings, which it cannot shard: take "
            "MULTI_GPU"
        )
    check_fsdp_plugin(trainer.accelerator.state.fsdp_plugin)


def check_graphs(args: TrainingArguments, config: Any) -> None:
    """Raise a ValueError for passes that cannot be captured as CUDA graphs, if that is asked for."""
    if not args.cuda_graphs:
        return
    if args.device.type != "cuda":
        raise ValueError(f"cuda_graphs is True, but training runs on {args.device.type}: leave it out without a GPU")
    reason = host_part(config)
    if reason is not None:
        raise ValueError(f"cuda_graphs is True, but {reason}; or leave cuda_graphs out")
    if args.world_size > 1 or args.n_gpu > 1:
        devices = max(args.world_size, args.n_gpu)
        raise ValueError(f"cuda_graphs is True, for {devices} GPUs: graphs are those of one process on one GPU")
    defaults = {
        "gradient_accumulation_steps": 1,
        "batch_tokens": None,
        "fp16": False,
        "torch_compile": False,
        "gradient_checkpointing": False,
        "torch_empty_cache_steps": None,
    }
    optim = getattr(args.optim, "value", args.optim)
    if "layerwise" in optim or "lomo" in optim:
        raise ValueError(
            f"cuda_graphs is True and optim {optim!r}, which steps within the pass: take one such as adamw"
        )
    for name, value in defaults.items():
        if getattr(args, name) != value:
            raise ValueError(f"cuda_graphs is True and {name} {getattr(args, name)!r}: graphs need {value!r}")
