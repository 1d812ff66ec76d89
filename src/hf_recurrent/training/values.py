"""The values that recipe keys may have: types from the dataclasses' annotations, numbers in stated ranges."""

import dataclasses
import math
import reprlib
import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from ..benchmarks.parameters import Check, integer, number

# beyond these, numbers overflow in libraries, and processes exhaust a machine
MOST, MOST_PROCESSES = 10**12, 1024

COUNT, COUNT_FROM_0 = integer(1, MOST), integer(0, MOST)
PROCESSES, SEED = integer(1, MOST_PROCESSES), integer(0, 2**32 - 1)
NUMBER = number(math.isfinite, "a finite number")
AT_LEAST_0 = number(lambda value: 0 <= value < math.inf, "a finite number >= 0")
ABOVE_0 = number(lambda value: 0 < value < math.inf, "a finite number > 0")
BELOW_1 = number(lambda value: 0 <= value < 1, "a number >= 0 and < 1")
MASS = number(lambda value: 0 < value <= 1, "a number > 0 and <= 1")
STEPS = number(
    lambda value: 0 < value < 1 or (value.is_integer() and 1 <= value <= MOST),
    f"an integer from 1 to {MOST}, or a share of all steps between 0 and 1",
)
STEPS_FROM_0 = number(
    lambda value: 0 <= value < 1 or (value.is_integer() and value <= MOST),
    f"an integer from 0 to {MOST}, or a share of all steps below 1",
)
EPOCHS_DECIDE = -1
STEPS_OR_EPOCHS = number(
    lambda value: value == EPOCHS_DECIDE or (value.is_integer() and 1 <= value <= MOST),
    f"an integer from 1 to {MOST}, or {EPOCHS_DECIDE} to train for num_train_epochs",
)
# recipe key -> range of its number, or of each number in its list
RANGES: dict[str, Check] = {
    **dict.fromkeys(("max_train_samples", "max_eval_samples", "max_length", "threshold_samples"), COUNT),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size", "batch_tokens", "max_tokens"), COUNT),
    **dict.fromkeys(("gradient_accumulation_steps", "eval_accumulation_steps", "torch_empty_cache_steps"), COUNT),
    **dict.fromkeys(
        ("save_total_limit", "average_checkpoints", "evaluation_depth", "dataloader_prefetch_factor"), COUNT
    ),
    **dict.fromkeys(("generation_max_length", "generation_num_beams", "ddp_bucket_cap_mb", "ddp_timeout"), COUNT),
    **dict.fromkeys(("tokenizer_vocab_size", "num_merges", "vocab_size", "max_seq_length"), COUNT),
    **dict.fromkeys(("segment_length", "eval_segment_length"), COUNT),
    "block_size": COUNT,
    "validation_split_percentage": integer(1, 99),
    # a token beside that of the end
    **dict.fromkeys(("max_source_length", "max_target_length"), integer(2, MOST)),
    **dict.fromkeys(("ponder_warmup_steps", "short_first_steps", "early_stopping_patience"), COUNT_FROM_0),
    **dict.fromkeys(("logging_steps", "eval_steps", "save_steps"), STEPS),
    "warmup_steps": STEPS_FROM_0,
    "max_steps": STEPS_OR_EPOCHS,
    "num_train_epochs": ABOVE_0,
    **dict.fromkeys(("learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm", "eval_delay"), AT_LEAST_0),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "label_smoothing_factor", "short_first_share"), BELOW_1),
    **dict.fromkeys(("neftune_noise_alpha", "short_first_power"), ABOVE_0),
    "generation_length_penalty": NUMBER,
    "thresholds": MASS,
    **dict.fromkeys(("seed", "data_seed"), SEED),
    "num_proc": PROCESSES,
    "dataloader_num_workers": integer(0, MOST_PROCESSES),
    "local_rank": integer(-1, MOST_PROCESSES),
}


# what transformers' annotations leave open
CHOICES = {"include_num_input_tokens_seen": ("all", "non_padding", "no", True, False)}


def check_numbers(arguments: Any, **own: Check) -> None:
    """Check the numbers of an argument dataclass, or of a list in it, by `RANGES`, or by `own` where they are there.

    Raises:
        ValueError: a number is out of its range.
    """
    ranges = {**RANGES, **own}
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name not in ranges or value is None:
            continue
        check, verb = ranges[field.name], "holds" if isinstance(value, list) else "is"
        for item in value if isinstance(value, list) else [value]:
            try:
                check(item)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{field.name} {verb} {reprlib.repr(item)}: expected {check.expected}") from error


def check_type(key: str, value: Any, hint: Any, source: str, choices: Any = None) -> None:
    """Raise a ValueError unless a dataclass field annotated with `hint` may hold `value`, one of its `choices`."""
    choices = CHOICES.get(key, choices)
    if not fits(value, hint):
        raise ValueError(f"{source}: {key} is {reprlib.repr(value)}, expected {kind_name(hint)}")
    if choices is not None and value is not None and value not in choices:
        raise ValueError(f"{source}: {key} is {value!r}, expected one of {', '.join(map(str, choices))}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a field annotated with `hint` may hold `value`; a member of an enumeration is named by its value."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        named = [part for part in parts if is_enum(part)]
        # beside an enumeration, text is the name of a member
        return any(fits(value, part) for part in (parts if not (named and isinstance(value, str)) else named))
    if origin is Literal:
        return value in parts
    if origin is list:
        return isinstance(value, list) and all(fits(item, parts[0]) for item in value)
    kind = origin or hint
    if not isinstance(kind, type):
        return True
    if is_enum(kind):
        return isinstance(value, kind) or value in [member.value for member in kind]
    # a bool is an int to Python, but `max_steps: true` is a mistake
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def kind_name(hint: Any) -> str:
    """The values that a field annotated with `hint` may hold, in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not str] if any(map(is_enum, parts)) else parts
        return " or ".join(map(kind_name, kinds))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is list:
        return f"a list of {kind_name(parts[0])}"
    if hint is type(None):
        return "nothing"
    if is_enum(hint):
        return f"one of {', '.join(str(member.value) for member in hint)}"
    return getattr(origin or hint, "__name__", str(hint))
