"""Train a sequence classifier on a benchmark and leave a folder that can be published.

    accelerate launch training/run_glue_style.py training/recipes/listops_gut.yaml --output_dir runs/listops_gut

A recipe's keys are flags as well, and flags win: `--max_steps 100 --config '{hidden_size: 128}'`. The same command
again goes on from the last complete checkpoint; `--help` lists everything.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import HfApi
from transformers import EarlyStoppingCallback, set_seed

from hf_recurrent.hub import check_access, publish_checkpoint, write_card
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.hub.errors import PublishError
from hf_recurrent.metrics.serialize import write_bytes, write_json
from hf_recurrent.training.arguments import ARGUMENT_TYPES, RecurrentTrainingArguments
from hf_recurrent.training.card import RunFacts, card_data, recipe_of
from hf_recurrent.training.data import Splits, load_splits
from hf_recurrent.training.evaluation import evaluate_run, summary
from hf_recurrent.training.model import load_tokenizer, load_trained, make_config, make_model
from hf_recurrent.training.recipes import parse
from hf_recurrent.training.run_folder import (
    checkpoint_to_resume,
    claim,
    remove_checkpoints,
    trainer_state,
    training_finished,
    write_run,
)
from hf_recurrent.training.trainer import RecurrentTrainer, TrainingClock, compute_metrics

# an improvement of the validation accuracy by less does not reset the patience (the authors' training loop)
MIN_IMPROVEMENT = 1e-4


def make_trainer(args: RecurrentTrainingArguments, model: Any, tokenizer: Any, splits: Splits) -> RecurrentTrainer:
    callbacks = [TrainingClock()]
    if args.early_stopping_patience is not None:
        # transformers stops at this many failures, the authors at one more
        callbacks.append(EarlyStoppingCallback(args.early_stopping_patience + 1, MIN_IMPROVEMENT))
    return RecurrentTrainer(
        model=model,
        args=args,
        train_dataset=splits.train,
        eval_dataset=splits.validation,
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        callbacks=callbacks,
    )


def train(trainer: RecurrentTrainer, checkpoint: Path | None) -> tuple[Any, int, TrainingClock]:
    """Train to the end -> the model (the best one where the recipe says so), its optimiser steps, and the clock."""
    if checkpoint is not None and training_finished(checkpoint):
        # only the evaluation was interrupted: train() would take one more step
        state = trainer_state(checkpoint)
        best = state["best_global_step"] if trainer.args.load_best_model_at_end else None
        model = load_trained(checkpoint.with_name(f"checkpoint-{best}") if best else checkpoint, trainer.args.device)
        return model, state["global_step"], TrainingClock(**state["stateful_callbacks"]["TrainingClock"]["args"])
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    # resuming replaces callbacks by their stored selves
    clock = next(item for item in trainer.callback_handler.callbacks if isinstance(item, TrainingClock))
    return trainer.accelerator.unwrap_model(trainer.model), trainer.state.global_step, clock


def publishing(args: RecurrentTrainingArguments) -> dict[str, Any]:
    return {
        "repo_id": args.hub_model_id,
        "private": args.hub_private_repo,
        "revision": args.hub_revision,
        "api": HfApi(token=args.hub_token),
    }


def publish(folder: Path, args: RecurrentTrainingArguments) -> None:
    done = publish_checkpoint(folder, **publishing(args))
    print(f"{'published' if done.changed or done.deleted else 'unchanged:'} {done.url}")


def main(argv: list[str]) -> None:
    # 1. the recipe, checked before anything is loaded
    (model_args, data_args, run_args, args), settings = parse(argv, ARGUMENT_TYPES)
    folder = Path(args.output_dir)

    # 2. the output folder: another run's is refused, our own is gone on with
    with args.main_process_first():
        finished = claim(folder, settings)
    # the Trainer would send checkpoints on the way, with optimiser states
    publish_at_end, args.push_to_hub = args.push_to_hub and args.process_index == 0, False
    if finished:
        print(f"{folder} holds this very run, finished: nothing to train")
        if publish_at_end:
            publish(folder, args)
        return
    if publish_at_end:
        # what would stop it should be known before the hours of training
        check_access(**publishing(args))

    # 3. model and data
    tokenizer = load_tokenizer(model_args, data_args.benchmark)
    config = make_config(model_args, data_args.benchmark, tokenizer)
    with args.main_process_first():
        splits = load_splits(data_args, tokenizer)
    set_seed(args.seed)
    model = make_model(model_args, config)

    # 4. training, from the last complete checkpoint if there is one
    checkpoint = checkpoint_to_resume(folder, args.resume_from_checkpoint)
    trainer = make_trainer(args, model, tokenizer, splits)
    model, steps, clock = train(trainer, checkpoint)
    if not trainer.is_world_process_zero():
        return

    # 5. the checkpoint, and the evaluation of what a reader of it gets
    save_checkpoint(model, folder, tokenizer)
    wall_time = clock.seconds
    model = load_trained(folder, args.device)
    evaluation = evaluate_run(model, tokenizer, splits.evaluation, folder, run_args, args.per_device_eval_batch_size)

    # 6. card and recipe, then the mark that the run is complete
    facts = RunFacts(argv, folder.name, args.hub_model_id, args.seed, wall_time, steps, args.world_size, args.device)
    write_bytes(folder / "recipe.yaml", yaml.safe_dump(recipe_of(settings), sort_keys=False, width=110).encode())
    write_card(folder, card_data(model, data_args, run_args, evaluation, facts))
    if run_args.timing:
        write_json(folder / "timing.json", {"epoch_seconds": clock.epochs, "evaluation_seconds": evaluation.seconds})
    write_run(folder, settings, finished=True)
    if not run_args.keep_checkpoints:
        remove_checkpoints(folder)
    if publish_at_end:
        publish(folder, args)
    print(summary(evaluation, clock.epochs if run_args.timing else None))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, FileNotFoundError, FloatingPointError, PublishError) as error:
        sys.exit(f"error: {error}")
