"""Ranges and documentation of config fields, and the check that runs whenever a field is set.

`num_hidden_layers: int = layers(10)` declares a field of the default 10 whose values are at least 1. A subclass that
declares the field again, `num_hidden_layers: int = 4`, keeps the range. Sizes are limited, so that a config from
elsewhere cannot exhaust memory; an environment variable, which the error names, raises the limit.
"""

import os
import re
from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from inspect import cleandoc, formatannotation
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from huggingface_hub.dataclasses import strict, type_validator
from transformers.configuration_utils import PreTrainedConfig

Config = TypeVar("Config", bound=type)

LONGEST_SHOWN = 100
LARGEST_FLOAT32 = 3.4e38
# the largest sizes of each kind, unless the environment variable HF_RECURRENT_MAX_<KIND> says otherwise
SIZE_LIMITS = {"LAYERS": 10_000, "LENGTH": 2**18, "SIZE": 2**20, "VOCABULARY": 2**24}
# an entry of a docstring's `Args` section: a name and its meaning
ENTRY = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Range(NamedTuple):
    """The allowed values of a number, or of each number in a list. A call makes a dataclass field with a default.

    Attributes:
        holds: whether a number is allowed, if it is finite.
        text: the allowed values, for messages and documentation.
        limit: kind of a size, one of `SIZE_LIMITS`.
    """

    holds: Callable[[float], bool]
    text: str
    limit: str | None = None

    def __call__(self, default: object) -> Any:
        return field(default=default, metadata={"range": self})

    def problem(self, value: float) -> str | None:
        """How a number must be if it is out of range, None if it is not.

        Raises:
            ValueError: the environment variable for its limit holds no whole number above 0.
        """
        if not self.holds(value):
            return f"it must be {self.text}"
        if not abs(value) <= LARGEST_FLOAT32:
            return "it must be a finite number that float32 can hold"
        if self.limit is None:
            return None
        variable = f"HF_RECURRENT_MAX_{self.limit}"
        given = os.environ.get(variable, "").strip()
        if given and not (given.isdecimal() and int(given) > 0):
            raise ValueError(f"{variable}={given!r}: expected a whole number above 0")
        most = int(given or SIZE_LIMITS[self.limit])
        if value > most:
            return f"it must be at most {most}, to limit memory; set {variable} to raise the limit"
        return None


finite = Range(lambda value: True, "finite")
positive = Range(lambda value: value > 0, "above 0")
not_negative = Range(lambda value: value >= 0, "at least 0")
probability = Range(lambda value: 0 < value < 1, "in (0, 1)")
share = Range(lambda value: 0 <= value < 1, "in [0, 1)")
threshold = Range(lambda value: 0 < value <= 1, "in (0, 1]")
# widths, heads, experts, slots
size = Range(lambda value: value >= 1, "at least 1", "SIZE")
count = Range(lambda value: value >= 0, "at least 0", "SIZE")
# tokens that are cached, attended to or looked back at
length = Range(lambda value: value >= 1, "at least 1", "LENGTH")
layers = Range(lambda value: value >= 1, "at least 1", "LAYERS")
vocabulary = Range(lambda value: value >= 1, "at least 1", "VOCABULARY")
token_id = Range(lambda value: value >= 0, "at least 0", "VOCABULARY")


# properties of transformers that are set like fields: type, range and default
PROPERTIES = {"num_labels": (int, size, 2), "output_attentions": (bool | None, finite, False)}


def check_value(name: str, kind: Any, allowed: Range, value: object) -> None:
    """Raise a ValueError that names a field or argument, its value and how it must be, unless it fits."""
    wrong = None
    try:
        # a whole number will do for a float
        type_validator(name, value, kind | int if float in (kind, *get_args(kind)) else kind)
    except (TypeError, ValueError):
        wrong = f"it must be {type_text(kind)}"
    for item in value if isinstance(value, (list, tuple)) else [value]:
        wrong = wrong or (allowed.problem(item) if isinstance(item, (int, float)) else None)
    if wrong:
        raise ValueError(f"{name} is {shown(value)}: {wrong}")


def check_whole(value: object, name: str) -> None:
    """Raise a ValueError unless an argument of a call is a number of depth steps, or None."""
    if value is not None:
        check_value(name, int, layers, value)


def checked_config(config_class: Config) -> Config:
    """Apply `strict`, with the ranges of fields besides their types, and document every field in the docstring."""
    own_setattr = vars(config_class).get("__setattr__")
    strict(config_class)
    # the method of transformers' base class runs the validators of every subclass; once is enough
    if own_setattr is None:
        del config_class.__setattr__
    else:
        config_class.__setattr__ = own_setattr
    declared = declarations(config_class)
    config_class.__validators__ = {
        name: [partial(check_value, f"config field `{name}`", kind, allowed)]
        for name, (kind, allowed, _) in declared.items()
    }
    summary, _, rest = cleandoc(config_class.__doc__ or "").partition("\nArgs:\n")
    own, _, notes = rest.partition("\n\n")
    config_class.described = dict(ENTRY.findall(own))
    described, lines = descriptions(config_class), [summary.rstrip(), "", "Args:"]
    for name, (kind, allowed, default) in declared.items():
        within = "" if allowed is finite else f", {allowed.text}"
        lines.append(f"    {name} ({type_text(kind)}{within}, default {default!r}):")
        lines.append(f"        {described.get(name, '')}")
    config_class.__doc__ = "\n".join([*lines, "", notes]).strip()
    return config_class


def descriptions(config_class: type) -> dict[str, str]:
    """Name -> description of each field, from the `Args` section of the class nearest to the config class."""
    found: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        found |= vars(base).get("described", {})
    return found


def declarations(config_class: type) -> dict[str, tuple[Any, Range, Any]]:
    """Name -> type, range and default of each field and of `PROPERTIES`; fields of every transformers config come last.

    A field has the range of the class nearest to the config class that declares one.
    """
    found = {}
    for each in sorted(fields(config_class), key=lambda each: each.name in PreTrainedConfig.__dataclass_fields__):
        declared = [vars(base).get("__dataclass_fields__", {}).get(each.name, each) for base in config_class.__mro__]
        allowed = next((one.metadata["range"] for one in declared if "range" in one.metadata), finite)
        found[each.name] = (each.type, allowed, each.default)
    return found | PROPERTIES


def type_text(kind: Any) -> str:
    """A type in words: "int", "float or None", "'mean' or 'end'"."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(type_text, get_args(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return "None" if kind is NoneType else formatannotation(kind).strip("'")


def shown(value: object) -> str:
    """A value as a message shows it: tensors and arrays by type, dtype and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__} of {value.dtype} with shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... (a {type(value).__name__})"
