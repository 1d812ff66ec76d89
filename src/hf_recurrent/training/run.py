"""From a recipe to a folder that can be published: what the scripts in `training/` have in common."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainerState, set_seed

from ..hub import check_access
from ..hub.checkpoint import save_checkpoint
from ..hub.errors import PublishError
from .arguments import ARGUMENT_TYPES, RecurrentTrainingArguments
from .card import RunFacts, card_data
from .changes import changes_by_flags
from .data import Splits, collator, load_splits
from .ending import finish, publish, publishing
from .evaluation import evaluate_run, summary
from .model import check_evaluation_depth, load_tokenizer, load_trained, make_config, make_model
from .objectives import Objective, require_objective
from .recipes import parse
from .run_folder import (
    TRAINER_STATE,
    checkpoint_to_resume,
    claim,
    released_if_refused,
    training_finished,
)
from .selection import check_selection, selection_of
from .trainer import RecurrentTrainer, TrainingClock

# an improvement of the validation accuracy by less does not reset the patience (the authors' training loop)
MIN_IMPROVEMENT = 1e-4
# what a script reports in one line instead of with a traceback
ERRORS = (ValueError, FileNotFoundError, FloatingPointError, PublishError)


def run(argv: Sequence[str], objective: Objective) -> str | None:
    """Train, evaluate and, if asked to, publish; or go on with what an earlier call left in `output_dir`.

    Returns:
        What to tell the user; None on every process but the main one.

    Raises:
        FileNotFoundError, ValueError: the recipe, a flag, the data or the folder is not as it should be.
        DivergedError: a loss or weight is no longer a finite number.
        PublishError: publishing failed.
    """
    # 1. the recipe, checked before anything is loaded
    (model_args, data_args, run_args, args), settings = parse(argv, ARGUMENT_TYPES)
    changes = changes_by_flags(argv, settings, ARGUMENT_TYPES)
    require_objective(objective, data_args.benchmark)
    folder = Path(args.output_dir)

    # 2. the output folder: another run's is refused, our own is gone on with
    with args.main_process_first():
        finished = claim(folder, settings)
    # the Trainer would send checkpoints on the way, with optimiser states
    publish_at_end, args.push_to_hub = args.push_to_hub and args.process_index == 0, False
    if finished:
        report = [f"{folder} holds this very run, finished: nothing to train"]
        return "\n".join([*report, publish(folder, args)] if publish_at_end else report)
    if publish_at_end:
        # what would stop it should be known before the hours of training
        check_access(**publishing(args))

    # 3. model and data
    with released_if_refused(folder):
        tokenizer = load_tokenizer(model_args, data_args.benchmark, data_args.benchmark_config)
        config = make_config(model_args, data_args.benchmark, tokenizer, data_args.benchmark_config)
        with args.main_process_first():
            splits = load_splits(data_args, tokenizer)
        set_seed(args.seed)
        model = make_model(model_args, config, objective)
        checkpoint = checkpoint_to_resume(folder, args.resume_from_checkpoint)
        trainer = make_trainer(args, model, tokenizer, splits, objective)

    # 4. training, from the last complete checkpoint if there is one
    model, state, clock = train(trainer, checkpoint, objective)
    if not trainer.is_world_process_zero():
        return None
    depth = adopt_depth(model.config, args.evaluation_depth)

    # 5. the checkpoint, and the evaluation of what a reader of it gets
    save_checkpoint(model, folder, tokenizer)
    wall_time = clock.seconds
    model = load_trained(folder, args.device, objective)
    evaluation = evaluate_run(model, tokenizer, splits.evaluation, folder, run_args, args.per_device_eval_batch_size)

    # 6. card and recipe, then the mark that the run is complete
    chosen = selection_of(state, args, list(splits.validation))
    facts = run_facts(argv, args, wall_time, state.global_step, changes=changes, selection=chosen, trained_depth=depth)
    timing = {"epoch_seconds": clock.epochs, "evaluation_seconds": evaluation.seconds} if run_args.timing else None
    finish(folder, settings, card_data(model, data_args, run_args, evaluation, facts), run_args, timing)
    report = [publish(folder, args)] if publish_at_end else []
    return "\n".join([*report, summary(evaluation, clock.epochs if run_args.timing else None)])


def run_facts(
    argv: Sequence[str], args: RecurrentTrainingArguments, wall_time: float, steps: int, **more: Any
) -> RunFacts:
    place = (Path(args.output_dir).name, args.hub_model_id)
    return RunFacts(argv, *place, args.seed, wall_time, steps, args.world_size, args.device, **more)


def adopt_depth(config: Any, depth: int | None) -> int | None:
    """Let a checkpoint take the depth steps it was validated with -> those it was trained with, None if the same."""
    before = config.num_hidden_layers
    if depth is None or depth == before:
        return None
    config.num_hidden_layers = depth
    return before


def one_or_all(splits: dict[str, Any]) -> Any:
    return next(iter(splits.values()), None) if len(splits) < 2 else splits


def make_trainer(
    args: RecurrentTrainingArguments, model: Any, tokenizer: Any, splits: Splits, objective: Objective
) -> RecurrentTrainer:
    """The trainer of a run, whose settings fit the model and the data.

    Raises:
        ValueError: they do not.
    """
    check_evaluation_depth(model.config, args.evaluation_depth)
    check_selection(args, list(splits.validation))
    return RecurrentTrainer(
        model=model,
        args=args,
        data_collator=collator(tokenizer, splits.train),
        train_dataset=splits.train,
        # metrics of a single split go without its name
        eval_dataset=one_or_all(splits.validation),
        processing_class=tokenizer,
        compute_metrics=objective.compute_metrics,
        preprocess_logits_for_metrics=objective.preprocess_logits,
        callbacks=[TrainingClock(), *stopping(args)],
    )


def stopping(args: RecurrentTrainingArguments) -> list[EarlyStoppingCallback]:
    """What ends a run early, if its recipe says when."""
    if args.early_stopping_patience is None:
        return []
    # transformers stops at this many failures, the authors at one more
    return [EarlyStoppingCallback(args.early_stopping_patience + 1, MIN_IMPROVEMENT)]


def train(
    trainer: RecurrentTrainer, checkpoint: Path | None, objective: Objective
) -> tuple[Any, TrainerState, TrainingClock]:
    """Train to the end -> the model (the best one where the recipe says so), the run's last state, and the clock."""
    if checkpoint is not None and training_finished(checkpoint):
        # only the evaluation was interrupted: train() would take one more step
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
        best = state.best_global_step if trainer.args.load_best_model_at_end else None
        folder = checkpoint.with_name(f"checkpoint-{best}") if best else checkpoint
        model = load_trained(folder, trainer.args.device, objective)
        return model, state, TrainingClock(**state.stateful_callbacks["TrainingClock"]["args"])
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # resuming replaces callbacks by their stored selves
    clock = next(item for item in trainer.callback_handler.callbacks if isinstance(item, TrainingClock))
    return trainer.accelerator.unwrap_model(trainer.model), trainer.state, clock
