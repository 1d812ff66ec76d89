"""Checks of the values that users pass to `load_benchmark`."""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


def unknown(kind: str, given: object, known: Iterable[str], *, of: str = "") -> ValueError:
    """The one wording for a name that does not exist: what was given, and what exists."""
    return ValueError(f"unknown {kind} {given!r}{of}; available: {', '.join(known) or 'none'}")


class Check(NamedTuple):
    """A check of a value: `convert` returns the value to use, or raises TypeError or ValueError; `expected` describes
    the values that it accepts."""

    convert: Callable[[Any], Any]
    expected: str

    def __call__(self, value: Any) -> Any:
        return self.convert(value)


def accepted(accepts: Callable[[Any], bool], expected: str) -> Check:
    """A value that `accepts` returns True for, as it is."""

    def convert(value: Any) -> Any:
        if not accepts(value):
            raise ValueError
        return value

    return Check(convert, expected)


def integer(minimum: int, maximum: int | None = None) -> Check:
    """A whole number from `minimum` to `maximum`, if there is one (numpy integers too, booleans not)."""

    def convert(value: Any) -> int:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError
        return value

    return Check(convert, f"an integer >= {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}")


def number(accepts: Callable[[float], bool], expected: str) -> Check:
    """A number, neither text nor boolean, that `accepts` returns True for."""

    def convert(value: Any) -> float:
        if isinstance(value, (bool, str)) or not accepts(float(value)):
            raise ValueError
        return float(value)

    return Check(convert, expected)


def optional(inner: Check) -> Check:
    """None, or a value that the inner check accepts."""
    return Check(lambda value: None if value is None else inner(value), f"None or {inner.expected}")


def choice(names: Iterable[str]) -> Check:
    """One of some names."""
    names = tuple(names)
    return accepted(names.__contains__, f"one of {', '.join(names)}")


boolean = accepted(lambda value: isinstance(value, bool), "True or False")
text = accepted(lambda value: isinstance(value, str) and bool(value.strip()), "a text that is not empty")
probability = number(lambda value: 0.0 < value < 1.0, "a number strictly between 0 and 1")
fraction = number(lambda value: 0.0 <= value <= 1.0, "a number from 0 to 1")


class Parameter(NamedTuple):
    """One parameter of `load_benchmark`: a check that returns the value to use, and what it means."""

    check: Check
    meaning: str


# those of most benchmarks
SEED = Parameter(integer(0), "every seed gives other data")
SIZES = {
    "num_train": Parameter(integer(0), "examples of the train split"),
    "num_validation": Parameter(integer(0), "examples of the validation split"),
    "num_test": Parameter(integer(0), "examples of the test split"),
}


def resolve(
    parameters: Mapping[str, Parameter], defaults: Mapping[str, Any], given: Mapping[str, Any], context: str
) -> dict[str, Any]:
    """All parameters of a config: the defaults, overridden by the checked values of `given`.

    `defaults` has exactly the parameters that the config takes; `context` names it in messages.
    """
    resolved = dict(defaults)
    for name, value in given.items():
        if name not in defaults:
            raise unknown("parameter", name, defaults, of=f" for {context}")
        parameter = parameters[name]
        try:
            resolved[name] = parameter.check(value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            expected = parameter.check.expected
            raise ValueError(f"{name}={value!r}: expected {expected} ({parameter.meaning})") from error
    return resolved


def check_ood_depths(params: Mapping[str, Any]) -> None:
    """Raises ValueError where `validation_ood`, of depths up to `max_train_depth + valid_extra_depth`, leaves none up
    to `max_test_depth` for `test_ood`."""
    deepest = params["max_train_depth"] + params["valid_extra_depth"]
    if params["max_test_depth"] <= deepest:
        raise ValueError(
            f"max_test_depth={params['max_test_depth']}: no depth is left for test_ood, because validation_ood goes "
            f"to max_train_depth + valid_extra_depth = {deepest}; expected at least {deepest + 1}"
        )
