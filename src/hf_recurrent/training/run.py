"""Training runs: from a recipe to a folder that can be published, whatever the objective is."""

import dataclasses
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from signal import SIGINT
from typing import Any, ClassVar

import torch
import yaml
from huggingface_hub import HfApi

from ..files import write_bytes, write_json
from ..hub import CardData, Published, check_access, publish_checkpoint, write_card
from ..hub.base_model import BaseModel, read_base_model
from ..hub.card import read_card
from ..hub.errors import explanation
from ..hub.findings import collapsed_halting
from ..hub.publish import check_repo_id
from ..hub.stored import stored_digest
from ..inference.processes import shared_after_training
from ..models.common.exit_criteria import LEARNED
from .arguments import BenchmarkArguments
from .card import RunFacts, recipe_of, without_folders
from .embeddings import take_embeddings
from .engine_checks import avoid_broken_kernels, join_processes_on_cpus
from .objectives import (
    CLASSIFICATION,
    DOCUMENT_SCRIPT,
    LANGUAGE_MODELLING,
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    OWN_DATA_SCRIPTS,
    QUESTION_ANSWERING,
    SEQ2SEQ,
    TOKEN_CLASSIFICATION,
    script_of,
)
from .recipes import RECIPE_FILE, FlagParser, changes_by_flags, parse, read_mapping, recipe_path, require_known
from .run_folder import claimed, read_run, remove_checkpoints, write_run
from .text_arguments import CHOOSING, SCRIPTS

# script -> module and class of its runs, imported when needed: a run need not load what other objectives need
RUNS = {
    CLASSIFICATION.script: (".trainer_run", "TrainerRun"),
    LANGUAGE_MODELLING.script: (".trainer_run", "TrainerRun"),
    SEQ2SEQ.script: (".seq2seq_run", "Seq2SeqRun"),
    DOCUMENT_SCRIPT: (".document_run", "DocumentRun"),
    TOKEN_CLASSIFICATION.script: (".token_run", "WordRun"),
    MASKED_MODELLING.script: (".token_run", "MaskedRun"),
    QUESTION_ANSWERING.script: (".token_run", "SpanRun"),
    MULTIPLE_CHOICE.script: (".token_run", "ChoiceRun"),
}
# the same for a user's own data, where these have runs of their own
OWN_RUNS = {**RUNS, LANGUAGE_MODELLING.script: (".language_run", "LanguageRun")}


class Run(ABC):
    """One run. A subclass fits models to one kind of objective.

    Attributes:
        argv: the command line, `[RECIPE] [--flag value ...]`; a recipe is a path or a name of `hf_recurrent.recipes`.
        model_args, data_args, report_args, args: the recipe, as `argument_types`.
        settings: the settings that differ from the defaults.
        changes: what flags changed of the recipe.
        folder: `output_dir`.
        tokenizer: that of the model, once it is loaded.

    Raises:
        FileNotFoundError, ValueError: the recipe or a flag is wrong, or the launcher asks for what runs do not take.
    """

    argument_types: ClassVar[tuple[type, ...]]
    tokenizer: Any

    def __init__(self, argv: Sequence[str]):
        join_processes_on_cpus()
        avoid_broken_kernels()
        self.argv = list(argv)
        (self.model_args, self.data_args, self.report_args, self.args), self.settings = parse(argv, self.argument_types)
        if self.data_args.own is not None:
            self.data_args.own = dataclasses.replace(self.data_args.own, token=self.model_args.token)
        self.changes = changes_by_flags(argv, self.settings, self.argument_types)
        self.folder = Path(self.args.output_dir)

    @property
    @abstractmethod
    def is_main_process(self) -> bool:
        """Whether this process writes the results."""

    @abstractmethod
    def main_process_first(self) -> AbstractContextManager:
        """A context that the main process leaves before the others enter it."""

    @abstractmethod
    def check(self) -> None:
        """Check what neither data nor folder are needed for.

        Raises:
            ValueError: there can be no such model, or settings do not fit it.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Load data and model, and find the checkpoint to resume."""

    @abstractmethod
    def train(self) -> None:
        """Train to the end."""

    @abstractmethod
    def evaluate(self) -> None:
        """Save the checkpoint, and evaluate it with all processes, of which the main one writes what it finds."""

    @abstractmethod
    def results(self) -> tuple[CardData, dict[str, Any] | None]:
        """The card of the evaluated checkpoint, and times for `timing.json`, on the main process."""

    @abstractmethod
    def summary(self) -> str:
        """The results as plain-text tables."""

    @cached_property
    def identifying_settings(self) -> dict[str, Any]:
        """The settings, and a digest of a user's own data, which may change without their names."""
        own = self.data_args.own
        return self.settings if own is None else {**self.settings, "digest of the data": own.version}

    def execute(self) -> str | None:
        """Train, evaluate and publish, or resume from the last complete checkpoint in the folder.

        Returns:
            Messages for the user; None on every process but the main one.

        Raises:
            ValueError: the data or the folder do not fit the recipe.
            DivergedError: a loss or weight is no longer a finite number.
            PublishError: publishing failed.
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
                    card, times = self.results()
                    self.write_results(card, times)
                    warned = collapsed_halting({result.split: result.table for result in card.results})
                    message = "\n\n".join([self.summary(), *(f"Warning: {line}" for line in warned)])
            if self.is_main_process and not finished:
                self.finish()
            elif self.is_main_process and self.rewrite_card():
                message += "; its card is written anew"
        if not self.is_main_process:
            return None
        return "\n".join([*([self.publish()] if publishes else []), message])

    def beginnings(self, model: Any) -> list[str]:
        """What a model's training begins with, embeddings that are taken here included -> sentences for the card."""
        name, lines = self.model_args.model_name_or_path, []
        if name is not None:
            lines.append(f"It was fine-tuned from {without_folders(name)}.")
            lines += self.kept_exit(model.config)
        if self.model_args.freeze_base_model:
            trained = model.num_parameters(only_trainable=True)
            lines.append(f"Of its parameters {trained:,} were trained, and the others kept as they were.")
        return [*lines, *self.take_embeddings(model)]

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

    def take_embeddings(self, model: Any) -> list[str]:
        """Give a model another checkpoint's token embeddings, if the recipe names one -> sentences for the card."""
        name = self.model_args.embeddings_from
        if name is None:
            return []
        taken = take_embeddings(model, self.tokenizer, name, token=self.model_args.token)
        found = f"{taken.rows:,} of {taken.tokens:,} token embeddings started as those of {Path(name).name}"
        if self.is_main_process:
            warnings.warn(found, stacklevel=2)
        return [f"{found}."]

    def facts(self, wall_time: float, steps: int, processes: int, device: torch.device, **more: Any) -> RunFacts:
        """The facts of the training for the card; `wall_time` in seconds, `more` are further fields of `RunFacts`."""
        place = (self.folder.name, self.args.hub_model_id)
        more |= {"changes": self.changes, "base_model": self.base_model()}
        return RunFacts(self.argv, *place, self.args.seed, wall_time, steps, processes, device, **more)

    def base_model(self) -> BaseModel | None:
        """The checkpoint of others that the run begins with, if it does."""
        name, options = self.model_args.model_name_or_path, self.model_args.hub_options
        return None if name is None else read_base_model(name, options.get("revision"), options.get("token"))

    def check_license(self, publishes: bool) -> None:
        """Raise a ValueError unless the licence may be chosen, where it is, and lets the weights be published."""
        wanted = self.report_args.license
        base = self.base_model() if publishes or wanted is not None else None
        if base is not None and wanted is not None:
            raise ValueError(f"license is {wanted!r}, but the weights come from {base.name}, whose licence they have")
        if base is not None:
            base.check_license()

    def write_results(self, card: CardData, timing: dict[str, Any] | None) -> None:
        """Write recipe, card and times, and last the mark that there is nothing to train or evaluate any more."""
        recipe = yaml.safe_dump(recipe_of(self.settings), sort_keys=False, width=110)
        write_bytes(self.folder / RECIPE_FILE, recipe.encode())
        training = dataclasses.replace(card.training, weights=stored_digest(self.folder))
        write_card(self.folder, dataclasses.replace(card, training=training))
        if timing is not None:
            write_json(self.folder / "timing.json", timing)
        write_run(self.folder, self.identifying_settings, evaluated=True)

    def rewrite_card(self) -> bool:
        """Give the card of a finished run what flags say of it alone -> whether it is another card now."""
        flags = given(self.argv[recipe_path(self.argv) is not None :], ["title", "license", "notice", "dataset_id"])
        if not flags:
            return False
        self.check_license(publishes=False)
        card = read_card(self.folder)
        title = flags.pop("title", card.model_name)
        # it begins with the title
        claim = card.claim.replace(card.model_name, title, 1)
        benchmark = dataclasses.replace(card.benchmark, dataset_id=flags.pop("dataset_id", card.benchmark.dataset_id))
        changed = dataclasses.replace(card, model_name=title, claim=claim, benchmark=benchmark, **flags)
        if changed == card:
            return False
        write_card(self.folder, changed)
        return True

    def finish(self) -> None:
        """Remove what only a resumption needs, then write the mark that nothing is left to do."""
        if not self.report_args.keep_checkpoints:
            remove_checkpoints(self.folder)
        write_run(self.folder, self.identifying_settings, finished=True)

    def hub_options(self) -> dict[str, Any]:
        private = self.args.hub_private_repo
        return {
            "repo_id": self.args.hub_model_id,
            "private": True if private is None and self.data_args.own is not None else private,
            "revision": self.args.hub_revision,
            "api": HfApi(token=self.args.hub_token),
        }

    def publish(self) -> str:
        """Publish the finished run -> a message with its address."""
        done = publish_checkpoint(self.folder, **self.hub_options(), announce=announce)
        return f"{'published' if done.changed else 'unchanged:'} {done.url}"


def announce(planned: Published) -> None:
    """Print what a run will send."""
    files = [f"{size:>12,}  {path}" for path, size in planned.files.items()]
    sys.stdout.write("\n".join([*files, *planned.facts(), ""]))


def given(argv: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Those of some settings that flags or else the recipe give."""
    parser = FlagParser([], add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}", *{f"--{name.replace('_', '-')}"} - {f"--{name}"})
    flags, path = vars(parser.parse_known_args(list(argv))[0]), recipe_path(argv)
    recipe = {} if path is None else read_mapping(path)
    found = {name: recipe.get(name) if flags[name] is None else flags[name] for name in names}
    return {name: value for name, value in found.items() if value is not None}


def run_class(script: str, own: bool = False) -> type[Run]:
    """The class of a script's runs, on own data or on benchmarks."""
    module, name = (OWN_RUNS if own else RUNS)[script]
    return getattr(import_module(module, __package__), name)


def own_script(argv: Sequence[str]) -> str:
    """The script for own data: that of their task, or the first that has all settings; the first of all if none has."""
    task, path = given(argv, ["task"]).get("task"), recipe_path(argv)
    if task is not None:
        require_known("task", task, list(SCRIPTS))
        return SCRIPTS[task]
    names = {word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}
    names |= set() if path is None else read_mapping(path).keys()
    return next((script for script in RUNS if names <= known_settings(script)), CLASSIFICATION.script)


def known_settings(script: str) -> set[str]:
    """The flags of a script, other names for them included."""
    found = [field for cls in run_class(script, own=True).argument_types for field in dataclasses.fields(cls)]
    others = [alias.lstrip("-") for field in found for alias in field.metadata.get("aliases", ())]
    return {field.name for field in found} | set(others)


def matching_script(argv: Sequence[str], script: str | None) -> str:
    """The script for the data of a command line, which was given to `script`, or to one that takes any (None).

    Own data are for any script.

    Raises:
        ValueError: the task of own data is another one than the script's.
    """
    if given(argv, CHOOSING):
        found = own_script(argv)
        task = given(argv, ["task"]).get("task")
        if task is not None and script not in (None, found):
            raise ValueError(f"task is {task!r}, which is for {found}, not {script}: leave it out")
        return script or found
    benchmark = given(argv, ["benchmark"]).get("benchmark")
    if benchmark is None:
        if script in (DOCUMENT_SCRIPT, *OWN_DATA_SCRIPTS) or (script is not None and {"-h", "--help"} & set(argv)):
            return script
        benchmark = BenchmarkArguments.benchmark
    found = script_of(benchmark)
    if script not in (None, found):
        reasons = {item.script: item.data_kind for item in (CLASSIFICATION, LANGUAGE_MODELLING, SEQ2SEQ)}
        reason = reasons.get(found, "has documents, which are read in segments")
        warnings.warn(f"benchmark {benchmark!r} {reason}: running {found} instead of {script}", stacklevel=2)
    return found


def run(argv: Sequence[str], script: str | None = None) -> str | None:
    """Train on a recipe's benchmark, evaluate and, with `push_to_hub`, publish; or resume an earlier call's run.

    Args:
        argv: `[RECIPE] [--flag value ...]`.
        script: the script of the command; that of another objective gives way to the benchmark's own, with a warning.
            None for a command that trains for any objective.

    Returns:
        Messages for the user; None on every process but the main one.

    Raises:
        FileNotFoundError, ValueError: the recipe, a flag, the data or the folder is wrong.
        DivergedError: a loss or weight is no longer a finite number.
        PublishError: publishing failed.
    """
    # the help of a script is that of its runs on own data, which have more flags
    helps = not given(argv, ["benchmark"]) and not {"-h", "--help"}.isdisjoint(argv)
    return run_class(matching_script(argv, script), bool(given(argv, CHOOSING)) or helps)(argv).execute()


def run_and_print(argv: Sequence[str], script: str | None = None) -> None:
    """`run`, its messages written to standard output."""
    messages = run(argv, script)
    if messages is not None:
        sys.stdout.write(f"{messages}\n")


def as_command(main: Callable[[list[str]], None]) -> None:
    """Call `main` with the command line; errors of recipes, data and publishing, and Ctrl-C, end it in one line."""
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt as stopped:
        # what a publication left on the Hub comes first
        sys.stderr.write("\n".join([*map(str, stopped.args), "interrupted", ""]))
        sys.exit(128 + SIGINT)
    except Exception as error:
        problem = explanation(error)
        if problem is None:
            raise
        sys.exit(f"error: {problem}")
