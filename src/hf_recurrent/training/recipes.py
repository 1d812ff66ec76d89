"""Recipes: YAML files whose keys are the fields of argument dataclasses, and flags that override them."""

import argparse
import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import yaml
from transformers import HfArgumentParser, TrainingArguments

from ..benchmarks import benchmark_info
from ..models.config.base import FOLLOWING
from ..recipes import flags_of, no_recipe, recipe_files, recipe_path
from ..registry import ARCHITECTURES
from ..utils import RecipeLoader, mapping, near_matches, one_line, parse_yaml, read_text, require_known
from .run_folder import NOT_IDENTITY, SHARES, STEP_SIZE, single

DEFAULT_BATCH_SIZE = 8
TRANSFORMERS = TrainingArguments.__dataclass_fields__
# settings that do not change the experiment: besides those that never change a run, chance, precision, placement, and
# the source of the data, which the card states itself
NO_EXPERIMENT = NOT_IDENTITY | {
    *SHARES,
    *("seed", "data_seed", "full_determinism", "bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval"),
    *("attn_implementation", "data_dir", "deepspeed", "project", "debug", "local_rank"),
}
NO_EXPERIMENT_PREFIXES = (
    *("dataloader_", "logging_", "log_", "hub_", "trackio_", "ddp_", "fsdp", "torch_compile"),
    *("gradient_checkpointing", "activation_checkpointing"),
)
# flag -> settings of a recipe that contradict it: one alone chooses a batch's examples, ends training, or names a
# schedule, model or table
DISPLACED = {
    "batch_tokens": ("per_device_train_batch_size", "batch_sampling", "train_sampling_strategy"),
    "per_device_train_batch_size": ("batch_tokens",),
    "batch_sampling": ("batch_tokens", "train_sampling_strategy"),
    "train_sampling_strategy": ("batch_tokens", "batch_sampling"),
    "num_train_epochs": ("max_steps",),
    "lr_schedule": ("lr_scheduler_type", "lr_scheduler_kwargs"),
    "lr_scheduler_type": ("lr_schedule",),
    "model_name_or_path": ("model_type",),
    "model_type": ("model_name_or_path",),
    "paper": ("paper_table",),
    "paper_table": ("paper", "paper_variants"),
}


def read_mapping(path: Path) -> dict[str, Any]:
    """The contents of a recipe file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a YAML mapping.
    """
    if not path.is_file():
        raise FileNotFoundError(no_recipe(str(path)))
    recipe = parse_yaml(read_text(path), f"recipe {path}", RecipeLoader)
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe {path} is not a mapping of keys to values")
    return recipe


def is_packaged(path: Path) -> bool:
    """Whether a recipe is one of this package, or a copy with other names and places, of the same experiment."""

    def experiment(file: Path) -> dict[str, Any]:
        kept = ("paper", "paper_variants")
        return {key: value for key, value in read_mapping(file).items() if key in kept or key not in NO_EXPERIMENT}

    return experiment(path) in map(experiment, recipe_files().values())


def raw_settings(argv: Sequence[str]) -> dict[str, Any]:
    """The settings of a command line's recipe, and over them the last word of each flag, none of them checked."""
    path = recipe_path(argv)
    words = {name: values[-1] if values else True for name, values in flags_of(argv).items()}
    return ({} if path is None else read_mapping(path)) | words


# ---- flags


class Setting(argparse.Action):
    """Stores what a flag gives; several values may be given at once, or one by one."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest) or [] if isinstance(values, list) else None
        setattr(namespace, self.dest, values if before is None else [*before, *values])


class FlagParser(HfArgumentParser):
    """The fields of dataclasses as flags, in a group for each; a bad one is reported in one line."""

    def __init__(self, types_: Sequence[type]):
        super().__init__(
            usage="hf-recurrent train [RECIPE] [--flag value ...]",
            description="RECIPE is a YAML file or a name of `hf-recurrent recipes list`; its keys are flags as well, "
            "and flags win. A flag of several values takes them all at once, or one each time that it is given.",
            allow_abbrev=False,
        )
        self.register("action", None, Setting)
        for kind in types_:
            title = kind.__doc__.strip().partition("\n")[0].rstrip(".")
            group, hints = self.add_argument_group(title), get_type_hints(kind)
            # those of transformers last
            for field in sorted(dataclasses.fields(kind), key=lambda each: each.name in TRANSFORMERS):
                if field.init:
                    field.type = hints[field.name]
                    self._parse_dataclass_field(group, field)
                if field.init and dict in [get_origin(kind) or kind for kind in get_args(hints[field.name])]:
                    self._option_string_actions[f"--{field.name}"].type = partial(text_of_mapping, field.name)
        # of aliases, which transformers takes as they are
        for flag, action in [*self._option_string_actions.items()]:
            self._option_string_actions.setdefault(flag.replace("_", "-"), action)

    def error(self, message: str) -> None:
        raise ValueError(message)


def text_of_mapping(name: str, text: str) -> Any:
    """The mapping that a text stands for; the path of a file stays."""
    try:
        return text if os.path.isfile(text) else mapping(name, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def defaults_of(types_: Sequence[type]) -> dict[str, Any]:
    """Every setting that a recipe may have, with its default."""
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for kind in types_
        for field in dataclasses.fields(kind)
        if field.init
    }


def read_flags(argv: Sequence[str], types_: Sequence[type]) -> dict[str, Any]:
    """The settings that flags give.

    Raises:
        ValueError: an unknown flag or a bad value, with what was probably meant.
    """
    known = defaults_of(types_)
    given, rest = FlagParser(types_).parse_known_args(list(argv), argparse.Namespace(**dict.fromkeys(known)))
    if rest:
        name = rest[0].lstrip("-").partition("=")[0].replace("-", "_")
        raise ValueError(f"unknown argument {rest[0]!r}{near_matches(name, known)}")
    return {name: value for name, value in vars(given).items() if value is not None}


def read_recipe(path: Path, types_: Sequence[type]) -> dict[str, Any]:
    """The settings of a recipe file, with the types that the same flags would give them; mappings and nulls stay.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a YAML mapping, or has an unknown key or a value that the flag would not take.
    """
    recipe, known, words = read_mapping(path), defaults_of(types_), []
    for key, value in recipe.items():
        if key not in known:
            raise ValueError(f"recipe {path} has an unknown key {key!r}{near_matches(str(key), known)}")
        if isinstance(value, list) and value:
            words += [f"--{key}", *map(str, value)]
        elif not isinstance(value, (dict, list, type(None))):
            words.append(f"--{key}={value}")
    try:
        return {**recipe, **read_flags(words, types_)}
    except ValueError as error:
        raise ValueError(f"recipe {path}: {error}") from error


# ---- settings


class Parsed(NamedTuple):
    """An instance of each dataclass; the settings that made them, without defaults; those of flags and recipe."""

    instances: list[Any]
    settings: dict[str, Any]
    flags: dict[str, Any]
    recipe: dict[str, Any] | None


def parse(argv: Sequence[str], types_: Sequence[type]) -> Parsed:
    """`[RECIPE] [--flag value ...]` -> the arguments of a run.

    A mapping given by both is merged key by key; any other flag replaces the recipe's setting, and those that
    contradict it (`DISPLACED`). A `preset` of the model's config becomes the fields that it names.

    Raises:
        FileNotFoundError: the recipe does not exist.
        ValueError: an unknown key, flag or value, with what was probably meant.
    """
    path, defaults = recipe_path(argv), defaults_of(types_)
    recipe = {} if path is None else read_recipe(path, types_)
    flags = read_flags(argv[path is not None :], types_)
    displaced = {key for flag in flags for key in DISPLACED.get(flag, ())}
    settings = {key: value for key, value in recipe.items() if key not in displaced}
    model_type = {**settings, **flags}.get("model_type")
    settings, flags = with_sizes(settings, model_type), with_sizes(flags, model_type)
    for key, value in flags.items():
        before = settings.get(key)
        settings[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    with refusals():
        instances = [kind(**{key: settings[key] for key in defaults_of([kind]) if key in settings}) for kind in types_]
    given = {key: settings[key] for key, default in defaults.items() if settings.get(key, default) != default}
    recipe = None if path is None else simplest(with_sizes(recipe, recipe.get("model_type")))
    return Parsed(instances, simplest(given), simplest(flags), recipe)


def with_sizes(settings: dict[str, Any], model_type: str | None) -> dict[str, Any]:
    """Settings with the fields that `preset` among those of the model's config names, and all sizes that follow.

    Raises:
        ValueError: there is no such preset, or the model is no new one.
    """
    fields = settings.get("config")
    if not isinstance(fields, dict) or "preset" not in fields:
        return settings
    preset, given = fields["preset"], {name: value for name, value in fields.items() if name != "preset"}
    if model_type is None:
        raise ValueError(f"config.preset is {preset!r}, which is of new models: set model_type, or leave it out")
    require_known("model_type", model_type, ARCHITECTURES)
    kind = ARCHITECTURES[model_type].config_class
    require_known("config.preset", preset, [*kind.presets, *kind.papers])
    if preset in kind.papers:
        return {**settings, "config": {**kind.papers[preset], **given}}
    config, known = kind.preset(preset, **given), kind.__dataclass_fields__
    sizes = {name: getattr(config, name) for name in (*kind.presets[preset], *FOLLOWING) if name in known}
    return {**settings, "config": {**given, **sizes}}


@contextmanager
def refusals(about: str = "") -> Iterator[None]:
    """Raise a ValueError, in one line, for a setting that is refused by whatever error."""
    try:
        yield
    except Exception as error:
        raise ValueError(about + one_line(error)) from error


def simplest(value: Any) -> Any:
    """10.0, which a flag of type float gives, as the 10 of a recipe, also inside lists and mappings."""
    if isinstance(value, dict):
        return {key: simplest(item) for key, item in value.items()}
    if isinstance(value, list):
        return [simplest(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def step_size(settings: Mapping[str, Any], processes: int = 1) -> int:
    """Examples, or most tokens, of an optimiser step over all processes."""
    size = settings.get("batch_tokens") or settings.get("per_device_train_batch_size") or DEFAULT_BATCH_SIZE
    return size * settings.get("gradient_accumulation_steps", 1) * processes


def changes_by_flags(
    recipe: Mapping[str, Any] | None, settings: Mapping[str, Any], types_: Sequence[type], processes: int = 1
) -> list[str]:
    """Each setting of the experiment that differs from the recipe's: "config.hidden_size = 32 (512)".

    Args:
        recipe, settings: of `parse`; without a recipe, nothing is changed.
        processes: that share an optimiser step, which the recipe has for one.
    """
    if recipe is None:
        return []
    defaults = defaults_of(types_)
    before = single({**defaults, **recipe, STEP_SIZE: step_size(recipe)})
    now = single({**defaults, **settings, STEP_SIZE: step_size(settings, processes)})
    return [
        f"{name} = {formatted(now.get(name))} ({formatted(before.get(name))})"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
        and name.partition(".")[0] not in NO_EXPERIMENT
        and not name.startswith(NO_EXPERIMENT_PREFIXES)
    ]


def formatted(value: Any) -> str:
    """A value for a sentence: of an absolute path, the last part alone."""
    if value is None:
        return "default"
    value = getattr(value, "value", value)
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    return json.dumps(value, ensure_ascii=False, default=str)


# ---- rows of papers' tables that recipes name, with the numbers of `paper_results.yaml`


@functools.cache
def papers() -> dict[str, dict[str, Any]]:
    """The contents of `paper_results.yaml`, by paper id."""
    return yaml.safe_load(Path(__file__).with_name("paper_results.yaml").read_text(encoding="utf-8"))


def paper_with_title(title: str) -> dict[str, str]:
    """Title, url and bibtex of the paper of that title."""
    paper = next(facts for facts in papers().values() if facts["title"] == title)
    return {name: paper[name] for name in ("title", "url", "bibtex")}


class Cell(NamedTuple):
    """Numbers for a split of a configuration: some of median, mean, std, bleu, bits and slices.

    `needs` are the conditions for a comparison: `steps` of the optimiser, at least, or `exact_steps`; `model`, fields
    of the config; `params`, values that parameters of the benchmark may have; `free`, parameters that may have any
    value, as its seed always may: another draw of the same distribution; `files`, whether data may be read from
    `data_dir`, and `test_examples`, the size of the test split then.
    """

    config: str
    split: str
    numbers: dict[str, Any]
    needs: dict[str, Any]

    def compares(self, data: Any, config: Any, steps: int, examples: int | None, changes: Sequence[str]) -> bool:
        """Whether a run with these `BenchmarkArguments`, model config, steps and test examples is as the paper's.

        Args:
            changes: those of the recipe that no table of the paper has.
        """
        needs = self.needs
        free = tuple(f"benchmark_params.{name} = " for name in ("seed", *needs.get("free", ())))
        params = {**benchmark_info(data.benchmark).parameters[data.benchmark_config], **data.benchmark_params}
        return (
            data.benchmark_config == self.config
            and all(change.startswith(free) for change in changes)
            and (steps == needs["exact_steps"] if "exact_steps" in needs else steps >= needs.get("steps", 0))
            and all(getattr(config, name) == value for name, value in needs.get("model", {}).items())
            and all(params[name] in allowed for name, allowed in needs.get("params", {}).items())
            and (data.data_dir is None or (needs.get("files") and needs.get("test_examples", examples) == examples))
        )


class PaperRow(NamedTuple):
    """A row of a paper's table, and the column if the table is reproduced one column at a time."""

    id: str
    table: int
    row: str
    column: str | None = None

    @classmethod
    def of(cls, paper: Mapping[str, Any]) -> "PaperRow":
        """The row that a recipe's `paper` names.

        Raises:
            ValueError: a key is unknown or missing, or there is no such paper, table, row or column.
        """
        if not {*cls._fields[:3]} <= paper.keys() <= {*cls._fields}:
            raise ValueError(f"paper is {dict(paper)}: expected the keys id, table and row, or column besides")
        named = cls(**paper)
        require_known("paper.id", named.id, papers())
        tables, place = papers()[named.id]["tables"], f"(of {named.id}, Table {named.table})"
        require_known("paper.table", str(named.table), map(str, tables))
        named = named._replace(table=int(named.table))
        # the numbers of some tables are not transcribed
        if "rows" in tables[named.table]:
            require_known(f"paper.row {place}", named.row, tables[named.table]["rows"])
            columns = (column.get("name") for column in tables[named.table]["columns"])
            require_known(f"paper.column {place}", str(named.column), map(str, columns))
        return named

    @property
    def facts(self) -> dict[str, Any]:
        return papers()[self.id]["tables"][self.table]

    @property
    def title(self) -> str:
        """The row in words: "Block-Recurrent Transformers, Table 1 (PG19 bytes), row XL:512"."""
        paper = papers()[self.id]
        place, *more = [text for text in (self.facts.get("about"), self.column) if text is not None]
        return ", ".join([paper.get("name", paper["title"]), f"Table {self.table} ({place})", *more, f"row {self.row}"])

    def cells(self) -> list[Cell]:
        """The row's cells, of `column` if that is chosen; none if the table's numbers are not transcribed."""
        table = self.facts
        row = table.get("rows", {}).get(self.row, [])
        row, cells = row if isinstance(row, dict) else {"cells": row}, []
        for column, cell in zip(table.get("columns", []), row["cells"], strict=True):
            numbers = dict(cell if isinstance(cell, dict) else zip(table["numbers"], cell, strict=False))
            levels = (table, column, row, {"needs": numbers.pop("needs", {})})
            needs = {name: value for level in levels for name, value in level.get("needs", {}).items()}
            if table.get("percent"):
                numbers = {name: round(value / 100, 5) for name, value in numbers.items()}
            if column.get("name") == self.column:
                cells.append(Cell(column["config"], column["split"], numbers, needs))
        return cells


# ---- claims of a run


def reproduced_row(report: Any, changes: Sequence[str]) -> tuple[PaperRow | None, list[str]]:
    """The row that a run reproduces, given what flags changed, and the changes that no table of the paper has.

    A change with a row of its own (`paper_variants`) only counts if none before it has led to another row.

    Args:
        report: the run's `ReportArguments`.
        changes: what flags changed of the recipe, as "max_steps = 7 (12)".
    """
    if not report.paper:
        return None, list(changes)
    named = row = PaperRow.of(report.paper)
    rest = []
    for change in changes:
        # without the recipe's value
        name = change.rpartition(" (")[0]
        other = report.paper_variants.get(name)
        if name not in report.paper_variants or (other is not None and row != named):
            rest.append(change)
        elif other is not None:
            row = PaperRow.of({**report.paper, **other})
    return row, rest


def paper_claims(report: Any, changes: Sequence[str]) -> tuple[str, list[str]]:
    """The table row that a run reproduces and its differences from the paper, both with the changes made by flags."""
    row, rest = reproduced_row(report, changes)
    title = report.paper_table if row is None else row.title
    named = not title.startswith("none")
    if not rest or not (named or report.differences):
        return title, report.differences
    changed = f"changed by flags: {', '.join(rest)}"
    return f"{title}, but {changed}" if named else title, [*report.differences, changed]


def paper_values(
    tables: Mapping[str, Mapping[str, Any]],
    report: Any,
    data: Any,
    config: Any,
    steps: int,
    changes: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Split -> what the paper reports for it, if the run of a recipe of this package is the paper's.

    Args:
        steps: optimizer steps of the run.
        changes: what flags changed of the recipe.
    """
    row, rest = reproduced_row(report, changes)
    found = {}
    for cell in () if row is None else row.cells():
        table = tables.get(cell.split)
        if table is not None and cell.compares(data, config, steps, table.get("n"), rest):
            # a median is shown with its mean
            values = {**cell.numbers, "accuracy": cell.numbers.get("median", cell.numbers.get("mean"))}
            names = ("accuracy", *(("mean",) if "median" in values else ()), "std", "bleu", "bits", "slices")
            found[cell.split] = {name: values[name] for name in names if values.get(name) is not None}
    return found
