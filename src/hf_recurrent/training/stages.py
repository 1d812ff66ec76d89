"""A training run: prepare, train, save, evaluate, report; from a recipe to a folder that can be published."""

import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from huggingface_hub import HfApi
from transformers import EarlyStoppingCallback, TrainerState, set_seed
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..files import write_bytes, write_json
from ..hub import Published, check_access, publish_checkpoint, read_results, write_results
from ..hub.base_model import check_license, read_base_model
from ..hub.checkpoint import save_checkpoint
from ..hub.findings import collapsed_halting
from ..hub.publish import check_repo_id
from ..inference.processes import from_first, shared_after_training
from ..models.common.exit_criteria import LEARNED
from ..tasks import name_of
from ..tasks.base import Split, Task
from .arguments import (
    DocumentTrainingArguments,
    ModelArguments,
    RecurrentTrainingArguments,
    ReportArguments,
    Seq2SeqArguments,
)
from .clock import TrainingClock
from .embeddings import take_embeddings
from .engine_checks import avoid_broken_kernels, join_processes_on_cpus
from .evaluation import evaluate_run, summary
from .model import check_evaluation_depth, check_model, forget_begin, load_trained, make_config, make_model
from .recipes import changes_by_flags, given, parse, recipe_path
from .results import RunFacts, recipe_of, run_results, without_folders
from .run_folder import (
    RECIPE_FILE,
    STEP_SIZE,
    TRAINER_STATE,
    WEIGHTS,
    checkpoint_to_resume,
    claimed,
    is_in,
    last_complete_checkpoint,
    read_run,
    remove_checkpoints,
    step_of,
    trainer_state,
    training_finished,
    write_run,
)
from .selection import (
    best_checkpoints,
    check_metric_name,
    check_selection,
    load_average,
    means_of,
    selection_of,
)
from .trainer import RecurrentTrainer, check_graphs, check_sharding, refusals

# an improvement of the validation accuracy by less does not reset the patience (the authors' training loop)
MIN_IMPROVEMENT = 1e-4


class Run:
    """One run of transformers' `Trainer`.

    Attributes:
        argv: the command line, `[RECIPE] [--flag value ...]`; a recipe is a path or a name of `hf_recurrent.recipes`.
        task: with the arguments of the data.
        model_args, report, args: the other arguments.
        settings: the settings that differ from the defaults.
        changes: what flags changed of the recipe.
        folder: `output_dir`.

    Raises:
        FileNotFoundError, ValueError: the recipe or a flag is wrong, or the launcher asks for what runs do not take.
    """

    def __init__(self, argv: Sequence[str], task: type[Task]):
        join_processes_on_cpus()
        avoid_broken_kernels()
        self.argv, types_ = list(argv), argument_types(task)
        (self.model_args, data, self.report, self.args), self.settings = parse(argv, types_)
        data.token = self.model_args.token
        self.task = task(data)
        self.changes = changes_by_flags(argv, self.settings, types_)
        self.folder = Path(self.args.output_dir)

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes the results."""
        return self.args.process_index == 0

    def main_process_first(self) -> AbstractContextManager:
        """A context that the main process leaves before the others enter it."""
        return self.args.main_process_first()

    @property
    def step_size(self) -> int:
        """Examples or tokens of an optimiser step, which another number of processes must keep."""
        limit = self.args.token_limit[1] or self.args.per_device_train_batch_size
        return limit * self.args.gradient_accumulation_steps * self.args.world_size

    @cached_property
    def identifying_settings(self) -> dict[str, Any]:
        """The settings, the size of a step, and a digest of a user's own data, which may change without their names."""
        found = {**self.settings, STEP_SIZE: self.step_size}
        return {**found, "digest of the data": self.task.source.version} if self.task.data.is_own else found

    def check(self) -> None:
        """Check what neither data nor folder are needed for.

        Raises:
            ValueError: there can be no such model, or settings do not fit it.
        """
        check_metric_name(self.args.metric_for_best_model)
        self.task.data.check_files()
        self.task.check(self.args, self.report)
        config = check_model(self.model_args, self.task)
        check_evaluation_depth(config, self.args.evaluation_depth)
        check_graphs(self.args, config)

    def execute(self) -> str | None:
        """Train, evaluate and publish, or resume from the last complete checkpoint in the folder.

        Returns:
            Messages for the user; None on every process but the main one.

        Raises:
            ValueError: the data or the folder do not fit the recipe.
            DivergedError: a loss or weight is no longer a finite number.
            OSError: the Hub cannot be reached or refuses.
        """
        self.check()
        if self.args.push_to_hub:
            check_repo_id(self.args.hub_model_id or "", "hub_model_id")
        publishes = self.args.push_to_hub and self.is_main_process
        # Trainer would send checkpoints on the way, with optimiser states
        self.args.push_to_hub = False
        message = f"{self.folder} holds this very run, finished: nothing to train"
        turn = self.main_process_first()
        with claimed(self.folder, self.identifying_settings, turn, self.is_main_process) as finished:
            if not (finished or read_run(self.folder)["evaluated"]):
                if publishes:
                    # known before the hours of training
                    check_access(**self.hub_options())
                self.check_license(publishes)
                self.prepare()
                self.train()
                with shared_after_training():
                    self.evaluate()
                if self.is_main_process:
                    self.write_results()
                    message = self.summary()
            if self.is_main_process and not finished:
                if not self.report.keep_checkpoints:
                    remove_checkpoints(self.folder)
                write_run(self.folder, self.identifying_settings, finished=True)
            elif self.is_main_process and self.rewrite_card():
                message += "; its card is written anew"
        if not self.is_main_process:
            return None
        return "\n".join([*([self.publish()] if publishes else []), message])

    def prepare(self) -> None:
        """Load data and model, and make the trainer, at the beginning or at the checkpoint to resume.

        Raises:
            ValueError: settings do not fit the model or the data.
        """
        args, task = self.args, self.task
        self.checkpoint = checkpoint_to_resume(self.folder, args.resume_from_checkpoint)
        with self.main_process_first():
            self.tokenizer = task.load_tokenizer(self.model_args, self.checkpoint)
        config = make_config(self.model_args, task, self.tokenizer)
        if (most := config.capabilities.positions) is not None:
            task.limit_length(most)
        # what `truncation=True` cuts to, and later commands; a tokenizer of the Hub has that of its own model
        self.tokenizer.model_max_length = task.text_limit or VERY_LARGE_INTEGER
        with self.main_process_first():
            self.splits = task.load_splits(self.tokenizer)
        set_seed(args.seed)
        model = make_model(self.model_args, config, task)
        self.notes = self.beginnings(model)
        validation = self.splits.validation
        check_selection(args, list(validation), [*task.scores, *means_of(config)])
        patience = args.early_stopping_patience
        # transformers stops at this many failures, the authors at one more
        stopping = [] if patience is None else [EarlyStoppingCallback(patience + 1, MIN_IMPROVEMENT)]
        with refusals("a setting of the trainer"):
            self.trainer = RecurrentTrainer(
                model=model,
                args=args,
                task=task,
                data_collator=task.collator(self.tokenizer, args.seed),
                train_dataset=self.splits.train,
                # metrics of a single split go without its name
                eval_dataset=validation if len(validation) > 1 else next(iter(validation.values()), None),
                processing_class=self.tokenizer,
                compute_metrics=task.compute_metrics,
                preprocess_logits_for_metrics=task.preprocess_logits,
                callbacks=[TrainingClock(), *stopping],
            )
        check_sharding(self.trainer)

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

    def outcome(self) -> tuple[Any, dict[str, Any]]:
        """The model at the end of training (the best one with `load_best_model_at_end`), and facts for the card.

        They are those of the checkpoint that was written there, whether this process has written it or one before; a
        run without checkpoints has them in memory alone.
        """
        trainer, checkpoint, args = self.trainer, self.checkpoint, self.args
        model = trainer.accelerator.unwrap_model(trainer.model)
        if trainer.is_fsdp_enabled:
            # this process has shards alone
            model = getattr(transformers, self.task.auto_class).from_config(model.config)
        if not self.has_ended():
            state = trainer.state
            # resuming replaces callbacks by their stored selves
            clock = next(item for item in trainer.callback_handler.callbacks if isinstance(item, TrainingClock))
        else:
            state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
            best = state.best_model_checkpoint if args.load_best_model_at_end else None
            folder = checkpoint.with_name(Path(best).name) if best else checkpoint
            # the run that this one goes on from may have had the best
            model = load_average(model, [(folder if folder.is_dir() else Path(best)) / WEIGHTS])
            clock = TrainingClock(**state.stateful_callbacks["TrainingClock"]["args"])
            # a run that was killed before it did so
            trainer.remove_old_checkpoints(state)
        averaged = best_checkpoints(state, args)
        if averaged:
            load_average(model, [each / WEIGHTS for each in averaged])
        self.epochs = clock.all_epochs
        facts: dict[str, Any] = {"seconds": clock.seconds, "steps": state.global_step}
        facts["selection"] = selection_of(state, args, list(self.splits.validation))
        facts["averaged"] = sorted(map(step_of, averaged))
        trained, depth = model.config.num_hidden_layers, args.evaluation_depth
        if depth not in (None, trained):
            model.config.num_hidden_layers = depth
            facts["trained_depth"] = trained
        return model, facts

    def evaluate(self) -> None:
        """Save the checkpoint, and evaluate it with all processes as its users load it."""
        from_first(self.save)
        self.model = load_trained(self.folder, self.device, self.task)
        size, hidden = self.args.per_device_eval_batch_size, self.args.disable_tqdm
        place = (self.model, self.tokenizer, self.evaluated_splits(), self.folder, self.report)
        self.evaluation = evaluate_run(*place, size, progress=not hidden)

    def evaluated_splits(self) -> list[Split]:
        return self.splits.evaluation

    @property
    def device(self) -> torch.device:
        return self.args.device

    @property
    def num_processes(self) -> int:
        return self.args.world_size

    def save(self) -> None:
        """Save the trained model as a checkpoint in the folder."""
        model, self.outcome_facts = self.outcome()
        forget_begin(model)
        self.task.finalize(model, self.splits, self.args)
        save_checkpoint(model, self.folder, self.tokenizer)

    def write_results(self) -> None:
        """Write recipe, results, card and times, and last the mark that there is nothing left to train or evaluate."""
        facts = RunFacts(
            argv=self.argv,
            name=self.folder.name,
            hub_model_id=self.args.hub_model_id,
            seed=self.args.seed,
            processes=self.num_processes,
            device=self.device,
            changes=self.changes,
            notes=self.notes,
            base_model=self.base_model(),
            **self.outcome_facts,
        )
        recipe = yaml.safe_dump(recipe_of(self.settings), sort_keys=False, width=110)
        write_bytes(self.folder / RECIPE_FILE, recipe.encode())
        place = (self.folder, self.model, self.tokenizer, self.task, self.evaluated_splits(), self.report)
        self.compared = self.task.compared(self.splits)
        write_results(self.folder, run_results(*place, self.evaluation, facts, self.compared))
        if self.report.timing:
            times = {"epoch_seconds": self.epochs, "evaluation_seconds": self.evaluation.seconds}
            write_json(self.folder / "timing.json", times)
        write_run(self.folder, self.identifying_settings, evaluated=True)

    def rewrite_card(self) -> bool:
        """Give the card of a finished run what flags say of it alone -> whether it is another card now."""
        flags = given(self.argv[recipe_path(self.argv) is not None :], ["title", "license", "notice", "dataset_id"])
        if not flags:
            return False
        self.check_license(publishes=False)
        before = read_results(self.folder)
        changed = before | {name: flags[name] for name in ("title", "notice") if name in flags}
        for section, name in (("model", "license"), ("data", "dataset_id")):
            changed[section] = {**before[section], name: flags.get(name, before[section][name])}
        if changed == before:
            return False
        write_results(self.folder, changed)
        return True

    def summary(self) -> str:
        """The results as plain-text tables, and warnings."""
        epochs = self.epochs if self.report.timing else None
        warned = (f"Warning: {line}" for line in collapsed_halting(self.evaluation.tables))
        return "\n\n".join([summary(self.evaluation, epochs, self.task, self.compared), *warned])

    def beginnings(self, model: Any) -> list[str]:
        """What a model's training begins with, embeddings that are taken here included -> sentences for the card."""
        name, lines = self.model_args.model_name_or_path, []
        if name is not None:
            lines.append(f"It was fine-tuned from {without_folders(name)}.")
            lines += self.kept_exit(model.config)
        if self.model_args.freeze_base_model:
            trained = model.num_parameters(only_trainable=True)
            lines.append(f"Of its parameters {trained:,} were trained, and the others kept as they were.")
        source = self.model_args.embeddings_from
        if source is None:
            return lines
        taken = take_embeddings(model, self.tokenizer, source, token=self.model_args.token)
        found = f"{taken.rows:,} of {taken.tokens:,} token embeddings started as those of {Path(source).name}"
        if self.is_main_process:
            warnings.warn(found, stacklevel=2)
        return [*lines, f"{found}."]

    def kept_exit(self, config: Any) -> list[str]:
        """The exit of a checkpoint, which was chosen for the weights before training -> sentences for the card."""
        criterion = config.capabilities.exit_criterion
        if criterion in (None, LEARNED) or "exit_criterion" in self.model_args.config:
            return []
        if self.is_main_process:
            warnings.warn(
                f"the checkpoint stops by exit_criterion={criterion!r}, and its threshold was chosen for the weights "
                "that are trained now: evaluations use it, and may be far less accurate than full depth. Choose "
                "another with `hf-recurrent calibrate` after training, or train with --config "
                f"'{{exit_criterion: {LEARNED}}}'",
                stacklevel=2,
            )
        return [f"Its exit criterion, `{criterion}`, was first chosen for the checkpoint that it was fine-tuned from."]

    def base_model(self) -> dict[str, Any] | None:
        """The checkpoint of others that the run begins with, if it does."""
        name, options = self.model_args.model_name_or_path, self.model_args.hub_options
        return None if name is None else read_base_model(name, options.get("revision"), options.get("token"))

    def check_license(self, publishes: bool) -> None:
        """Raise a ValueError unless the licence may be chosen, where it is, and lets the weights be published."""
        wanted = self.report.license
        base = self.base_model() if publishes or wanted is not None else None
        if base is not None and wanted is not None:
            raise ValueError(
                f"license is {wanted!r}, but the weights come from {base['name']}, whose licence they have"
            )
        if base is not None:
            check_license(base)

    def hub_options(self) -> dict[str, Any]:
        private = self.args.hub_private_repo
        return {
            "repo_id": self.args.hub_model_id,
            "private": True if private is None and self.task.data.is_own else private,
            "revision": self.args.hub_revision,
            "api": HfApi(token=self.args.hub_token),
        }

    def publish(self) -> str:
        """Publish the finished run -> a message with its address."""
        done = publish_checkpoint(self.folder, **self.hub_options(), announce=announce)
        return f"{'published' if done.changed else 'unchanged:'} {done.url}"


def announce(planned: Published) -> None:
    """Print what a run will send."""
    sys.stdout.write("\n".join([*planned.facts(), ""]))


def argument_types(task: type[Task]) -> tuple[type, ...]:
    """The dataclasses of a task's settings."""
    training = {"translation": Seq2SeqArguments, "long-documents": DocumentTrainingArguments}
    return (ModelArguments, task.arguments, ReportArguments, training.get(name_of(task), RecurrentTrainingArguments))
