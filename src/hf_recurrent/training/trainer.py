"""`Trainer` with what transformers has no hook for: schedules by name, batches and their weights, ties between
checkpoints, depth of evaluations, ponder statistics, ponder warm-up, diverged runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import load
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, EvalLoopOutput, SaveStrategy
from transformers.utils import ModelOutput

from ..analysis.answers import stack_output
from ..analysis.halting import halting_columns
from ..analysis.model_facts import ENCODER, stack_depths, stopping_rule
from ..data.batches import siamese_token_counts, token_counts
from ..files import one_line
from ..hub.checkpoint import first_not_finite
from ..inference.cuda_graphs import host_part
from ..tasks.metrics import AUXILIARY_LOSSES, mean_per_example
from .batches import EpochSampler, TokenBatchSampler, amounts_of, targets_of, token_loader, weighted_loss
from .cuda_graphs import TrainingGraphs, padded
from .engine_checks import check_fsdp_plugin
from .engine_states import load_optimizer, load_weights
from .optimization import SCHEDULES, make_schedule
from .run_folder import (
    COMPLETE,
    SHARDED_MODEL,
    SHARDED_OPTIMIZER,
    WEIGHTS,
    checkpoints,
    last_complete_checkpoint,
    remove_checkpoint,
    step_of,
)
from .selection import best_checkpoints

# optimiser steps whose draws of depth differ between seeds
SEED_STRIDE = 10**7
# outputs beside the logits that `compute_metrics` gets, and those of two stacks
PONDER_STATISTICS = ("ponder_cost", "ponder_steps", "encoder_ponder_cost", "encoder_ponder_steps")
# the number of labelled examples or tokens of a step, among the tensors of a captured batch
NUM_ITEMS = "num_items_in_batch"


class DivergedError(FloatingPointError):
    """A loss or a weight is no longer a finite number."""


@contextmanager
def refusals(setting: str) -> Iterator[None]:
    """Raise errors of packages that refuse a `setting`, of whatever kind, as a ValueError that names it."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{setting} is refused: {one_line(error)}") from error


def auxiliary_losses(outputs: ModelOutput) -> dict[str, torch.Tensor]:
    """Those of `AUXILIARY_LOSSES` that a model's output has, without gradients."""
    found = {name: outputs.get(name) for name in AUXILIARY_LOSSES}
    return {name: value.detach().float() for name, value in found.items() if value is not None}


def check_sharding(trainer: Any) -> None:
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
      processes. Evaluations report these, too, beside the task's loss.
    - of a model that stops by itself, evaluations with `args.report_to` also report `halting_mass/step_k`, the mean
      probability over the evaluated examples of stopping after k depth steps; of two stacks, those of the encoder are
      `encoder_halting_mass/step_k`.
    - scales the ponder loss by min(1, t / `args.ponder_warmup_steps`), t the global step; in training forward passes
      only, so that evaluation losses compare and saved configs hold the full weight.
    - captures forward and backward passes as CUDA graphs, if `args.cuda_graphs`.
    - raises `DivergedError` at a NaN or infinite loss or weight, before it reaches a checkpoint.
    - keeps the last `args.save_total_limit` checkpoints, the best one among them, and the last one to the very end.
    """

    def __init__(self, *args: Any, task: Any = None, **kwargs: Any):
        self.task = task
        super().__init__(*args, **kwargs)
        if self.args.batch_tokens is not None:
            # examples weigh in as well as labels: the trainer does it
            self.model_accepts_loss_kwargs = False
        self.checkpoint_limit = self.args.save_total_limit
        self.sums: dict[str, torch.Tensor] = {}
        self.batches_since_log = 0
        # of the present evaluation, by example
        self.evaluated: dict[str, list[torch.Tensor]] = {}
        # size of a batch, relative to the step's other batches
        self.batch_weight: torch.Tensor | float = 1.0
        # of the present batch, to be recorded
        self.statistics: dict[str, torch.Tensor] = {}
        check_graphs(self.args, self.model.config)
        self.graphs = TrainingGraphs(self.computed_step, self.model) if self.args.cuda_graphs else None
        self.token_batches = self.make_token_batches()

    def make_token_batches(self) -> TokenBatchSampler | None:
        """Batches of at most so many tokens, if the recipe has a limit.

        Raises:
            ValueError: an example alone has more.
        """
        args, (setting, max_tokens) = self.args, self.args.token_limit
        if max_tokens is None or self.train_dataset is None:
            return None
        return TokenBatchSampler(
            self.computed_tokens(self.train_dataset),
            max_tokens,
            self.sampling_seed(),
            process=args.process_index,
            num_processes=args.world_size,
            setting=setting,
        )

    def computed_tokens(self, examples) -> np.ndarray:
        """Tokens that each example costs (N,)."""
        capabilities = self.model.config.capabilities
        if capabilities.two_stacks:
            # of the longer one of source and target
            return np.maximum(token_counts(examples), token_counts(examples, "labels"))
        return siamese_token_counts(examples) if capabilities.siamese else token_counts(examples)

    def sampling_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def get_train_dataloader(self) -> DataLoader:
        if self.token_batches is None:
            return super().get_train_dataloader()
        examples = self._remove_unused_columns(self.train_dataset, description="training")
        return token_loader(examples, self.token_batches, self.data_collator, self.args)

    def get_total_train_batch_size(self, args) -> int:
        """Examples of an optimiser step, on average if batches have different numbers of them."""
        if self.token_batches is None:
            return super().get_total_train_batch_size(args)
        mean_size = len(self.token_batches.lengths) / max(len(self.token_batches.cuts), 1)
        return round(mean_size * args.gradient_accumulation_steps * args.world_size)

    def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
        if self.args.decay_all_parameters:
            return [name for name, _ in model.named_parameters()]
        return super().get_decay_parameter_names(model)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        name, options = getattr(self.args.optim, "value", self.args.optim), self.args.optim_args
        with refusals(f"optim {name!r} with optim_args {options!r}"):
            return super().create_optimizer(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.args.lr_schedule in SCHEDULES and self.lr_scheduler is None:
            self.lr_scheduler = make_schedule(
                self.args.lr_schedule,
                self.optimizer if optimizer is None else optimizer,
                self.args.get_warmup_steps(num_training_steps),
                num_training_steps,
                cycle_adam_beta1=self.args.cycle_adam_beta1,
            )
            self._created_lr_scheduler = True
        name = getattr(self.args.lr_scheduler_type, "value", self.args.lr_scheduler_type)
        with refusals(f"lr_schedule {name!r} with lr_scheduler_kwargs {self.args.lr_scheduler_kwargs!r}"):
            return super().create_scheduler(num_training_steps, optimizer)

    def _get_train_sampler(self, train_dataset=None):
        if self.args.batch_sampling is None:
            return super()._get_train_sampler(train_dataset)
        examples = self.train_dataset if train_dataset is None else train_dataset
        args = self.args
        batch_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        lengths, seed = token_counts(examples), self.sampling_seed()
        growth = (args.short_first_steps, args.short_first_share, args.short_first_power)
        return EpochSampler(args.batch_sampling, lengths, batch_size, seed, *growth)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, counted = super().get_batch_samples(epoch_iterator, num_batches, device)
        if self.args.batch_tokens is None or not batches:
            return batches, counted
        amounts = torch.stack([self.amounts_of(batch) for batch in batches]).sum(0).to(device)
        return batches, self.accelerator.gather(amounts[None]).sum(0)

    def amounts_of(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """As the function: models that generate are those whose labels are of the next token."""
        return amounts_of(batch, shifted=self.model.can_generate())

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        args, strategy = self.args, self.args.save_strategy
        if args.load_best_model_at_end and strategy != SaveStrategy.BEST and not self.control.should_save:
            # there will be no checkpoint of this step to load
            return False
        chosen = args.metric_for_best_model
        if chosen is not None and f"eval_{chosen.removeprefix('eval_')}" not in metrics:
            others = ("runtime", "per_second")
            names = (name for name in metrics if name.startswith("eval_") and not name.endswith(others))
            known = (name.removeprefix("eval_") for name in names if "/" not in name)
            raise ValueError(f"metric_for_best_model is {chosen!r}: evaluations report {', '.join(known)}")
        before = self.state.best_metric
        better = super()._determine_best_metric(metrics, trial)
        if better or args.best_model_on_ties == "first" or args.metric_for_best_model is None:
            return better
        name = args.metric_for_best_model.removeprefix("eval_")
        if metrics[f"eval_{name}"] != before:
            return False
        self.state.best_global_step = self.state.global_step
        return True

    @property
    def reports_mass(self) -> bool:
        return bool(self.args.report_to) and stopping_rule(self.model.config)[0] != "none"

    def evaluation_options(self) -> dict[str, Any]:
        """Arguments of an evaluation's forward passes, beside the batch."""
        depth = {} if self.args.evaluation_depth is None else {"max_depth": self.args.evaluation_depth}
        return depth | ({"output_halting": True} if self.reports_mass else {})

    def halting_masses(self, outputs: ModelOutput) -> dict[str, torch.Tensor]:
        """Halting mass (B,) of each state of each stack, 0 for the input, by its name in logs."""
        config, masses = self.model.config, {}
        for stack, depth in stack_depths(config).items() if self.reports_mass else ():
            # criteria that look at predictions stop the decoder only
            if stack_output(outputs, stack, "halting_probabilities") is None:
                continue
            mass = halting_columns(outputs, config, self.args.evaluation_depth or depth, stack)["mass"]
            prefix = "encoder_" if stack == ENCODER else ""
            names = (f"{prefix}halting_mass/step_{step}" for step in range(mass.shape[1]))
            masses |= dict(zip(names, torch.tensor(mass.T, dtype=torch.float32, device=self.args.device), strict=True))
        return masses

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = {**inputs, **self.evaluation_options()}
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

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        self.evaluated = {}
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        means = {name: torch.cat(values).mean().item() for name, values in self.evaluated.items()}
        output.metrics.update({f"{metric_key_prefix}_{name}": mean for name, mean in means.items()})
        return output

    @contextmanager
    def scaled_ponder_loss(self) -> Iterator[None]:
        config = self.model.config
        warmup = self.args.ponder_warmup_steps
        # recipes are shared with models that have no such loss
        if not warmup or not self.model.training or not hasattr(config, "ponder_loss_weight"):
            yield
            return
        weight = config.ponder_loss_weight
        config.ponder_loss_weight = weight * min(1.0, self.state.global_step / warmup)
        try:
            yield
        finally:
            config.ponder_loss_weight = weight

    @contextmanager
    def seeded_depth(self) -> Iterator[None]:
        """Draw one depth for all batches of an optimiser step, on all processes."""
        base = self.model.base_model
        if not self.model.training or getattr(self.model.config, "depth_sampling", "fixed") == "fixed":
            yield
            return
        seed = self.args.seed * SEED_STRIDE + self.state.global_step
        base.depth_generator = torch.Generator().manual_seed(seed)
        try:
            yield
        finally:
            base.depth_generator = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        with self.scaled_ponder_loss(), self.seeded_depth():
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if not model.training:
            auxiliary = auxiliary_losses(outputs).items()
            by_example = {name: value.repeat(len(targets_of(inputs))) for name, value in auxiliary}
            for name, values in (by_example | self.halting_masses(outputs)).items():
                self.evaluated.setdefault(name, []).append(self.gather_function(values))
            return (loss, outputs) if return_outputs else loss
        if self.args.batch_tokens is not None and num_items_in_batch is not None:
            # the step divides by the accumulated batches, and gradients are means over processes
            parts = self.current_gradient_accumulation_steps * self.args.world_size
            fractions = self.amounts_of(inputs) / num_items_in_batch.clamp_min(1) * parts
            loss, self.batch_weight = weighted_loss(loss, outputs.get("aux_loss"), fractions), fractions[0]
        self.statistics = self.statistics_of(outputs)
        return (loss, outputs) if return_outputs else loss

    def statistics_of(self, outputs: ModelOutput) -> dict[str, torch.Tensor]:
        """Means over a batch of auxiliary losses, ponder cost and executed steps, those that the output has."""
        values = auxiliary_losses(outputs)
        for name in PONDER_STATISTICS:
            if outputs.get(name) is not None:
                values[name] = mean_per_example(outputs[name].detach()).float().mean()
        return values

    def record(self, statistics: Mapping[str, torch.Tensor]) -> None:
        """Add a batch's ponder statistics to the sums since the last log, without waiting for the device."""
        self.batches_since_log += 1
        for name, value in statistics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * self.batch_weight

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # evaluations and the end of training log as well, under other names
        if "loss" in logs and self.sums:
            means = torch.stack([self.sums[name] / self.batches_since_log for name in sorted(self.sums)])
            means = self.accelerator.gather(means[None]).mean(0)
            logs |= dict(zip(sorted(self.sums), means.tolist(), strict=True))
            self.sums, self.batches_since_log = {}, 0
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
        self.record(self.statistics)
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
        if self.state.global_step < self.args.ponder_warmup_steps:
            # the weight of the ponder loss differs from step to step
            found = self.computed_step(batch, self.drawn_depth())
        else:
            found = self.graphs.run(batch, self.drawn_depth())
        loss = found.pop("loss")
        self.statistics = found
        return loss

    def drawn_depth(self) -> int | None:
        """The depth of the present step where depths are drawn."""
        with self.seeded_depth():
            return self.model.base_model.call_depth(None, None)

    def computed_step(self, batch: Mapping[str, torch.Tensor], depth: int | None) -> dict[str, torch.Tensor]:
        """Forward and backward pass of a batch, at a depth if one was drawn -> its loss and statistics."""
        inputs = {name: value for name, value in batch.items() if name != NUM_ITEMS}
        inputs |= {} if depth is None else {"max_depth": depth}
        with self.compute_loss_context_manager():
            loss = self.compute_loss(self.model_wrapped, inputs, num_items_in_batch=batch.get(NUM_ITEMS))
        self.accelerator.backward(loss)
        return {"loss": loss.detach(), **self.statistics}

    def _save_checkpoint(self, model, trial) -> None:
        # the last good checkpoint must stay the last one
        name = first_not_finite(self.model)
        if name is not None:
            raise self.diverged(f"the weight {name}")
        # of a run that was killed while it was written
        stale = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save and stale.is_dir():
            remove_checkpoint(stale)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)

        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            (stale / COMPLETE).touch()
            self.remove_old_checkpoints(self.state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint = Path(resume_from_checkpoint)
        if (checkpoint / SHARDED_MODEL).is_file() or self.is_fsdp_enabled:
            load_weights(self.model if model is None else model, checkpoint / WEIGHTS)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        folder = Path(checkpoint)
        if (sharded := (folder / SHARDED_MODEL).is_file()) or self.is_fsdp_enabled:
            states = folder / (SHARDED_OPTIMIZER if sharded else OPTIMIZER_NAME)
            load_optimizer(self.model, self.optimizer.optimizer, states)
            self.lr_scheduler.load_state_dict(load(folder / SCHEDULER_NAME))
        else:
            super()._load_optimizer_and_scheduler(checkpoint)

    def train(self, *args: Any, **kwargs: Any):
        # Trainer would delete checkpoints bit by bit, and at the end perhaps the one to resume from
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super().train(*args, **kwargs)
        finally:
            self.args.save_total_limit = limit

    def remove_old_checkpoints(self, state: TrainerState) -> None:
        """Delete the checkpoints up to `state` that are superseded by those that the limit leaves room for."""
        folders = checkpoints(Path(self.args.output_dir))
        # later ones are not yet written to their end
        saved = [folder for folder in folders if step_of(folder) <= state.global_step]
        kept = self.checkpoints_to_keep(state, saved)
        for folder in saved:
            if folder not in kept:
                remove_checkpoint(folder)

    def checkpoints_to_keep(self, state: TrainerState, saved: list[Path]) -> list[Path]:
        """Those of the `saved` checkpoints, the latest first, that are needed or within the limit."""
        if getattr(self.args, "average_checkpoints", None) is not None:
            last = saved if self.checkpoint_limit is None else saved[: max(self.checkpoint_limit, 1)]
            return [*last, *best_checkpoints(state, self.args)]
        best = Path(state.best_model_checkpoint).name if state.best_model_checkpoint else None
        needed = [folder for folder in saved if folder == saved[0] or folder.name == best]
        limit = len(saved) if self.checkpoint_limit is None else self.checkpoint_limit
        others = [folder for folder in saved if folder not in needed]
        return needed + others[: max(limit - len(needed), 0)]

    def diverged(self, what: str) -> DivergedError:
        checkpoint = last_complete_checkpoint(self.args.output_dir)
        return DivergedError(
            f"step {self.state.global_step + 1}: {what} is not a finite number. Last good checkpoint: "
            f"{checkpoint or 'none yet'}. Lower learning_rate, lengthen warmup_steps or lower max_grad_norm, in a new "
            "output_dir"
        )
