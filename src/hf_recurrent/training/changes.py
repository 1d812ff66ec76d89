"""What flags changed of a recipe's experiment: a card must not give a changed run the recipe's words unqualified."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .recipes import read_recipe
from .run_folder import NOT_IDENTITY

# beside what never changes a run: chance, precision, placement, and whose rows they are, which the card itself says
NO_EXPERIMENT = NOT_IDENTITY | {
    *("seed", "data_seed", "full_determinism", "bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval"),
    *("attn_implementation", "data_dir", "deepspeed", "project", "debug", "local_rank"),
}
NO_EXPERIMENT_PREFIXES = (
    *("dataloader_", "logging_", "log_", "hub_", "trackio_", "ddp_", "fsdp", "torch_compile"),
    *("gradient_checkpointing", "activation_checkpointing"),
)


def changes_by_flags(argv: Sequence[str], settings: Mapping[str, Any], types_: Sequence[type]) -> list[str]:
    """Each setting of the experiment that differs from the recipe's: "config.hidden_size = 32 (512)".

    Args:
        argv: what `parse` was given; without a recipe, nothing is changed.
        settings: what `parse` made of it.
    """
    if not argv or argv[0].startswith("-"):
        return []
    defaults = defaults_of(types_)
    recipe = read_recipe(Path(argv[0]), defaults)
    return [
        f"{place} = {shown(now)} ({shown(before)})"
        for name, default in defaults.items()
        if name not in NO_EXPERIMENT and not name.startswith(NO_EXPERIMENT_PREFIXES)
        for place, before, now in differing(name, recipe.get(name, default), settings.get(name, default))
    ]


def defaults_of(types_: Sequence[type]) -> dict[str, Any]:
    """Every setting that a recipe may have, with what it is without."""
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for cls in types_
        for field in dataclasses.fields(cls)
        if field.init
    }


def differing(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values differ, key by key in mappings: place, what was there, what is there."""
    if isinstance(before, dict) or isinstance(now, dict):
        first, second = ({} if value is None else value for value in (before, now))
        if isinstance(first, dict) and isinstance(second, dict):
            for key in dict.fromkeys([*first, *second]):
                yield from differing(f"{place}.{key}", first.get(key), second.get(key))
            return
    if before != now:
        yield place, before, now


def shown(value: Any) -> str:
    """A value in a sentence: of a path that starts at the root, the last part alone."""
    if value is None:
        return "default"
    value = getattr(value, "value", value)
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    return json.dumps(value, ensure_ascii=False, default=str)
