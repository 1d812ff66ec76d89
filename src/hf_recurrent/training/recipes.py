"""Recipes: YAML files whose keys are the fields of argument dataclasses, and flags that override them."""

import argparse
import dataclasses
import json
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from transformers import HfArgumentParser

from ..files import RecipeLoader, mapping, one_line, parse_yaml
from ..hub.checkpoint import root_cause
from ..models.common.configuration import FOLLOWING
from ..recipes import find_recipe, no_recipe
from ..registry import ARCHITECTURES
from ..templating import near_matches, require_known
from .run_folder import NOT_IDENTITY

# settings that do not change the experiment: beside those that never change a run, chance, precision, placement, and
# the source of the data, which the card states itself
NO_EXPERIMENT = NOT_IDENTITY | {
    *("seed", "data_seed", "full_determinism", "bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval"),
    *("attn_implementation", "data_dir", "deepspeed", "project", "debug", "local_rank"),
}
NO_EXPERIMENT_PREFIXES = (
    *("dataloader_", "logging_", "log_", "hub_", "trackio_", "ddp_", "fsdp", "torch_compile"),
    *("gradient_checkpointing", "activation_checkpointing"),
)


def read_mapping(path: Path) -> dict[str, Any]:
    """The contents of a recipe file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a YAML mapping.
    """
    if not path.is_file():
        raise FileNotFoundError(no_recipe(path))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"recipe {path} is not text in UTF-8 ({error.reason}): name a YAML file") from error
    recipe = parse_yaml(text, f"recipe {path}", RecipeLoader)
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe {path} is not a mapping of keys to values")
    return recipe


def read_recipe(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """The settings of a recipe file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a YAML mapping, or has a key that is not in `known`.
    """
    recipe, known = read_mapping(path), list(known)
    for key in recipe:
        if key not in known:
            raise ValueError(f"recipe {path} has an unknown key {key!r}{near_matches(str(key), known)}")
    return recipe


def recipe_path(argv: Sequence[str]) -> Path | None:
    """The file of a command line's recipe, by its path or name; None if it has flags alone."""
    return find_recipe(argv[0]) if argv and not argv[0].startswith("-") else None


def given(argv: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Those of some settings that flags or else the recipe give."""
    parser = FlagParser([], add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}", *{f"--{name.replace('_', '-')}"} - {f"--{name}"})
    flags, path = vars(parser.parse_known_args(list(argv))[0]), recipe_path(argv)
    recipe = {} if path is None else read_mapping(path)
    found = {name: recipe.get(name) if flags[name] is None else flags[name] for name in names}
    return {name: value for name, value in found.items() if value is not None}


class Setting(argparse.Action):
    """Stores what a flag gives; one of several values may be repeated, for one list of them all.

    Of a repeated flag of one value the last one wins, as in all commands.
    """

    given = False

    def __call__(self, parser, namespace, values, option_string=None):
        if self.given and isinstance(values, list):
            values = [*getattr(namespace, self.dest), *values]
        self.given = True
        setattr(namespace, self.dest, values)


class FlagParser(HfArgumentParser):
    """Groups flags by the class that declares them, and reports a bad one in one line instead of after them all."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        return super().add_argument(*names, **{"action": Setting, **options})

    def error(self, message: str) -> None:
        raise ValueError(message)

    def format_help(self) -> str:
        formatter = self._get_formatter()
        command = self.prog if self.prog.startswith("run_") else "hf-recurrent train"
        formatter.add_usage(f"{command} [RECIPE] [--flag value ...]", [], [])
        formatter.add_text(
            "RECIPE is a YAML file or a name of `hf-recurrent recipes list`; its keys are flags as well, and flags "
            "win. A flag of several values takes them all at once, or one each time that it is given."
        )
        sections: dict[str, list[argparse.Action]] = {}
        # a field belongs to the class that declares it, which may be an ancestor
        owners = {
            field.name: next(base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", ()))
            for cls in self.dataclass_types
            for field in fields_of(cls)
        }
        # those of transformers are many, and come last
        for action in sorted(self._actions, key=lambda action: owned_by_transformers(owners.get(action.dest))):
            if action.dest in owners:
                sections.setdefault(section_title(owners[action.dest]), []).append(action)
        for title, actions in sections.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        return formatter.format_help()


def read_values(settings: Mapping[str, Any], types_: Sequence[type], source: str) -> dict[str, Any]:
    """Settings of a file, with the types that the same flags would give them; mappings and nulls stay.

    Raises:
        ValueError: a value that the flag would not take.
    """
    flags: list[str] = []
    for key, value in settings.items():
        if isinstance(value, list) and value:
            flags += [f"--{key}", *map(str, value)]
        elif not isinstance(value, (dict, list, type(None))):
            flags.append(f"--{key}={value}")
    try:
        found = read_flags(flags, types_)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return {key: found.get(key, value) for key, value in settings.items()}


def fields_of(cls: type) -> list[dataclasses.Field]:
    """The fields of a dataclass that are settings."""
    return [field for field in dataclasses.fields(cls) if field.init]


def owned_by_transformers(cls: type | None) -> bool:
    return cls is not None and cls.__module__.startswith("transformers.")


def section_title(owner: type) -> str:
    """The heading of a class's flags: the first sentence of its documentation, or whose they are."""
    if owned_by_transformers(owner):
        return f"{owner.__name__} of transformers"
    return owner.__doc__.strip().partition("\n")[0].removesuffix(".")


def read_flags(argv: Sequence[str], types_: Sequence[type]) -> dict[str, Any]:
    """The settings that flags give explicitly."""
    known = list(defaults_of(types_))
    # argparse fills in a default only where the namespace holds nothing yet
    absent = object()
    given = argparse.Namespace(**dict.fromkeys(known, absent))
    given, rest = FlagParser(types_, allow_abbrev=False).parse_known_args(list(argv), given)
    if rest:
        name = rest[0].lstrip("-").partition("=")[0].replace("-", "_")
        raise ValueError(f"unknown argument {rest[0]!r}{near_matches(name, known)}")
    return {name: value for name, value in vars(given).items() if value is not absent}


# flag -> settings of a recipe that contradict it: one alone chooses a batch's examples, ends training, or names a
# schedule, model or table
DISPLACED = {
    "batch_tokens": ("per_device_train_batch_size", "batch_sampling", "train_sampling_strategy"),
    "max_tokens": ("per_device_train_batch_size", "batch_sampling", "train_sampling_strategy"),
    "per_device_train_batch_size": ("batch_tokens", "max_tokens"),
    "batch_sampling": ("batch_tokens", "max_tokens", "train_sampling_strategy"),
    "train_sampling_strategy": ("batch_tokens", "max_tokens", "batch_sampling"),
    "num_train_epochs": ("max_steps",),
    "lr_schedule": ("lr_scheduler_type", "lr_scheduler_kwargs"),
    "lr_scheduler_type": ("lr_schedule",),
    "model_name_or_path": ("model_type",),
    "model_type": ("model_name_or_path",),
    "paper": ("paper_table",),
    "paper_table": ("paper", "paper_variants"),
}


def parse(argv: Sequence[str], types_: Sequence[type]) -> tuple[list[Any], dict[str, Any]]:
    """`[RECIPE] [--flag value ...]` -> one instance of each dataclass, and the settings that made them.

    A mapping given by both is merged key by key; any other flag replaces the recipe's setting, and those that
    contradict it (`DISPLACED`). A `preset` of the model's config becomes the fields that it names.

    Raises:
        FileNotFoundError: the recipe does not exist.
        ValueError: an unknown key, flag or value, with what was probably meant.
    """
    hints = {name: hint for cls in types_ for name, hint in get_type_hints(cls).items()}
    settings: dict[str, Any] = {}
    argv, path = list(argv), recipe_path(argv)
    if path is not None:
        argv.pop(0)
        settings = read_values(read_recipe(path, defaults_of(types_)), types_, f"recipe {path}")
    flags = read_flags(argv, types_)
    for flag, others in DISPLACED.items():
        if flag in flags:
            settings = {key: value for key, value in settings.items() if key not in others}
    model_type = flags.get("model_type", settings.get("model_type"))
    settings, flags = (
        with_sizes({key: with_mapping(key, value, hints[key]) for key, value in given.items()}, model_type)
        for given in (settings, flags)
    )
    for key, value in flags.items():
        if isinstance(before := settings.get(key), dict) and isinstance(value, dict):
            value = {**before, **value}
        settings[key] = value
    instances = []
    for cls in types_:
        names = defaults_of([cls])
        instances.append(make(cls, {key: value for key, value in settings.items() if key in names}))
    return instances, without_defaults(settings, types_)


def with_mapping(key: str, value: Any, hint: Any) -> Any:
    """The value of a setting, of which a text that stands for a mapping is one; that of a file is its path."""
    kinds = [get_origin(kind) or kind for kind in get_args(hint)]
    return mapping(key, value) if dict in kinds and isinstance(value, str) and not os.path.isfile(value) else value


def with_sizes(settings: dict[str, Any], model_type: str | None) -> dict[str, Any]:
    """Settings with the fields that `preset` among those of the model's config names, instead of it.

    Raises:
        ValueError: there is no such preset, the model is no new one, or the sizes do not go together.
    """
    fields = settings.get("config")
    if not isinstance(fields, dict) or "preset" not in fields:
        return settings
    if model_type is None:
        raise ValueError(
            f"config.preset is {fields['preset']!r}, which is of new models: set model_type, or leave it out"
        )
    require_known("model_type", model_type, list(ARCHITECTURES))
    return {**settings, "config": sized(model_type, fields)}


def sized(model_type: str, fields: dict[str, Any], of_recipes: bool = True) -> dict[str, Any]:
    """Fields of a config, with those that its key `preset` names and, of a size, all that follow from them.

    Args:
        of_recipes: whether it may name a recipe; else only a size or paper of the config class.

    Raises:
        ValueError: there is no such preset, or the sizes do not go together.
    """
    config_class = ARCHITECTURES[model_type].config_class
    presets, papers, preset = config_class.presets, config_class.papers, fields["preset"]
    given = {name: value for name, value in fields.items() if name != "preset"}
    if preset in [*papers]:
        return {**papers[preset], **given}
    if preset in [*presets]:
        named = presets[preset]
    elif of_recipes and isinstance(preset, str):
        named = fields_of_recipe(preset, model_type)
    else:
        require_known("config.preset", preset, [*presets, *papers])
    names = {*FOLLOWING, *(name for sizes in presets.values() for name in sizes)}
    names = [field.name for field in dataclasses.fields(config_class) if field.name in names]
    try:
        config = config_class(**{**named, **{name: given[name] for name in names if name in given}})
    # a value of any type goes through the checks of transformers, too
    except Exception as error:
        raise ValueError(f"config is {reprlib.repr(fields)}: {one_line(root_cause(error))}") from error
    return {**named, **given, **{name: getattr(config, name) for name in names}}


def fields_of_recipe(preset: str, model_type: str) -> dict[str, Any]:
    """The fields of a recipe's config.

    Raises:
        ValueError: there is no such recipe, or its model is of another architecture.
    """
    config_class = ARCHITECTURES[model_type].config_class
    presets = [*config_class.presets, *config_class.papers]
    try:
        theirs, fields = recipe_model(preset)
    except FileNotFoundError as error:
        reason = near_matches(preset, presets) or f", but {error}"
        known = ", ".join(presets)
        raise ValueError(f"config.preset is {preset!r}: expected one of {known}, or a recipe{reason}") from error
    if theirs != model_type:
        raise ValueError(
            f"config.preset is {preset!r}, a recipe of model_type {theirs}, but model_type is {model_type}"
        )
    return fields


def recipe_model(recipe: str) -> tuple[str, dict[str, Any]]:
    """The architecture of a recipe's model, and the fields of its config.

    Raises:
        FileNotFoundError: there is no such recipe.
        ValueError: it trains no new model, or its config is no mapping.
    """
    settings = read_mapping(recipe_path([recipe]) or Path(recipe))
    if "model_type" not in settings:
        raise ValueError(f"recipe {recipe} has no model_type: name one that trains a new model")
    model_type, fields = settings["model_type"], mapping("config", settings.get("config"))
    require_known(f"model_type (of recipe {recipe})", model_type, list(ARCHITECTURES))
    return model_type, sized(model_type, fields, of_recipes=False) if "preset" in fields else fields


def make(cls: type, settings: dict[str, Any]) -> Any:
    """`cls(**settings)`; errors of other packages are a ValueError in one line.

    Raises:
        ValueError: for a setting that is refused, by whatever error.
    """
    try:
        return cls(**settings)
    except Exception as error:
        raise ValueError(one_line(error)) from error


def without_defaults(settings: dict[str, Any], types_: Sequence[type]) -> dict[str, Any]:
    """Settings that differ from the fields' defaults, in the fields' order: what identifies a run."""
    return {
        name: simplest(settings[name])
        for name, default in defaults_of(types_).items()
        if name in settings and settings[name] != default
    }


def simplest(value: Any) -> Any:
    """10.0, which a flag of type float gives, as the 10 of a recipe, also inside lists and mappings."""
    if isinstance(value, dict):
        return {key: simplest(item) for key, item in value.items()}
    if isinstance(value, list):
        return [simplest(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def changes_by_flags(argv: Sequence[str], settings: Mapping[str, Any], types_: Sequence[type]) -> list[str]:
    """Each setting of the experiment that differs from the recipe's: "config.hidden_size = 32 (512)".

    Args:
        argv: the command line; without a recipe, nothing is changed.
        settings: the settings that `parse` returned for it.
    """
    path = recipe_path(argv)
    if path is None:
        return []
    defaults = defaults_of(types_)
    recipe = read_recipe(path, defaults)
    recipe = with_sizes(recipe, recipe.get("model_type"))
    return [
        f"{place} = {formatted(now)} ({formatted(before)})"
        for name, default in defaults.items()
        if name not in NO_EXPERIMENT and not name.startswith(NO_EXPERIMENT_PREFIXES)
        for place, before, now in differing(name, recipe.get(name, default), settings.get(name, default))
    ]


def defaults_of(types_: Sequence[type]) -> dict[str, Any]:
    """Every setting that a recipe may have, with its default."""
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for cls in types_
        for field in fields_of(cls)
    }


def differing(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Places where two values differ, key by key in mappings, each with the value before and now."""
    if isinstance(before, dict) or isinstance(now, dict):
        first, second = ({} if value is None else value for value in (before, now))
        if isinstance(first, dict) and isinstance(second, dict):
            for key in dict.fromkeys([*first, *second]):
                yield from differing(f"{place}.{key}", first.get(key), second.get(key))
            return
    if before != now:
        yield place, before, now


def formatted(value: Any) -> str:
    """A value for a sentence: of an absolute path, the last part alone."""
    if value is None:
        return "default"
    value = getattr(value, "value", value)
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    return json.dumps(value, ensure_ascii=False, default=str)
