"""Checks of the values that users pass to `load_benchmark`."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


def unknown(kind: str, given: object, known: Iterable[str], *, of: str = "") -> ValueError:
    """The one wording for a name that does not exist: what was given, and what exists."""
    return ValueError(f"unknown {kind} {given!r}{of}; available: {', '.join(known) or 'none'}")


def integer(minimum: int, maximum: int | None = None) -> Callable[[Any], int]:
    """A check for whole numbers from `minimum` to `maximum`, if there is one (numpy integers too, booleans not)."""

    def check(value: Any) -> int:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
        if value < minimum or (maximum is not None and value > maximum):
            raise ValueError
        return value

    check.expected = f"an integer >= {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    return check


def optional(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A check that lets None through."""

    def check(value: Any) -> Any:
        return None if value is None else inner(value)

    check.expected = f"None or {inner.expected}"
    return check


def probability(value: Any) -> float:
    """A check for a probability that leaves both outcomes possible."""
    if isinstance(value, (bool, str)) or not 0.0 < float(value) < 1.0:
        raise ValueError
    return float(value)


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value


def choice(names: Iterable[str]) -> Callable[[Any], str]:
    """A check for one of some names."""
    names = tuple(names)

    def check(value: Any) -> str:
        if value not in names:
            raise ValueError
        return value

    check.expected = f"one of {', '.join(names)}"
    return check


probability.expected = "a number strictly between 0 and 1"
boolean.expected = "True or False"
text.expected = "a text that is not empty"


@dataclass(frozen=True)
class Parameter:
    """One parameter of `load_benchmark`: a check that returns the value to use, and what it means."""

    check: Callable[[Any], Any]
    meaning: str


def resolve(
    parameters: Mapping[str, Parameter], defaults: Mapping[str, Any], given: Mapping[str, Any], context: str
) -> dict[str, Any]:
    """All parameters of a config: the defaults, overridden by the checked values of `given`.

    `defaults` also says which parameters the config takes; `context` names it in messages.
    """
    resolved = dict(defaults)
    for name, value in given.items():
        if name not in defaults:
            raise unknown("parameter", name, defaults, of=f" for {context}")
        parameter = parameters[name]
        try:
            resolved[name] = parameter.check(value)
        except (TypeError, ValueError) as error:
            expected = parameter.check.expected
            raise ValueError(f"{name}={value!r}: expected {expected} ({parameter.meaning})") from error
    return resolved
