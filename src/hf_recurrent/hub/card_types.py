"""Types of the fields of `card.json`: of dataclasses by their annotations, of measured tables by the fields' names."""

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}
Table = dict[str, Any]

# type -> names of the fields of measured tables that have it, wherever they are; what is undefined is null
MEASURED = {
    int: """n count documents segment_length max_steps batch_size patience min_steps repeats seed timed_examples lost
        gained calls expert num_experts per_token routed units updates window_size first last tokens_read open read
        trained_steps reader num_beams max_new_tokens place chunk_size num_memory_slots num_state_vectors""",
    float: """accuracy majority_baseline bits_per_byte constant_bits_per_byte constant_bits_per_token mean median p95
        p10 p90 std max seconds relative_time mean_depth full_accuracy p_value tolerance share balance bits loss nll
        token_accuracy weight relative disagreement own_threshold length_penalty bytes gate mean_ponder_cost bleu
        threshold perplexity spearman decoder_spearman ponder_cost forced_halt_rate difference standard_error mean_steps
        word_perplexity bright high low open_gate""",
    str: """carry texts token criterion benchmark benchmark_config device dtype split measured label prediction chunking
        unit positive_label""",
    bool: "numeric fixed_depth all_predicted exact_bytes safe",
    list[Table]: """rows by_position carries thresholds fixed_depths by_difficulty examples by_count by_information
        experts""",
    list[float]: "shares balance_by_step deciles taking halting_mass",
    list[int]: "histogram steps_histogram",
    list[list[int]]: "usage",
    Table: """answer_steps decoder_steps gates labelled_tokens decoder half_life_blocks half_life_tokens full_depth
        calibrated chosen target budget""",
    dict[str, Table]: "modules stacks inputs tests",
    # of a sweep without anything beside the rows
    dict[str, Table | list[Table]]: "slices",
    dict[str, int]: "most_steps",
    dict[str, float]: "scores",
    # of a token or of documents, by the place in a segment, of a text or of all steps
    float | dict[str, float]: "bits_per_token",
    float | dict[str, Table]: "tokens",
    float | Table | list[int]: "steps",
    str | int: "value text",
    str | float: "difficulty risk",
    float | Table | str: "confidence",
    str | list[float]: "halting",
}
TYPES = {name: hint | None for hint, names in MEASURED.items() for name in names.split()} | {"rows": list[Table]}
# objects whose keys are names of splits, columns, modules or stacks
NAMED = frozenset(
    {
        *("slices", "by_column", "tests", "modules", "stacks", "inputs"),
        *("most_steps", "sweep", "experts", "parameters"),
    }
)


class AbsentFieldError(KeyError):
    """A field of `card.json` that is needed and missing."""

    def __str__(self) -> str:
        return f"{self.args[0]} is missing"


class Located(dict):
    """An object of JSON that knows its place, which the error about a missing field names."""

    def __init__(self, items: Any = (), place: str | None = None):
        super().__init__(items)
        # no name of a field, which templates would take it for
        self.located_at = place

    def __missing__(self, key: str) -> Any:
        raise AbsentFieldError(key if self.located_at is None else f"{self.located_at}.{key}")


def located(value: Any, place: str) -> Any:
    """Parsed JSON whose objects know their places."""
    if isinstance(value, Mapping):
        return Located({key: located(item, f"{place}.{key}") for key, item in value.items()}, place)
    if isinstance(value, list):
        return [located(item, f"{place}[{number}]") for number, item in enumerate(value)]
    return value


def build(kind: Any, value: Any, place: str) -> Any:
    """`value` as an instance of the dataclass `kind`, nested dataclasses and lists of them included.

    Raises:
        ValueError: a field is missing, unknown, or of another type; the message names its place.
    """
    if not is_dataclass(kind):
        check_type(kind, value, place)
        arguments = get_args(kind)
        if isinstance(value, Mapping) and any(map(is_dataclass, arguments)):
            return build(next(filter(is_dataclass, arguments)), value, place)
        if get_origin(kind) is list and is_dataclass(arguments[0]):
            return [build(arguments[0], item, f"{place}[{number}]") for number, item in enumerate(value)]
        check_measured(value, place)
        return value
    check_type(dict, value, place)
    hints = get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ValueError(f"{place}: unknown keys {unknown}")
    built = {name: build(hints[name], item, f"{place}.{name}") for name, item in value.items()}
    try:
        return kind(**built)
    except TypeError as error:
        missing = sorted({item.name for item in fields(kind)} - set(value))
        raise ValueError(f"{place}: {error} (absent keys: {missing})") from error


def check_type(hint: Any, value: Any, place: str) -> None:
    """Raise a ValueError where a value from JSON is none of the type `hint`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if not any(_matches(choice, value) for choice in arguments):
            raise _wrong(hint, value, place)
        hint = next(choice for choice in arguments if _matches(choice, value))
        origin, arguments = get_origin(hint), get_args(hint)
    elif not _matches(hint, value):
        raise _wrong(hint, value, place)
    if origin is list and not is_dataclass(arguments[0]):
        for number, item in enumerate(value):
            check_type(arguments[0], item, f"{place}[{number}]")
    elif origin is dict:
        for key, item in value.items():
            check_type(arguments[1], item, f"{place}.{key}")


def check_measured(value: Any, place: str) -> None:
    """Raise a ValueError where a field in measured tables has another type than its name asks for."""
    if isinstance(value, Mapping):
        named = place.rpartition(".")[2] in NAMED
        for key, item in value.items():
            if not named and key in TYPES:
                check_type(TYPES[key], item, f"{place}.{key}")
            check_measured(item, f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check_measured(item, f"{place}[{number}]")


def _matches(hint: Any, value: Any) -> bool:
    """Whether a value is of a type, whatever is in it."""
    kind = dict if is_dataclass(hint) else get_origin(hint) or hint
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _wrong(hint: Any, value: Any, place: str) -> ValueError:
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    expected = " or ".join(
        NAMES.get(choice, "a list" if get_origin(choice) is list else "an object") for choice in choices
    )
    return ValueError(f"{place} is {value!r:.60}: expected {expected}")
