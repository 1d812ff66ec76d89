"""The settings of recipes besides the data, as dataclasses; every field is a recipe key and a flag."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

import os
import re
from dataclasses import dataclass, fields, make_dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate.utils.environment import parse_flag_from_env
from transformers import TrainingArguments
from transformers.configuration_utils import PreTrainedConfig
from transformers.hf_argparser import HfArg

from ..convert.pretrained import ORIGINALS
from ..data.arguments import check_numbers, conflict
from ..hub.publish import check_repo_id
from ..registry import ARCHITECTURES
from ..utils import mapping, require_known
from .optimization import SCHEDULES, schedule_names
from .recipes import DEFAULT_BATCH_SIZE, PaperRow

# metrics that are better if lower
LOSSES = ("loss", "nll", "perplexity", "mse", "ponder_cost", "ponder_steps")
SAMPLINGS = ("with_replacement", "by_length", "short_first", "balanced_lengths")
# schedules of transformers that need more than steps, or the course of the loss
NOT_OFFERED = ("reduce_lr_on_plateau", "greedy", "warmup_stable_decay")
LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass
class ModelArguments:
    """Which model to train: a new one of `model_type`, or the checkpoint `model_name_or_path`."""

    model_type: str | None = HfArg(default=None, help=f"Architecture of a new model: {', '.join(ARCHITECTURES)}.")
    model_name_or_path: str | None = HfArg(
        default=None,
        help="Checkpoint to fine-tune instead of a new model: of this package, or one that from_pretrained_recurrent "
        "loads, such as albert/albert-base-v2.",
    )
    model_revision: str | None = HfArg(default=None, help="The branch, tag or commit of the checkpoint on the Hub.")
    ignore_mismatched_sizes: bool = HfArg(
        default=False, help="Initialise weights of the checkpoint whose size differs, as those of other labels."
    )
    freeze_base_model: bool = HfArg(
        default=False,
        help="Train only the head, and what the checkpoint has no weights for: its other weights stay as they are.",
    )
    token: str | None = HfArg(
        default=None, help="Access token for checkpoints, tokenizers and data sets; the one logged in with if unset."
    )
    config: dict | str | None = HfArg(default=None, help="Fields of the model's config.")
    embeddings_from: str | None = HfArg(
        default=None, help="Checkpoint, of any architecture of transformers, to take the token embeddings from."
    )
    attn_implementation: str | None = HfArg(default=None, help="eager, sdpa, flash_attention_2 or flex_attention.")

    def __post_init__(self) -> None:
        self.config = mapping("config", self.config)
        if (self.model_type is None) == (self.model_name_or_path is None):
            raise ValueError(
                "set exactly one of model_type and model_name_or_path, such as --model_type gut for a new model; "
                f"model_type is one of {', '.join(ARCHITECTURES)}"
            )
        if self.model_type is not None:
            require_known("model_type", self.model_type, ARCHITECTURES)
            for name in ("freeze_base_model", "ignore_mismatched_sizes", "model_revision"):
                if value := getattr(self, name):
                    raise ValueError(f"{name} is {value}: it is for a checkpoint, model_name_or_path")

    @property
    def hub_options(self) -> dict[str, Any]:
        """Arguments of the loaders of the checkpoint to fine-tune."""
        found = {"revision": self.model_revision, "token": self.token}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def attention(self) -> dict[str, Any]:
        """The implementation of attention, as an argument of loaders."""
        name = self.attn_implementation
        return {} if name is None else {"attn_implementation": name}

    @cached_property
    def is_original(self) -> bool:
        """Whether the checkpoint is of another package, of an architecture that `from_pretrained_recurrent` takes."""
        found = PreTrainedConfig.get_config_dict(self.model_name_or_path, **self.hub_options)[0]
        return found.get("model_type") in [*ORIGINALS]


@dataclass
class ReportArguments:
    """The card, times and predictions of a run."""

    title: str | None = HfArg(default=None, help="Title of the model card.")
    license: str | None = HfArg(
        default=None,
        help="Licence of the weights as the Hub identifies it, such as mit. If unset: apache-2.0 of a benchmark, "
        "unknown of your own data, that of the checkpoint which was fine-tuned.",
    )
    paper: dict | str | None = HfArg(
        default=None,
        help="The row of a paper's table that the run reproduces, {id, table, row} and column where these are "
        "reproduced one by one; ids and rows are those of training/paper_results.yaml in the package.",
    )
    paper_table: str = HfArg(default="none", help="Instead of paper, a note for the card on what the run reproduces.")
    paper_variants: dict | str | None = HfArg(
        default=None,
        help="Changes by flags that the paper's tables have too, as {'config.pooling = cls': the keys of paper that "
        "they change, or nothing if the row stays the same}.",
    )
    notice: str | None = HfArg(default=None, help="A note at the head of the card.")
    differences: list[str] = HfArg(default_factory=list, help="Differences from the paper.")
    dataset_id: str | None = HfArg(default=None, help="The benchmark's repository on the Hub, for evaluation results.")
    language: list[str] = HfArg(default_factory=list, help="Languages of the data, as ISO 639 codes such as en.")
    examples: bool = HfArg(default=False, help="Quote examples of your own data on the card, which is published.")
    keep_checkpoints: bool = HfArg(default=False, help="Keep checkpoint-N folders of a finished run.")
    write_predictions: bool = HfArg(default=False, help="Write predictions/<split>.jsonl.")

    def __post_init__(self) -> None:
        self.paper = mapping("paper", self.paper)
        self.paper_variants = mapping("paper_variants", self.paper_variants)
        check_numbers(self)
        if self.dataset_id is not None:
            check_repo_id(self.dataset_id, "dataset_id")
        if self.license is not None and not LICENSE.fullmatch(self.license):
            raise ValueError(
                f"license is {self.license!r}: expected what the Hub calls a licence, such as mit, cc-by-4.0 or other"
            )
        if self.paper and self.paper_table != "none":
            raise conflict(self, "paper", "paper_table", "say what the run reproduces")
        if self.paper_variants and not self.paper:
            raise ValueError("paper_variants is set without paper: set paper to the row that they change")
        for other in [{}, *self.paper_variants.values()] if self.paper else ():
            PaperRow.of({**self.paper, **(other or {})})


@dataclass
class RecurrentTrainingArguments(TrainingArguments):
    """`TrainingArguments` with the papers' schedules, weight decay and ponder warm-up.

    `push_to_hub` publishes the finished run as `hub_model_id`, checked as `hf_recurrent.hub.publish_checkpoint` does;
    checkpoints on the way are never sent.
    """

    lr_schedule: str | None = HfArg(
        default=None,
        help="rootwarmup, justwarmup, cosine2, linearwarmup, rsqrt_std, inverse_sqrt_fairseq, or a schedule of "
        "transformers; lr_scheduler_type if unset.",
    )
    cycle_adam_beta1: bool = HfArg(
        default=False, help="With linearwarmup, cycle adam_beta1 from 0.95 to 0.85 and back, as the authors' code does."
    )
    decay_all_parameters: bool = HfArg(
        default=True, help="Weight decay on biases, norms and embeddings too, as the papers' AdamW does."
    )
    per_device_train_batch_size: int | None = HfArg(
        default=None, help="Examples of a batch, per process and accumulated batch; 8 if neither this nor batch_tokens."
    )
    batch_tokens: int | None = HfArg(
        default=None,
        aliases=["--max_tokens"],
        help="Most tokens of a batch of examples of like length, padding counted, per process and accumulated batch; a "
        "siamese pair counts as two of its longer sentence, a source with its target as the longer of the two.",
    )
    batch_sampling: str | None = HfArg(
        default=None,
        help="with_replacement, by_length (batches of like length, shuffled), balanced_lengths (with replacement, all "
        "lengths equally often) or short_first (the same, but the longest length that is drawn grows from batch to "
        "batch, and later epochs are by_length): full batches, drawn for each epoch; train_sampling_strategy if unset.",
    )
    short_first_steps: int = HfArg(
        default=0, help="Optimiser steps until short_first draws all lengths; 0: those of the first epoch."
    )
    short_first_share: float = HfArg(
        default=0.0, help="The share of the lengths that short_first draws from the first step on, the shortest ones."
    )
    short_first_power: float = HfArg(
        default=1.0,
        help="Of the other lengths, short_first draws the share of these steps to this power: above 1, short examples "
        "are trained on longer.",
    )
    best_model_on_ties: str = HfArg(
        default="first", help="Which of equally good checkpoints is kept: the first or the latest."
    )
    evaluation_depth: int | None = HfArg(
        default=None,
        help="Depth steps of evaluations, and of the checkpoint that the run leaves, if they are not those of "
        "training.",
    )
    ponder_warmup_steps: int = HfArg(default=0, help="Steps over which the ponder loss rises from 0 to its weight.")
    cuda_graphs: bool = HfArg(
        default=False,
        help="Replay forward and backward passes as CUDA graphs, which takes less time where models are small.",
    )
    early_stopping_patience: int | None = HfArg(
        default=None, help="Evaluations without improvement that are tolerated; one more stops."
    )
    logging_nan_inf_filter: bool = HfArg(default=False, help="Hide NaN losses in logs; here they stop the run.")
    save_total_limit: int | None = HfArg(default=2, help="Maximum number of checkpoints to keep.")
    restore_callback_states_from_checkpoint: bool = HfArg(default=True, help="Resume the patience counter too.")
    push_to_hub: bool = HfArg(default=False, help="Publish the finished run as hub_model_id.")
    hub_model_id: str | None = HfArg(default=None, help="Repository on the Hub: owner/name.")

    def __post_init__(self) -> None:
        check_launch(self)
        check_numbers(self)
        if self.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}: it would replace the model's loss, and with "
                "it those of steps and halting; leave it out, or let a model of sources and targets smooth labels, "
                f"with config: {{label_smoothing: {self.label_smoothing_factor}}}"
            )
        if self.lr_schedule is not None:
            require_known("lr_schedule", self.lr_schedule, schedule_names())
            other = getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type)
            if other not in ("linear", self.lr_schedule):
                raise conflict(self, "lr_schedule", "lr_scheduler_type", "choose the schedule")
            if self.lr_schedule not in SCHEDULES:
                self.lr_scheduler_type = self.lr_schedule
        if self.cycle_adam_beta1 and self.lr_schedule != "linearwarmup":
            raise ValueError(f"cycle_adam_beta1 needs lr_schedule: linearwarmup, not {self.lr_schedule!r}")
        self.check_batches()
        if self.fp16 and (self.use_cpu or not torch.accelerator.is_available()):
            # accelerate would compute in float32 without a word
            raise ValueError("fp16 is True, but training runs on a CPU: leave it out, or set bf16 to True")
        if self.per_device_train_batch_size is None:
            self.per_device_train_batch_size = DEFAULT_BATCH_SIZE
        require_known("best_model_on_ties", self.best_model_on_ties, ("first", "latest"))
        if self.early_stopping_patience is not None and not self.load_best_model_at_end:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}: it needs load_best_model_at_end: true"
            )
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = not self.metric_for_best_model.endswith(LOSSES)
        super().__post_init__()

    def check_batches(self) -> None:
        """Raise a ValueError for an unknown sampling, or if more than one setting chooses the examples of a batch."""
        if self.batch_sampling is not None:
            require_known("batch_sampling", self.batch_sampling, SAMPLINGS)
        for name, unset in {"short_first_steps": 0, "short_first_share": 0.0, "short_first_power": 1.0}.items():
            if self.batch_sampling != "short_first" and (value := getattr(self, name)) != unset:
                raise ValueError(f"{name} is {value}: it is for batch_sampling short_first, not {self.batch_sampling}")
        ways = ["batch_tokens", "batch_sampling"]
        ways += [] if self.batch_tokens is None else ["per_device_train_batch_size", "auto_find_batch_size"]
        chosen = [name for name in ways if getattr(self, name)]
        chosen += ["train_sampling_strategy"] if self.train_sampling_strategy != "random" else []
        if len(chosen) > 1:
            raise conflict(self, *chosen[:2], "choose the examples of a batch")


@dataclass
class Seq2SeqArguments(RecurrentTrainingArguments):
    """`RecurrentTrainingArguments` with averaged checkpoints and decoding.

    Labels are smoothed by the model (`config: {label_smoothing: 0.1}`).
    """

    average_checkpoints: int | None = HfArg(
        default=None, help="Keep so many of the best checkpoints by metric_for_best_model, and leave their average."
    )
    generation_max_length: int | None = HfArg(
        default=None, help="The most tokens of a target that is written; those of the longest target if unset."
    )
    generation_num_beams: int | None = HfArg(
        default=None, aliases=["--num_beams"], help="Beams of the search for a target; 1, greedy decoding, if unset."
    )
    generation_length_penalty: float = HfArg(
        default=1.0, help="Exponent of the length by which beam search divides log-likelihoods."
    )

    def __post_init__(self) -> None:
        if self.average_checkpoints is not None and not self.load_best_model_at_end:
            raise ValueError("average_checkpoints needs load_best_model_at_end: true, and a metric_for_best_model")
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "nll"
        super().__post_init__()


# settings that mean the same in the loop over documents
SHARED = ("output_dir", "adam_beta1", "adam_beta2", "adam_epsilon", "bf16", "use_cpu", "seed", "save_total_limit")
SHARED += ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_token")
DocumentFields = make_dataclass(
    "DocumentFields",
    [
        (field.name, field.type, HfArg(default=field.default, help=field.metadata["help"]))
        for field in fields(RecurrentTrainingArguments)
        if field.name in SHARED
    ],
)


@dataclass
class DocumentTrainingArguments(DocumentFields):
    """Training over documents, and the folder and repository of the result."""

    per_device_train_batch_size: int = HfArg(
        default=DEFAULT_BATCH_SIZE, help="Sequences that a process reads at a time."
    )
    per_device_eval_batch_size: int = HfArg(default=DEFAULT_BATCH_SIZE, help="Sequences of an evaluation batch.")
    gradient_accumulation_steps: int = HfArg(
        default=1, help="Groups of sequences, read one after another, that make one optimiser step."
    )
    max_steps: int = HfArg(default=500_000, help="Optimiser steps.")
    learning_rate: float = HfArg(
        default=1.0, help="Base learning rate; with adafactor relative to the size of the parameters."
    )
    warmup_steps: float = HfArg(
        default=1000, help="Optimiser steps over which the learning rate rises; below 1, a fraction of max_steps."
    )
    weight_decay: float = HfArg(default=0.0, help="Weight decay of adamw_torch, on all parameters.")
    max_grad_norm: float | None = HfArg(default=None, help="Clip gradients to this norm; 0 or unset: do not.")
    eval_steps: int | None = HfArg(
        default=None, help="Steps between evaluations on validation documents; none on the way if unset."
    )
    save_steps: int = HfArg(default=1000, help="Steps between checkpoints.")
    logging_steps: int = HfArg(default=100, help="Steps between entries of the log.")
    resume_from_checkpoint: str | None = HfArg(
        default=None, help="A checkpoint of output_dir; the last complete one if unset."
    )
    disable_tqdm: bool = HfArg(default=False, help="No progress bars.")
    optim: str = HfArg(default="adafactor", help="adafactor (with momentum, as the paper's) or adamw_torch.")
    lr_schedule: str = HfArg(
        default="rsqrt_std", help="rsqrt_std (the paper's), another of this package's, or a schedule of transformers."
    )

    def __post_init__(self) -> None:
        check_launch(self)
        check_numbers(self, "max_steps", "eval_steps", "save_steps", "logging_steps")
        require_known("optim", self.optim, ("adafactor", "adamw_torch"))
        require_known("lr_schedule", self.lr_schedule, [name for name in schedule_names() if name not in NOT_OFFERED])
        for field in () if self.optim == "adamw_torch" else fields(self):
            if field.name.startswith(("weight_", "adam_")) and (value := getattr(self, field.name)) != field.default:
                raise ValueError(f"{field.name} is {value}, which optim: {self.optim} has not: leave it out")


def check_launch(args: Any) -> None:
    """Raise a ValueError if a run has no folder, or for an engine that leaves no whole checkpoints or divides texts."""
    for name in ("deepspeed", "megatron_lm"):
        if getattr(args, name, None) or parse_flag_from_env(f"ACCELERATE_USE_{name.upper()}"):
            raise ValueError(
                f"{name} is not supported, because its checkpoints are in parts: set distributed_type of accelerate's "
                "config to FSDP, which divides parameters as well, or to MULTI_GPU"
            )
    for name in ("tp_size", "cp_size", "sp_size"):
        if (size := int(os.environ.get(f"PARALLELISM_CONFIG_{name.upper()}", 1))) > 1:
            raise ValueError(f"{name} is {size}, but a state goes through whole texts and models: set it to 1")
    # transformers would take ./trainer_output
    if not args.output_dir:
        raise ValueError("output_dir is not set: give the run a folder, such as --output_dir runs/gut")
