"""The columns of a table: those that flags name, those with usual names, and values within them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..utils import near_matches

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
            hint = near_matches(name, found) or "; name one of them"
            raise ValueError(f"{flag} is {name!r}: {place} has the columns {', '.join(map(repr, found))}{hint}")
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
        column = name.rpartition(".")[0]
        within = value_of(row, column) if column else None
        hint = f": {column} has {', '.join(map(repr, within))}" if isinstance(within, Mapping) else ""
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
        if not isinstance(value, str | int | float) or str(value) in ("", "inf", "-inf", "nan"):
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


# lists of words, which a tokenizer reads with a space between them, as a text; S tokens, W words


def words_of(row: Mapping[str, Any], column: str) -> list[str]:
    """The words of an example. Raises a ValueError, which does not name the row, if they are none."""
    words = value_of(row, column)
    if not isinstance(words, list) or not words:
        raise ValueError(f"{column} is {words!r:.60}: expected a list of words, as files of JSON and Parquet have them")
    wrong = [word for word in words if not isinstance(word, str) or not word.strip()]
    if wrong:
        raise ValueError(f"{column} has the word {wrong[0]!r:.60}: expected a text that is not empty")
    return words


def words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """The number of the word that each token (S,) is of, -1 for none; a token of several is of the last.

    Args:
        offsets: the characters of each token in the words with a space between them.
    """
    owners = [-1] * (sum(map(len, words)) + len(words))
    start = 0
    for number, word in enumerate(words):
        owners[start : start + len(word)] = [number] * len(word)
        start += len(word) + 1
    return [max(owners[start:end], default=-1) for start, end in offsets]


def first_tokens(word_ids: Sequence[int]) -> dict[int, int]:
    """Number of a word -> place of its first token, of the words that have one, by the words of tokens (S,)."""
    before, found = -1, {}
    for place, number in enumerate(word_ids):
        if number > before:
            found[number] = place
        before = max(before, number)
    return found
