"""Runs of transformers' `Trainer`: classifiers and causal language models."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import transformers
from transformers import EarlyStoppingCallback, TrainerState, set_seed
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..hub import CardData
from ..hub.card import Compared
from ..hub.checkpoint import save_checkpoint
from ..inference.processes import from_first
from ..text_data.labels import Labels
from .arguments import ARGUMENT_TYPES
from .baselines import WITHOUT_SKLEARN, baseline_text, compared_texts
from .card import RunFacts, card_data, metric_on
from .clock import TrainingClock
from .data import EvaluationSplit, Splits, collator, load_splits
from .evaluation import evaluate_run, summary
from .metrics import metrics_of, scores_of
from .model import (
    check_evaluation_depth,
    check_model,
    forget_begin,
    load_tokenizer,
    load_trained,
    make_config,
    make_model,
)
from .objectives import CLASSIFICATION, objective_on
from .run import Run
from .run_folder import (
    STEP_SIZE,
    TRAINER_STATE,
    WEIGHTS,
    checkpoint_to_resume,
    is_in,
    last_complete_checkpoint,
    trainer_state,
    training_finished,
)
from .selection import check_metric_name, check_selection, load_average, means_of, selection_of
from .trainer import RecurrentTrainer, refusals
from .trainer_checks import check_graphs, check_sharding

# an improvement of the validation accuracy by less does not reset the patience (the authors' training loop)
MIN_IMPROVEMENT = 1e-4


class TrainerRun(Run):
    """A run that classifies examples or predicts tokens."""

    argument_types = ARGUMENT_TYPES
    trainer_class: type[RecurrentTrainer] = RecurrentTrainer
    split_type: type[EvaluationSplit] = EvaluationSplit

    def __init__(self, argv: Sequence[str]):
        super().__init__(argv)
        self.objective = objective_on(self.data_args)

    @property
    def is_main_process(self) -> bool:
        return self.args.process_index == 0

    def main_process_first(self) -> AbstractContextManager:
        return self.args.main_process_first()

    @cached_property
    def identifying_settings(self) -> dict[str, Any]:
        """Those of any run, and the size of a step, which another number of processes must keep."""
        args, settings = self.args, super().identifying_settings
        limit = getattr(args, "max_tokens", None) or args.batch_tokens or args.per_device_train_batch_size
        return {**settings, STEP_SIZE: limit * args.gradient_accumulation_steps * args.world_size}

    def load_tokenizer(self) -> Any:
        return load_tokenizer(self.model_args, self.data_args)

    def load_splits(self) -> Splits:
        return load_splits(self.data_args, self.tokenizer, self.split_type)

    def text_limit(self) -> int | None:
        """The most tokens of a text that training reads; None: there is no limit."""
        limits = (getattr(self.data_args, name, None) for name in ("max_seq_length", "max_source_length"))
        return next(filter(None, limits), None)

    def collator(self) -> Callable[[list[dict]], dict[str, Any]]:
        return collator(self.tokenizer, self.splits.train)

    @property
    def labels(self) -> Labels | None:
        """The labels of a user's own texts, by which these are scored."""
        return self.data_args.own.labels if self.data_args.own and self.objective is CLASSIFICATION else None

    def compute_metrics(self) -> Callable[[Any], dict[str, float]]:
        """The metrics of evaluations on the way."""
        return self.objective.compute_metrics if self.labels is None else metrics_of(self.labels)

    def scores(self) -> Sequence[str]:
        """The scores of evaluations on the way, by their names."""
        return self.objective.scores if self.labels is None else scores_of(self.labels)

    def check(self) -> None:
        data = self.data_args
        check_metric_name(self.args.metric_for_best_model)
        data.check_data()
        config = check_model(self.model_args, data)
        check_evaluation_depth(config, self.args.evaluation_depth)
        check_graphs(self.args, config)

    def prepare(self) -> None:
        """Load data and model, and make the trainer.

        Raises:
            ValueError: settings do not fit the model or the data.
        """
        args, data = self.args, self.data_args
        self.checkpoint = checkpoint_to_resume(self.folder, args.resume_from_checkpoint)
        with self.main_process_first():
            self.tokenizer = self.load_tokenizer()
        config = make_config(self.model_args, data, self.tokenizer)
        limit_length(config, data)
        # what `truncation=True` cuts to, and later commands; a tokenizer of the Hub has that of its own model
        self.tokenizer.model_max_length = self.text_limit() or VERY_LARGE_INTEGER
        with self.main_process_first():
            self.splits = self.load_splits()
        set_seed(args.seed)
        model = make_model(self.model_args, config, self.objective)
        self.notes = self.beginnings(model)
        check_selection(args, list(self.splits.validation), [*self.scores(), *means_of(config)])
        validation = self.splits.validation
        with refusals("a setting of the trainer"):
            self.trainer = self.trainer_class(
                model=model,
                args=args,
                data_collator=self.collator(),
                train_dataset=self.splits.train,
                # metrics of a single split go without its name
                eval_dataset=validation if len(validation) > 1 else next(iter(validation.values()), None),
                processing_class=self.tokenizer,
                compute_metrics=self.compute_metrics(),
                preprocess_logits_for_metrics=self.objective.preprocess_logits,
                callbacks=[TrainingClock(), *self.early_stopping()],
            )
        check_sharding(self.trainer)

    def early_stopping(self) -> list[EarlyStoppingCallback]:
        """The callback that ends the run early, if its recipe has a patience."""
        patience = self.args.early_stopping_patience
        # transformers stops at this many failures, the authors at one more
        return [] if patience is None else [EarlyStoppingCallback(patience + 1, MIN_IMPROVEMENT)]

    def train(self) -> None:
        """Train to the end, if no checkpoint was written there: `Trainer` would take one more step."""
        checkpoint = self.checkpoint
        if not self.has_ended():
            self.trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            self.checkpoint = last_complete_checkpoint(self.folder)

    def has_ended(self) -> bool:
        """Whether nothing is left to train after the checkpoint; that of another run may end before this one does."""
        checkpoint, args = self.checkpoint, self.args
        if checkpoint is None or not training_finished(checkpoint):
            return False
        if is_in(self.folder, checkpoint):
            return True
        state = trainer_state(checkpoint)
        done, planned = ("global_step", args.max_steps) if args.max_steps > 0 else ("epoch", args.num_train_epochs)
        return state[done] >= planned

    def load_outcome(self) -> None:
        """Model (the best one with `load_best_model_at_end`), state and clock at the end of training.

        They are those of the checkpoint that was written there, whether this process has written it or one before; a
        run without checkpoints has them in memory alone.
        """
        trainer, checkpoint = self.trainer, self.checkpoint
        if not self.has_ended():
            self.model, self.state = self.whole_model(), trainer.state
            # resuming replaces callbacks by their stored selves
            self.clock = next(item for item in trainer.callback_handler.callbacks if isinstance(item, TrainingClock))
            return
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
        best = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        folder = checkpoint.with_name(Path(best).name) if best else checkpoint
        if not folder.is_dir():
            # the run that this one goes on from had the best
            folder = Path(best)
        self.model = load_average(self.whole_model(), [folder / WEIGHTS])
        self.clock = TrainingClock(**self.state.stateful_callbacks["TrainingClock"]["args"])
        # a run that was killed before it did so
        trainer.remove_old_checkpoints(self.state)

    def whole_model(self) -> Any:
        """The trained model; where this process has shards of it alone, one of its config that a checkpoint fits."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        if not self.trainer.is_fsdp_enabled:
            return model
        return getattr(transformers, self.objective.auto_class).from_config(model.config)

    def finalize_model(self) -> dict[str, Any]:
        """Change the trained model into the one to save -> fields of `RunFacts` that describe the change."""
        forget_begin(self.model)
        config, depth = self.model.config, self.args.evaluation_depth
        trained = config.num_hidden_layers
        if depth in (None, trained):
            return {}
        config.num_hidden_layers = depth
        return {"trained_depth": trained}

    def evaluate(self) -> None:
        """Save the checkpoint, and evaluate it as its users load it."""
        from_first(self.save)
        self.model = load_trained(self.folder, self.args.device, self.objective)
        place = (self.model, self.tokenizer, self.splits.evaluation, self.folder, self.report_args)
        size, hidden = self.args.per_device_eval_batch_size, self.args.disable_tqdm
        self.evaluation = evaluate_run(*place, size, progress=not hidden)

    def save(self) -> None:
        """Save the trained model as a checkpoint in the folder."""
        self.load_outcome()
        self.wall_time = self.clock.seconds
        self.changed = self.finalize_model()
        save_checkpoint(self.model, self.folder, self.tokenizer)

    def results(self) -> tuple[CardData, dict[str, Any] | None]:
        """The card, and seconds of epochs and passes."""
        args = self.args
        selection = selection_of(self.state, args, list(self.splits.validation))
        sizes = (self.wall_time, self.state.global_step, args.world_size, args.device)
        facts = self.facts(*sizes, selection=selection, notes=self.notes, **self.changed)
        times = {"epoch_seconds": self.clock.all_epochs, "evaluation_seconds": self.evaluation.seconds}
        return self.card(facts), times if self.report_args.timing else None

    @cached_property
    def compared(self) -> list[Compared]:
        """A user's own texts answered by their words alone; nothing without scikit-learn."""
        if self.labels is None:
            return []
        try:
            return [compared_texts(self.splits, self.data_args.info.text_columns, self.labels.problem_type)]
        except ImportError:
            return []

    def card(self, facts: RunFacts) -> CardData:
        return card_data(self.model, self.data_args, self.report_args, self.evaluation, facts, self.compared)

    def summary(self) -> str:
        epochs = self.clock.all_epochs if self.report_args.timing else None
        metric, tables = metric_on(self.data_args, self.objective), self.evaluation.tables
        beside = [baseline_text(item, tables, metric) for item in self.compared]
        if self.labels is not None and not beside:
            beside = [WITHOUT_SKLEARN]
        return "\n\n".join([summary(self.evaluation, epochs, metric), *beside])


def limit_length(config: Any, data: Any) -> None:
    """Cut texts to the tokens that a model has positions for, as transformers' scripts do."""
    most = config.capabilities.positions
    if most is not None and hasattr(data, "block_size"):
        if data.block_size > most:
            warnings.warn(
                f"{data.length_name} is {data.block_size}, but the model has {most} positions: taking {most}",
                stacklevel=2,
            )
        data.block_size = min(data.block_size, most)
    elif most is not None and hasattr(data, "max_seq_length"):
        data.max_seq_length = most if data.max_seq_length is None else min(data.max_seq_length, most)
