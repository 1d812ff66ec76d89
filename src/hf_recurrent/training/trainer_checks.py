"""Checks of settings of transformers' `Trainer`, before anything is made."""

from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import SaveStrategy
from transformers.utils import is_torch_bf16_gpu_available, is_torch_xla_available

from ..hub.publish import check_repo_id
from ..inference.cuda_graphs import host_part
from .engine_checks import check_fsdp_plugin, require_gpus_for_sharding
from .recipes import defaults_of, require_known

SAMPLINGS = ("with_replacement", "by_length", "short_first", "balanced_lengths")
# settings of transformers without which batches have no columns to pad, evaluations no metrics, or checkpoints nothing
# to go on from
KEPT = (
    *("label_names", "remove_unused_columns", "prediction_loss_only", "batch_eval_metrics", "eval_do_concat_batches"),
    *("include_for_metrics", "save_only_model"),
)


def check_hub_fields(arguments: Any) -> None:
    """Raise a ValueError for a repository that is missing or has no valid name."""
    if arguments.push_to_hub and arguments.hub_model_id is None:
        raise ValueError("push_to_hub needs hub_model_id: owner/name")
    if arguments.hub_model_id is not None:
        check_repo_id(arguments.hub_model_id, "hub_model_id")


def check_choices(args: TrainingArguments) -> None:
    """Raise a ValueError for settings that do not go together, or that nothing here serves."""
    check_batch_sampling(args)
    require_one_batch_choice(args)
    require_reports(args.report_to)
    check_best_model(args)
    check_precision(args)


def check_precision(args: TrainingArguments) -> None:
    """Raise a ValueError for half precision that there is no device for."""
    if args.fp16 and (args.use_cpu or not torch.accelerator.is_available()):
        # accelerate would compute in float32, and say nothing
        raise ValueError("fp16 is True, but training runs on a CPU: set it to False, or bf16 and use_cpu to True")
    for name in ("bf16", "bf16_full_eval"):
        if getattr(args, name) and not (args.use_cpu or is_torch_bf16_gpu_available() or is_torch_xla_available()):
            raise ValueError(
                f"{name} is True, but no GPU here computes in bfloat16: set it to False, or use_cpu to True, which "
                "computes so on the CPU"
            )


def check_best_model(args: TrainingArguments) -> None:
    """Raise a ValueError for a best checkpoint that evaluations cannot choose."""
    evaluates, saves = (getattr(each, "value", each) for each in (args.eval_strategy, args.save_strategy))
    if args.load_best_model_at_end and (evaluates == "no" or saves not in ("best", evaluates)):
        raise ValueError(
            f"load_best_model_at_end is True, but eval_strategy is {evaluates!r} and save_strategy {saves!r}: "
            "checkpoints are compared by evaluations, set both to 'steps' or both to 'epoch'"
        )
    # transformers takes the loss for a model to load
    if saves == "best" and args.metric_for_best_model is None and not args.load_best_model_at_end:
        raise ValueError("save_strategy is 'best': set metric_for_best_model to what is best, such as loss")


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


def check_split_batches(args: TrainingArguments) -> None:
    """Raise a ValueError if processes are to split batches that do not divide."""
    size, processes = args.per_device_train_batch_size, args.world_size
    if args.accelerator_config.split_batches and size % processes:
        raise ValueError(
            f"per_device_train_batch_size is {size} and split_batches True, for {processes} processes: take a multiple "
            f"of {processes}, or leave split_batches out"
        )


def check_sharding(trainer: Trainer) -> None:
    """Raise a ValueError for a way to shard parameters that leaves no whole checkpoint, or that cannot be had here."""
    if not trainer.is_fsdp_enabled:
        require_gpus_for_sharding()
        return
    if trainer.model.config.capabilities.two_stacks:
        kind = type(trainer.model).__name__
        raise ValueError(
            f"the launcher asks for FSDP, but the two stacks of a {kind} share embeddings, which it cannot shard: take "
            "MULTI_GPU"
        )
    check_fsdp_plugin(trainer.accelerator.state.fsdp_plugin)
    if (strategy := trainer.args.save_strategy) in (SaveStrategy.NO, SaveStrategy.BEST):
        raise ValueError(
            f"save_strategy is {strategy.value!r}: of sharded parameters the last checkpoint is kept, save by steps"
        )


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


def require_reports(report_to: Any) -> None:
    """Raise a ValueError for a tracker of experiments that transformers does not know."""
    known = ["none", "all", *INTEGRATION_TO_CALLBACK]
    for name in [report_to] if isinstance(report_to, str) else report_to or ():
        require_known("report_to", name, known)


def require_defaults(args: TrainingArguments) -> None:
    """Raise a ValueError for a setting of transformers that a run of this package cannot do otherwise."""
    defaults = defaults_of([TrainingArguments])
    for name in KEPT:
        value = getattr(args, name)
        if value != defaults[name]:
            raise ValueError(f"{name} is {value!r}: these runs need {defaults[name]}, so leave it out")


def has_betas(optim: str) -> bool:
    """Whether an optimiser of transformers, by name, has Adam's betas; one that works layer by layer shows none."""
    return any(kind in optim for kind in ("adam", "ademamix", "lion")) and "layerwise" not in optim
