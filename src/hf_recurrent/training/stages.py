"""A training run: prepare, train, save, evaluate, report; from a recipe to a folder that can be published."""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from accelerate.utils.environment import parse_flag_from_env
from huggingface_hub import HfApi
from transformers import EarlyStoppingCallback, TrainerState, set_seed
from transformers.integrations import get_reporting_integration_callbacks
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..deploy.processes import from_first, shared_after_training
from ..hub import Published, check_access, publish_checkpoint, write_results
from ..hub.base_model import check_license, read_base_model
from ..hub.checkpoint import save_checkpoint
from ..hub.findings import collapsed_halting
from ..hub.publish import check_repo_id
from ..models.config.exit_criteria import LEARNED
from ..models.ops.sharding import is_sharded
from ..tasks import TASKS, get_task
from ..tasks.base import Split
from ..utils import write_bytes
from .arguments import (
    DocumentTrainingArguments,
    ModelArguments,
    RecurrentTrainingArguments,
    ReportArguments,
    Seq2SeqArguments,
)
from .model import (
    check_evaluation_depth,
    check_model,
    forget_begin,
    load_trained,
    make_config,
    make_model,
    take_embeddings,
)
from .recipes import changes_by_flags, parse, refusals, step_size
from .results import evaluate_run, recipe_of, run_results, summary, without_folders
from .run_folder import (
    RECIPE_FILE,
    STEP_SIZE,
    TRAINER_STATE,
    WEIGHTS,
    best_checkpoints,
    checkpoint_to_resume,
    checkpoints,
    claimed,
    last_complete_checkpoint,
    load_average,
    remove_checkpoints,
    seconds_of,
    step_of,
    write_run,
)
from .sharding import check_sharding, whole_model
from .trainer import (
    RecurrentTrainer,
    check_graphs,
    check_selection,
    describe_selection,
)

# an improvement of the validation accuracy by less does not reset the patience (the authors' training loop)
MIN_IMPROVEMENT = 1e-4
TRAINING_ARGUMENTS = {"translation": Seq2SeqArguments, "long-documents": DocumentTrainingArguments}


def argument_types(tag: str) -> tuple[type, ...]:
    """The dataclasses of a task's settings."""
    training = TRAINING_ARGUMENTS.get(tag, RecurrentTrainingArguments)
    return ModelArguments, TASKS[tag][0], ReportArguments, training


class Run:
    """One run of transformers' `Trainer`.

    Attributes:
        argv: the command line, `[RECIPE] [--flag value ...]`; a recipe is a path or a name of `hf_recurrent.recipes`.
        task: with the arguments of the data.
        model_args, report, args: the other arguments.
        settings, flags: the settings that differ from the defaults, and those that flags give.
        changes: what flags changed of the recipe.
        folder: `output_dir`.

    Raises:
        FileNotFoundError, ValueError: the recipe or a flag is wrong, or the launcher asks for what runs do not take.
    """

    def __init__(self, argv: Sequence[str], tag: str):
        join_processes_on_cpus()
        # cuDNN's kernel for SDPA may have NaN among its gradients in half precision (PyTorch issue 196678)
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.argv, types_ = list(argv), argument_types(tag)
        (self.model_args, data, self.report, self.args), self.settings, self.flags, recipe = parse(argv, types_)
        data.token = self.model_args.token
        self.task, self.folder = get_task(tag)(data), Path(self.args.output_dir)
        self.device = self.start()
        self.changes = changes_by_flags(recipe, self.settings, types_, self.num_processes)

    def start(self) -> torch.device:
        """Join the other processes -> this one's device."""
        return self.args.device

    @property
    def num_processes(self) -> int:
        return PartialState().num_processes

    @property
    def is_main_process(self) -> bool:
        """Whether this process writes the results."""
        return PartialState().is_main_process

    @cached_property
    def identifying_settings(self) -> dict[str, Any]:
        """The settings, the size of a step, and a digest of a user's own data, which may change without their names."""
        found = {**self.settings, STEP_SIZE: step_size(self.settings, self.num_processes)}
        return {**found, "digest of the data": self.task.source.version} if self.task.data.is_own else found

    def check(self) -> None:
        """Raise a ValueError if there can be no such model, or settings do not fit it; without reading any data."""
        self.task.data.check_files()
        self.task.check(self.args, self.report)
        config = check_model(self.model_args, self.task)
        check_evaluation_depth(config, self.args.evaluation_depth)
        check_graphs(self.args, config)
        with refusals(f"report_to is {', '.join(self.args.report_to)}: "):
            for callback in get_reporting_integration_callbacks(self.args.report_to):
                callback()

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
        turn = PartialState().main_process_first()
        with claimed(self.folder, self.identifying_settings, turn, self.is_main_process) as record:
            if not record["evaluated"]:
                if publishes:
                    # known before the hours of training
                    check_access(**self.hub_options())
                self.check_license(publishes)
                self.prepare()
                self.train()
                with shared_after_training():
                    self.evaluate()
                if self.is_main_process:
                    message = self.write_results()
            if self.is_main_process and not record["finished"]:
                if not self.report.keep_checkpoints:
                    remove_checkpoints(checkpoints(self.folder))
                write_run(self.folder, self.identifying_settings, finished=True)
        if not self.is_main_process:
            return None
        return "\n".join([*([self.publish()] if publishes else []), message])

    # ---- training

    def prepare(self) -> None:
        """Load data and model, and make the trainer, at the beginning or at the checkpoint to resume.

        Raises:
            ValueError: settings do not fit the model or the data.
        """
        args, task = self.args, self.task
        self.checkpoint = checkpoint_to_resume(self.folder, args.resume_from_checkpoint)
        with PartialState().main_process_first():
            self.tokenizer = task.load_tokenizer(self.model_args, self.checkpoint)
        config = make_config(self.model_args, task, self.tokenizer)
        if (most := config.capabilities.positions) is not None:
            task.limit_length(most)
        # what `truncation=True` cuts to, and later commands; a tokenizer of the Hub has that of its own model
        self.tokenizer.model_max_length = task.text_limit or VERY_LARGE_INTEGER
        with PartialState().main_process_first():
            self.splits = task.load_splits(self.tokenizer)
        model = self.new_model(config)
        validation = self.splits.validation
        check_selection(args, list(validation), task, config)
        patience = args.early_stopping_patience
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
            # transformers stops at this many failures, the authors at one more
            callbacks=None if patience is None else [EarlyStoppingCallback(patience + 1, MIN_IMPROVEMENT)],
        )
        if self.trainer.is_fsdp_enabled:
            check_sharding(config, self.trainer.accelerator.state.fsdp_plugin)

    def new_model(self, config: Any) -> Any:
        """The model to train; sentences for the card on what it begins with are in `history`."""
        arguments, name, self.history = self.model_args, self.model_args.model_name_or_path, []
        set_seed(self.args.seed)
        model = make_model(arguments, config, self.task)
        if name is not None:
            self.history.append(f"It was fine-tuned from {without_folders(name)}.")
            self.history += self.kept_exit(model.config)
        if arguments.freeze_base_model:
            trained = model.num_parameters(only_trainable=True)
            self.history.append(f"Of its parameters {trained:,} were trained, and the others kept as they were.")
        if (source := arguments.embeddings_from) is not None:
            rows = take_embeddings(model, self.tokenizer, source, token=arguments.token)
            found = f"{rows:,} of {len(self.tokenizer):,} token embeddings started as those of {Path(source).name}"
            self.warn(found)
            self.history.append(f"{found}.")
        return model

    def kept_exit(self, config: Any) -> list[str]:
        """The exit of a checkpoint, which was chosen for the weights before training -> sentences for the card."""
        criterion = config.capabilities.exit_criterion
        if criterion in (None, LEARNED) or "exit_criterion" in self.model_args.config:
            return []
        self.warn(
            f"the checkpoint stops by exit_criterion={criterion!r}, and its threshold was chosen for the weights that "
            "are trained now: evaluations use it, and may be far less accurate than full depth. Choose another with "
            f"`hf-recurrent calibrate` after training, or train with --config '{{exit_criterion: {LEARNED}}}'"
        )
        return [f"Its exit criterion, `{criterion}`, was first chosen for the checkpoint that it was fine-tuned from."]

    def warn(self, message: str) -> None:
        if self.is_main_process:
            warnings.warn(message, stacklevel=3)

    def train(self) -> None:
        """Train to the end, if no checkpoint was written there: `Trainer` would take one more step."""
        if not self.has_ended():
            self.trainer.train(resume_from_checkpoint=self.checkpoint)
            self.checkpoint = last_complete_checkpoint(self.folder)

    def has_ended(self) -> bool:
        """Whether nothing is left to train after the checkpoint."""
        if self.checkpoint is None:
            return False
        state = TrainerState.load_from_json(str(self.checkpoint / TRAINER_STATE))
        return state.stateful_callbacks["TrainerControl"]["args"]["should_training_stop"]

    @property
    def plain_model(self) -> Any:
        """The model without the wrapper for several processes."""
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    def outcome(self) -> Any:
        """The model at the end of training (the best one with `load_best_model_at_end`); facts are in `facts`.

        They are those of the checkpoint that was written there, whether this process has written it or one before; a
        run without checkpoints has them in memory alone.
        """
        trainer, checkpoint, args = self.trainer, self.checkpoint, self.args
        model, state, seconds = self.whole, trainer.state, trainer.seconds
        if self.has_ended():
            state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
            seconds = seconds_of(checkpoint)
            best = state.best_model_checkpoint if args.load_best_model_at_end else None
            # the folder of the run may have been moved
            model = load_average(model, [(checkpoint.with_name(Path(best).name) if best else checkpoint) / WEIGHTS])
        averaged = best_checkpoints(state, args)
        if averaged:
            load_average(model, [each / WEIGHTS for each in averaged])
        chosen = describe_selection(state, args, list(self.splits.validation), sorted(map(step_of, averaged)))
        trained = model.config.num_hidden_layers
        self.facts = {"seconds": seconds, "steps": state.global_step, "trained_depth": trained}
        self.history = [*([] if chosen is None else [chosen]), *self.history]
        model.config.num_hidden_layers = args.evaluation_depth or trained
        return model

    # ---- results

    def evaluate(self) -> None:
        """Save the checkpoint, and evaluate it with all processes as its users load it."""
        model = self.plain_model
        # all processes of a sharded model call for it
        self.whole = whole_model(model) if is_sharded(model) else model
        from_first(self.save)
        self.model = load_trained(self.folder, self.device, self.task)
        place = (self.model, self.tokenizer, self.evaluated_splits(), self.folder, self.report)
        self.tables, self.shown = evaluate_run(
            *place, self.args.per_device_eval_batch_size, progress=not self.args.disable_tqdm
        )

    def evaluated_splits(self) -> list[Split]:
        return self.splits.evaluation

    def save(self) -> None:
        """Save the trained model as a checkpoint in the folder."""
        model = self.outcome()
        forget_begin(model)
        self.task.finalize(model, self.splits, self.args)
        save_checkpoint(model, self.folder, self.tokenizer)

    def write_results(self) -> str:
        """Write recipe, results and card, and last the mark that there is nothing left to train or evaluate.

        Returns:
            The results as plain-text tables, and warnings.
        """
        recipe = yaml.safe_dump(recipe_of(self.settings), sort_keys=False, width=110)
        write_bytes(self.folder / RECIPE_FILE, recipe.encode())
        results = run_results(self)
        write_results(self.folder, results)
        write_run(self.folder, self.identifying_settings, evaluated=True)
        warned = (f"Warning: {line}" for line in collapsed_halting(self.tables))
        return "\n\n".join([summary(self.tables, self.task.metric, results["compared"]), *warned])

    @cached_property
    def base_model(self) -> dict[str, Any] | None:
        """The checkpoint of others that the run begins with, if it does."""
        given = self.model_args
        place = given.model_name_or_path, given.model_revision, given.token
        return None if place[0] is None else read_base_model(*place)

    def check_license(self, publishes: bool) -> None:
        """Raise a ValueError unless the licence may be chosen, where it is, and lets the weights be published."""
        wanted, base = self.report.license, self.base_model if publishes or self.report.license is not None else None
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


def join_processes_on_cpus() -> None:
    """Let the processes of a launcher train together where there are no GPUs.

    accelerate would let each of them train by itself without `use_cpu`, which its launcher does not hand on from a
    file with MULTI_GPU. With FSDP they train together as they are, and nothing is sharded.
    """
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if several and not torch.accelerator.is_available() and not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        os.environ["ACCELERATE_USE_CPU"] = "true"
