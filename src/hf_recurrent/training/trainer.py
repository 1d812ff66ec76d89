"""`Trainer` with what transformers has no hook for: schedules by name, batches and their weights, ties between
checkpoints, depth of evaluations, ponder statistics, ponder warm-up, diverged runs."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import load
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy

from ..data.batches import siamese_token_counts, token_counts
from ..deploy.cuda_graphs import host_part
from ..hub.checkpoint import first_not_finite
from ..metrics.functional import AUXILIARY_LOSSES, mean_per_example
from ..utils import near_matches, percent
from .batches import EpochSampler, TokenBatchSampler, amounts_of, weighted_loss
from .cuda_graphs import TrainingGraphs, padded
from .optimization import SCHEDULES, make_schedule
from .recipes import refusals
from .run_folder import (
    COMPLETE,
    WEIGHTS,
    DivergedError,
    best_checkpoints,
    checkpoints,
    last_complete_checkpoint,
    remove_checkpoints,
    seconds_of,
    step_of,
)
from .sharding import SHARDED_MODEL, SHARDED_OPTIMIZER, load_optimizer, load_weights

# optimiser steps whose draws of depth differ between seeds
SEED_STRIDE = 10**7
# outputs besides the logits that `compute_metrics` gets, and those of two stacks
PONDER_STATISTICS = ("ponder_cost", "ponder_steps", "encoder_ponder_cost", "encoder_ponder_steps")
# the number of labelled examples or tokens of a step, among the tensors of a captured batch
NUM_ITEMS = "num_items_in_batch"
# settings that a step by CUDA graphs needs
GRAPHED = {
    "gradient_accumulation_steps": 1,
    **dict.fromkeys(("batch_tokens", "torch_empty_cache_steps")),
    **dict.fromkeys(("fp16", "torch_compile", "gradient_checkpointing"), False),
}


def check_graphs(args: TrainingArguments, config: Any) -> None:
    """Raise a ValueError for passes that cannot be captured as CUDA graphs, if that is asked for."""
    if not args.cuda_graphs:
        return
    if args.device.type != "cuda":
        raise ValueError(f"cuda_graphs is True, but training runs on {args.device.type}: leave it out without a GPU")
    if (reason := host_part(config)) is not None:
        raise ValueError(f"cuda_graphs is True, but {reason}; or leave cuda_graphs out")
    if (devices := max(args.world_size, args.n_gpu)) > 1:
        raise ValueError(f"cuda_graphs is True, for {devices} GPUs: graphs are those of one process on one GPU")
    for name, value in GRAPHED.items():
        if getattr(args, name) != value:
            raise ValueError(f"cuda_graphs is True and {name} {getattr(args, name)!r}: graphs need {value!r}")
    optim = getattr(args.optim, "value", args.optim)
    if "layerwise" in optim or "lomo" in optim:
        raise ValueError(f"cuda_graphs is True and optim {optim!r}, which steps within the pass: take adamw_torch")


class RecurrentTrainer(Trainer):
    """Trains models that halt.

    - `args.lr_schedule` may name one of `SCHEDULES`; `args.decay_all_parameters` decays every parameter.
    - `args.batch_sampling` draws batches by an `EpochSampler`.
    - `args.batch_tokens` makes batches by a `TokenBatchSampler`. Their size varies, so each counts in an
      optimiser step, over accumulated batches and processes, with its fraction of the labels, its auxiliary loss and
      logged statistics with its fraction of the examples: the step is that of one large batch.
    - looks for the best checkpoint among evaluations at steps that are saved.
    - of equally good checkpoints, the latest is the best one if `args.best_model_on_ties` is "latest".
    - evaluates with `args.evaluation_depth` depth steps.
    - logs the means of `ponder_cost`, `ponder_steps` and each of `AUXILIARY_LOSSES` since the last log, over all
      processes.
    - scales the ponder loss by min(1, t / `args.ponder_warmup_steps`), t the global step; in training forward passes
      only, so that evaluation losses compare and saved configs hold the full weight.
    - captures forward and backward passes as CUDA graphs, if `args.cuda_graphs`.
    - raises `DivergedError` at a NaN or infinite loss or weight, before it reaches a checkpoint.
    - keeps the last `args.save_total_limit` checkpoints, the best one among them, and the last one to the very end.
    """

    def __init__(self, *args: Any, task: Any = None, **kwargs: Any):
        self.task = task
        super().__init__(*args, **kwargs)
        args = self.args
        # of one stack, batches of other sizes: examples weigh in as well as labels
        self.weighs_batches = args.batch_tokens is not None and not self.model.config.capabilities.two_stacks
        self.model_accepts_loss_kwargs = self.model_accepts_loss_kwargs and not self.weighs_batches
        self.checkpoint_limit = args.save_total_limit
        self.began = time.perf_counter()
        # statistics of batches since the last log, as sums and numbers of batches, and those of the present batch; its
        # size relative to the step's others
        self.logged: dict[str, tuple[torch.Tensor, int]] = {}
        self.statistics: dict[str, torch.Tensor] = {}
        self.batch_weight: torch.Tensor | float = 1.0
        check_graphs(args, self.model.config)
        self.graphs = TrainingGraphs(self.computed_step, self.model) if args.cuda_graphs else None
        self.sampling_seed = args.seed if args.data_seed is None else args.data_seed
        self.token_batches = None
        if args.batch_tokens is not None and self.train_dataset is not None:
            lengths, place = self.computed_tokens(self.train_dataset), (args.process_index, args.world_size)
            self.token_batches = TokenBatchSampler(lengths, args.batch_tokens, self.sampling_seed, *place)

    # ---- batches

    def computed_tokens(self, examples) -> np.ndarray:
        """Tokens that each example costs (N,)."""
        capabilities = self.model.config.capabilities
        if capabilities.two_stacks:
            # of the longer one of source and target
            return np.maximum(token_counts(examples), token_counts(examples, "labels"))
        return siamese_token_counts(examples) if capabilities.siamese else token_counts(examples)

    def get_train_dataloader(self) -> DataLoader:
        if self.token_batches is None:
            return super().get_train_dataloader()
        loader = DataLoader(
            self._remove_unused_columns(self.train_dataset, description="training"),
            batch_sampler=self.token_batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
        )
        # each process has batches of its own already: accelerate shares out batches of equal size only
        return prepare_data_loader(loader, self.args.device, num_processes=1, process_index=0, put_on_device=True)

    def get_total_train_batch_size(self, args) -> int:
        """Examples of an optimiser step, on average if batches have different numbers of them."""
        if self.token_batches is None:
            return super().get_total_train_batch_size(args)
        mean_size = len(self.token_batches.lengths) / len(self.token_batches.starts)
        return round(mean_size * args.gradient_accumulation_steps * args.world_size)

    def _get_train_sampler(self, train_dataset=None):
        args = self.args
        if args.batch_sampling is None:
            return super()._get_train_sampler(train_dataset)
        lengths = token_counts(self.train_dataset if train_dataset is None else train_dataset)
        size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        growth = (args.short_first_steps, args.short_first_share, args.short_first_power)
        return EpochSampler(args.batch_sampling, lengths, size, self.sampling_seed, *growth)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, counted = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not (self.weighs_batches and batches):
            return batches, counted
        amounts = torch.stack([self.amounts_of(batch) for batch in batches]).sum(0).to(device)
        return batches, self.accelerator.gather(amounts[None]).sum(0)

    def amounts_of(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """As the function: models that generate are those whose labels are of the next token."""
        return amounts_of(batch, shifted=self.model.can_generate())

    # ---- optimiser steps

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        if self.args.decay_all_parameters:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        args = self.args
        if args.lr_schedule in SCHEDULES and self.lr_scheduler is None:
            steps = args.get_warmup_steps(num_training_steps), num_training_steps
            optimizer = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = make_schedule(
                args.lr_schedule, optimizer, *steps, cycle_adam_beta1=args.cycle_adam_beta1
            )
            self._created_lr_scheduler = True
        with refusals(f"lr_scheduler_kwargs {args.lr_scheduler_kwargs!r} is refused: "):
            return super().create_scheduler(num_training_steps, optimizer)

    def create_optimizer(self, *args: Any, **options: Any) -> torch.optim.Optimizer:
        with refusals(f"optim_args {self.args.optim_args!r} is refused: "):
            return super().create_optimizer(*args, **options)

    @contextmanager
    def settings_of_step(self) -> Iterator[None]:
        """In training, warm up the ponder loss, and draw one depth for all batches of a step, on all processes."""
        config, base, step = self.model.config, self.model.base_model, self.state.global_step
        if not self.model.training:
            yield
            return
        # recipes are shared with models that have no such loss
        weight, warmup = getattr(config, "ponder_loss_weight", None), self.args.ponder_warmup_steps
        if weight is not None and warmup:
            config.ponder_loss_weight = weight * min(1.0, step / warmup)
        if draws := getattr(config, "depth_sampling", "fixed") != "fixed":
            base.depth_generator = torch.Generator().manual_seed(self.args.seed * SEED_STRIDE + step)
        try:
            yield
        finally:
            if weight is not None:
                config.ponder_loss_weight = weight
            if draws:
                base.depth_generator = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        with self.settings_of_step():
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            if self.weighs_batches and num_items_in_batch is not None:
                # the step divides by the accumulated batches, and gradients are means over processes
                parts = self.current_gradient_accumulation_steps * self.args.world_size
                fractions = self.amounts_of(inputs) / num_items_in_batch.clamp_min(1) * parts
                loss, self.batch_weight = weighted_loss(loss, outputs.get("aux_loss"), fractions), fractions[0]
            found = {name: outputs.get(name) for name in (*AUXILIARY_LOSSES, *PONDER_STATISTICS)}
            self.statistics = {
                name: (mean_per_example(value) if value.dim() else value).detach().float().mean()
                for name, value in found.items()
                if value is not None
            }
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # evaluations and the end of training log as well, under other names
        if "loss" in logs and self.logged:
            names = sorted(self.logged)
            means = torch.stack([total / count for total, count in map(self.logged.get, names)])
            logs |= dict(zip(names, self.accelerator.gather(means[None]).mean(0).tolist(), strict=True))
            self.logged = {}
        super().log(logs, start_time)

    def training_step(self, model, inputs, num_items_in_batch=None) -> torch.Tensor:
        step = super().training_step if self.graphs is None else self.graphed_step
        try:
            loss = step(model, inputs, num_items_in_batch)
        except ValueError as error:
            # the models raise on NaN: the step at which training broke is more to the point
            if first_not_finite(self.model) is None:
                raise
            raise self.diverged("a weight") from error
        if not loss.isfinite():
            raise self.diverged(f"the loss ({loss.item()})")
        for name, value in self.statistics.items():
            # without waiting for the device
            total, count = self.logged.get(name, (0.0, 0))
            self.logged[name] = total + value * self.batch_weight, count + 1
        return loss

    def graphed_step(self, model, inputs, num_items_in_batch=None) -> torch.Tensor:
        """`training_step` of `Trainer`, whose passes are a CUDA graph's once a kind of batch has come again."""
        model.train()
        # schedule-free optimisers have modes
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        batch = padded(self._prepare_inputs(inputs), self.model.config)
        if num_items_in_batch is not None:
            batch[NUM_ITEMS] = torch.as_tensor(num_items_in_batch, device=self.args.device)
        with self.settings_of_step():
            depth = self.model.base_model.call_depth(None, None)
        # the weight of the ponder loss differs from step to step
        warms_up = self.state.global_step < self.args.ponder_warmup_steps
        self.statistics = (self.computed_step if warms_up else self.graphs.run)(batch, depth)
        return self.statistics.pop("loss")

    def computed_step(self, batch: Mapping[str, torch.Tensor], depth: int | None) -> dict[str, torch.Tensor]:
        """Forward and backward pass of a batch, at a depth if one was drawn -> its loss and statistics."""
        inputs = {name: value for name, value in batch.items() if name != NUM_ITEMS}
        inputs |= {} if depth is None else {"max_depth": depth}
        with self.compute_loss_context_manager():
            loss = self.compute_loss(self.model_wrapped, inputs, num_items_in_batch=batch.get(NUM_ITEMS))
        self.accelerator.backward(loss)
        return {"loss": loss.detach(), **self.statistics}

    def diverged(self, what: str) -> DivergedError:
        return DivergedError(self.args.output_dir, self.state.global_step + 1, what)

    # ---- evaluations

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        if self.args.evaluation_depth is not None:
            inputs = {**inputs, "max_depth": self.args.evaluation_depth}
        statistics = getattr(self.task, "example_statistics", None)
        if statistics is not None:
            # logits of all examples would not fit into memory
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
            found = (None, None) if prediction_loss_only else (statistics(outputs, inputs["labels"]), inputs["labels"])
            return loss.detach(), *found
        if ignore_keys is None:
            ignore_keys = [key for key in self.model.config.keys_to_ignore_at_inference if key not in PONDER_STATISTICS]
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        args, before = self.args, self.state.best_metric
        if args.load_best_model_at_end and args.save_strategy != SaveStrategy.BEST and not self.control.should_save:
            # there will be no checkpoint of this step to load
            return False
        if super()._determine_best_metric(metrics, trial):
            return True
        if args.best_model_on_ties == "first" or args.metric_for_best_model is None:
            return False
        tied = metrics[f"eval_{args.metric_for_best_model.removeprefix('eval_')}"] == before
        if tied:
            self.state.best_global_step = self.state.global_step
        return tied

    # ---- checkpoints

    @property
    def seconds(self) -> float:
        """Seconds of training, over all resumptions."""
        return time.perf_counter() - self.began

    def train(self, resume_from_checkpoint: str | Path | bool | None = None, **options: Any):
        checkpoint = resume_from_checkpoint or None
        if checkpoint is True:
            checkpoint = last_complete_checkpoint(self.args.output_dir)
        self.began = time.perf_counter() - (seconds_of(Path(checkpoint)) if checkpoint else 0.0)
        # Trainer would delete, at the end, perhaps the one to resume from
        self.args.save_total_limit = None
        try:
            return super().train(checkpoint, **options)
        finally:
            self.args.save_total_limit = self.checkpoint_limit

    def _save_checkpoint(self, model, trial) -> None:
        # the last good checkpoint must stay the last one
        name = first_not_finite(self.model)
        if name is not None:
            raise self.diverged(f"the weight {name}")
        folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        # of a run that was killed while it was written
        if self.args.should_save and folder.is_dir():
            remove_checkpoints([folder])
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            (folder / COMPLETE).write_text(str(self.seconds))
            self.remove_old_checkpoints()

    def remove_old_checkpoints(self) -> None:
        """Delete the checkpoints that are not needed, but those that the limit leaves room for."""
        # later ones are those of a run that was killed, and not yet written to their end
        saved = [each for each in checkpoints(self.args.output_dir) if step_of(each) <= self.state.global_step]
        best = Path(self.state.best_model_checkpoint or "").name
        needed = {saved[0], *(each for each in saved if each.name == best), *best_checkpoints(self.state, self.args)}
        others = [each for each in saved if each not in needed]
        # as in transformers, nothing or 0 is no limit
        room = max(self.checkpoint_limit - len(needed), 0) if self.checkpoint_limit else len(others)
        remove_checkpoints(others[room:])

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint = Path(resume_from_checkpoint)
        if (checkpoint / SHARDED_MODEL).is_file() or self.is_fsdp_enabled:
            load_weights(self.model if model is None else model, checkpoint / WEIGHTS)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        folder = Path(checkpoint or "")
        sharded = checkpoint is not None and (folder / SHARDED_MODEL).is_file()
        if checkpoint is not None and (sharded or self.is_fsdp_enabled):
            states = folder / (SHARDED_OPTIMIZER if sharded else OPTIMIZER_NAME)
            load_optimizer(self.model, self.optimizer.optimizer, states)
            self.lr_scheduler.load_state_dict(load(folder / SCHEDULER_NAME))
        else:
            super()._load_optimizer_and_scheduler(checkpoint)


# ---- the checkpoint that a run keeps


def check_selection(args: TrainingArguments, splits: Sequence[str], task: Any, config: Any) -> None:
    """Raise a ValueError if checkpoints are to be chosen by a metric that no evaluation of these splits reports."""
    # a metric that is named is looked up at every evaluation
    if not args.load_best_model_at_end and (args.metric_for_best_model is None or not splits):
        return
    reported = {"ponder_cost": config.capabilities.halts, "ponder_steps": config.capabilities.shared_block}
    metrics = [*task.scores, *(name for name in ("loss", "ponder_cost", "ponder_steps") if reported.get(name, True))]
    names = [f"{split}_{name}" if len(splits) > 1 else name for split in splits for name in metrics]
    chosen = "loss" if args.metric_for_best_model is None else args.metric_for_best_model.removeprefix("eval_")
    if chosen not in names:
        known = f"one of {', '.join(names)}" if names else "load_best_model_at_end: false"
        raise ValueError(
            f"metric_for_best_model is {chosen!r}: this run is validated on {', '.join(splits) or 'no split'}, so "
            f"expected {known}{near_matches(chosen, names)}"
        )


def describe_selection(
    state: TrainerState, args: TrainingArguments, splits: Sequence[str], averaged: Sequence[int] = ()
) -> str | None:
    """How the checkpoint that a run keeps was chosen, in a sentence; None if it keeps its last state.

    Args:
        averaged: the steps of the checkpoints whose mean was kept.
    """
    if not args.load_best_model_at_end or state.best_model_checkpoint is None:
        return None
    # with several splits, a metric begins with the name of its split, which may begin with that of another
    metric = args.metric_for_best_model.removeprefix("eval_")
    named = [split for split in splits if metric.startswith(f"{split}_")]
    split = max(named, key=len, default=splits[0])
    metric, best = metric.removeprefix(f"{split}_"), state.best_metric
    value = percent(best) if "accuracy" in metric or metric == "r_squared" else f"{best:.4g}"
    by = f"by its {metric.replace('_', ' ')} on `{split}`"
    if len(averaged) > 1:
        *others, last = (f"{step:,}" for step in averaged)
        steps = f"{', '.join(others)} and {last}"
        return f"The weights are the mean of the checkpoints of steps {steps}, the best ones {by} (at best {value})."
    tied = ", the latest of equals" if args.best_model_on_ties == "latest" else ""
    step = step_of(Path(state.best_model_checkpoint))
    return f"The checkpoint, of step {step:,}, was chosen {by} ({value}{tied}) among {state.global_step:,} steps."
