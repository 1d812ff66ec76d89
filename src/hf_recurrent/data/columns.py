"""The columns of a table: those that flags name, those with usual names, and values within them."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# columns of encoded examples; a column of difficulty has another name
LENGTH = "length"
RESERVED = frozenset(
    {
        *("text", "text_pair", "source", "target", "label", "labels", "input_ids", "attention_mask", "token_type_ids"),
        *("reference", "words", "word_labels", "word_ids", "question", "context", "answers", "choices", "number"),
        *("offsets", "start_positions", "end_positions", "prediction", "steps", "context_free_bits"),
    }
)


@dataclass(frozen=True)
class Columns:
    """The columns that examples are made of.

    A name with dots, such as `translation.de`, is a value within a column.

    Attributes:
        inputs: field of an example -> its column, or the columns of a field that is a list.
        label: the column of labels, or the columns of 0 and 1, one for each of several labels; None without labels.
        slices: the columns of difficulty.
    """

    inputs: Mapping[str, str | tuple[str, ...]]
    label: str | tuple[str, ...] | None = None
    slices: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the inputs, one after another."""
        found = ((name,) if isinstance(name, str) else name for name in self.inputs.values())
        return tuple(column for names in found for column in names)


def has_column(found: Sequence[str], name: str) -> bool:
    return name in found or name.partition(".")[0] in found


def require_columns(named: Mapping[str, str], found: Sequence[str], place: str) -> None:
    """Raise a ValueError for a column that a table does not have, or that two flags name.

    Args:
        named: flag, or a number after it -> column.
    """
    first: dict[str, str] = {}
    for flag, name in named.items():
        if not has_column(found, name):
            near = difflib.get_close_matches(name, found, n=1)
            hint = f"did you mean {near[0]}?" if near else "name one of them"
            columns = ", ".join(map(repr, found)) or "none"
            raise ValueError(f"{flag} is {name!r}: {place} has the columns {columns}; {hint}")
        if first.setdefault(name, flag) != flag:
            raise ValueError(f"{first[name]} and {flag} are both {name!r}: name different columns")


def chosen(flag: str, name: str | None, usual: Sequence[str], found: Sequence[str], place: str, what: str) -> str:
    """The column that a flag names, or else the first with a usual name. Raises a ValueError if there is none."""
    name = name or next((other for other in usual if other in found), None)
    if name is None:
        raise ValueError(f"{place} has the columns {', '.join(found)}: name the one with {what} with --{flag}")
    return name


def check_slices(names: Sequence[str], found: Sequence[str], place: str) -> tuple[str, ...]:
    """The columns of difficulty. Raises a ValueError for one that is not there, or has a name that examples use."""
    for name in names:
        require_columns({"slice_by": name}, found, place)
        if name in RESERVED:
            raise ValueError(f"slice_by is {name!r}, a name that examples use themselves: rename the column")
    return tuple(dict.fromkeys(names))


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or within it where the name has dots; None where it is absent."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def text_of(row: Mapping[str, Any], name: str) -> str:
    """The text of a column. Raises a ValueError, which does not name the row, if it is empty or no text."""
    text = value_of(row, name)
    if not isinstance(text, str):
        column, _, key = name.rpartition(".")
        within = value_of(row, column) if column else None
        keys = isinstance(within, Mapping) and name not in row and key not in within
        hint = f": {column} has {', '.join(map(repr, within))}" if keys else ""
        raise ValueError(f"{name} is {text!r:.60}, which is no text{hint}")
    if not text.strip():
        raise ValueError(f"{name} is empty")
    if "\0" in text:
        raise ValueError(f"{name} has a byte of zero, which is no text: pass the file's --encoding, such as utf-16")
    return text


def slices_of(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """The values of difficulty, as texts. Raises a ValueError, which does not name the row, for none."""
    found = {name: value_of(row, name) for name in names}
    for name, value in found.items():
        if not isinstance(value, str | int | float) or value in ("", math.inf, -math.inf) or value != value:
            raise ValueError(f"{name} is {value!r:.60}: expected a number or text (slice_by)")
    return {name: str(value) for name, value in found.items()}


def narrowest(values: Sequence[str]) -> list[Any]:
    """Texts as integers or floats, if all of them are such."""
    for kind in (int, float):
        try:
            numbers = [kind(value) for value in values]
        except ValueError:
            continue
        if kind is int and any(abs(number) >= 2**63 for number in numbers):
            continue
        return numbers
    return list(values)
