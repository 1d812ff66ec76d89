"""Types and ranges of config fields: declared by annotations, and checked whenever a field is set.

`num_hidden_layers: Layers = 10` declares a whole number of at least 1. Sizes are limited, so that a config from
elsewhere cannot exhaust memory; whoever needs more sets the environment variable that the message names.
"""

import math
import os
from dataclasses import fields
from functools import partial
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

Config = TypeVar("Config", bound=type)
LONGEST_SHOWN = 100
# of float32
LARGEST_NUMBER = 3.4e38
# the largest sizes of each kind, unless the environment variable HF_RECURRENT_MAX_<KIND> says otherwise
SIZE_LIMITS = {"LAYERS": 10_000, "LENGTH": 2**18, "SIZE": 2**20, "VOCABULARY": 2**24}


def size_limit(kind: str) -> int:
    """The largest size of a kind as it is set.

    Raises:
        ValueError: the environment variable holds no whole number above 0.
    """
    given = os.environ.get(f"HF_RECURRENT_MAX_{kind}", "").strip()
    if given and (not given.isdecimal() or int(given) < 1):
        raise ValueError(f"HF_RECURRENT_MAX_{kind}={given!r}: expected a whole number above 0")
    return int(given or SIZE_LIMITS[kind])


class Bounds(NamedTuple):
    """Range of a number, between `lowest` and `highest`; both belong to it unless they are open.

    Attributes:
        limit: kind of a size, one of `SIZE_LIMITS`.
    """

    lowest: float = -LARGEST_NUMBER
    highest: float = LARGEST_NUMBER
    open_low: bool = False
    open_high: bool = False
    limit: str | None = None

    def problem(self, value: float) -> str | None:
        """What a number must be if it is out of range, None if it is not."""
        above = value > self.lowest if self.open_low else value >= self.lowest
        below = value < self.highest if self.open_high else value <= self.highest
        most = math.inf if self.limit is None else size_limit(self.limit)
        if value != value or abs(value) == math.inf:
            return "it must be a finite number"
        if abs(value) > LARGEST_NUMBER:
            return "it must be a number that float32 can hold"
        if not (above and below) and self.highest < LARGEST_NUMBER:
            low, high = "(" if self.open_low else "[", ")" if self.open_high else "]"
            return f"it must lie in {low}{self.lowest:g}, {self.highest:g}{high}"
        if not above:
            zero = "be positive" if self.open_low else "not be negative"
            return f"it must {zero if self.lowest == 0 else f'be at least {self.lowest:g}'}"
        if value > most:
            return (
                f"it must be at most {most}, lest a config from elsewhere exhaust memory; if it is to be trusted, set "
                f"HF_RECURRENT_MAX_{self.limit} to a higher number"
            )
        return None


Real = float | int
# widths, heads, experts, slots
Size = Annotated[int, Bounds(1, limit="SIZE")]
Count = Annotated[int, Bounds(0, limit="SIZE")]
# tokens that are cached, attended to or looked back at
Length = Annotated[int, Bounds(1, limit="LENGTH")]
Layers = Annotated[int, Bounds(1, limit="LAYERS")]
Vocabulary = Annotated[int, Bounds(1, limit="VOCABULARY")]
TokenId = Annotated[int, Bounds(0, limit="VOCABULARY")]
Finite = Annotated[Real, Bounds()]
Positive = Annotated[Real, Bounds(0, open_low=True)]
NotNegative = Annotated[Real, Bounds(0)]
Probability = Annotated[Real, Bounds(0, 1, open_low=True, open_high=True)]
Share = Annotated[Real, Bounds(0, 1, open_high=True)]
Threshold = Annotated[Real, Bounds(0, 1, open_low=True)]

# what transformers' own fields and properties must be, which it does not check
INHERITED = {
    "architectures": list[str] | None,
    "chunk_size_feed_forward": Count,
    "id2label": dict | None,
    "is_encoder_decoder": Literal[False],
    "label2id": dict | None,
    "num_labels": Size,
    "output_attentions": bool | None,
    "output_hidden_states": bool | None,
    "problem_type": Literal["regression", "single_label_classification", "multi_label_classification"] | None,
    "return_dict": bool | None,
    "transformers_version": str | None,
}
NAMES = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", dict: "a dict", list: "a list"}


def declared_fields(config_class: type) -> dict[str, Any]:
    """The declared type of each field of a config class, and of the properties that may be set like one."""
    ours = config_class.__mro__[: config_class.__mro__.index(PreTrainedConfig)]
    # transformers' own declarations are texts, or of types that cannot be checked
    own = {name for base in ours for name in get_annotations(base)}
    return INHERITED | {field.name: field.type for field in fields(config_class) if field.name in own}


def checked_config(config_class: Config) -> Config:
    """`strict`, which checks the range of each field besides its type, and says how it must be."""
    config_class = strict(config_class)
    config_class.__validators__ = {
        name: [partial(check_field, name, declared)] for name, declared in declared_fields(config_class).items()
    }
    return config_class


def check_field(name: str, declared: Any, value: object) -> None:
    """Raise a ValueError that names the field, its value and how it must be, unless it fits its declaration."""
    wrong = problem(value, declared)
    if wrong is not None:
        raise ValueError(f"config field `{name}` is {shown(value)}: {wrong}")


def problem(value: object, declared: Any) -> str | None:
    """How a value must be, if it does not fit a declared type; None if it does."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        problems = [problem(value, each) for each in arguments]
        if None in problems:
            return None
        others = ["None"] if NoneType in arguments else []
        if get_origin(arguments[0]) is Literal:
            known = zip(arguments[1:], problems[1:], strict=True)
            others = [wrong.removeprefix("it must be ") for kind, wrong in known if kind is not NoneType] + others
        return ", or ".join([problems[0], *others])
    if origin is Annotated:
        wrong = problem(value, arguments[0])
        for rule in arguments[1:]:
            wrong = wrong or rule.problem(value)
        return wrong
    if origin is Literal:
        fits = any(type(value) is type(choice) and value == choice for choice in arguments)
        return None if fits else f"it must be {'one of ' * (len(arguments) > 1)}{', '.join(map(repr, arguments))}"
    if origin in (list, tuple) and isinstance(value, origin):
        problems = [problem(item, arguments[0]) for item in value]
        return next((wrong.replace("it", "each item", 1) for wrong in problems if wrong), None)
    kind = origin or declared
    fits = kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
    return None if fits else f"it must be {NAMES.get(kind, kind.__name__)}"


def shown(value: object) -> str:
    """A value as a message shows it: tensors and arrays by type, dtype and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__name__} of {value.dtype} with shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}... (a {type(value).__name__})"
