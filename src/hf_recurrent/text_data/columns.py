"""The columns of a user's table that hold texts, labels and difficulty."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .tasks import TASKS

# names of text columns in the data sets that people fine-tune on, and of pairs of them
TEXT_NAMES = ("text", "sentence")
PAIR_NAMES = (*dict.fromkeys(task.texts for task in TASKS.values() if len(task.texts) == 2), ("text", "text_pair"))
LABEL_NAMES = ("label", "labels")
# lists of words, and of their labels
WORD_NAMES = ("tokens", "words")
WORD_LABEL_NAMES = ("ner_tags", "tags", "pos_tags", *LABEL_NAMES)
SOURCE_NAMES = (("source", "target"), ("text", "summary"), ("input", "output"), ("question", "answer"))
# questions, the texts that answer them, and the answers, as in SQuAD
SPAN_NAMES = {"question_column": "question", "context_column": "context", "answer_column": "answers"}
# what comes before all endings, what begins each of them, and how their columns' names begin, as in SWAG
CHOICE_CONTEXT, CHOICE_START, CHOICE_ENDING = "sent1", "sent2", "ending"
# what columns are called in examples; a column of difficulty cannot have these names
RESERVED = (
    *("text", "text_pair", "source", "target", "label", "labels", "input_ids", "attention_mask", "token_type_ids"),
    *("reference", "length", "target_length", "known", "prediction", "steps", "words", "word_labels", "word_ids"),
    *("question", "context", "answers", "choices", "number", "offsets", "start_positions", "end_positions"),
    "context_free_bits",
)


@dataclass(frozen=True)
class Columns:
    """The columns of examples: those of `texts`, the `label` if there is one, and those of difficulty (`slices`).

    Texts are one or two, or a context and the endings to choose from, which a text in the column `start` begins if
    there is one. `answers` are those within a text. A name with dots, such as `translation.de`, is that of a value
    within a column.
    """

    texts: tuple[str, ...]
    label: str | None
    slices: tuple[str, ...] = ()
    start: str | None = None
    answers: str | None = None


def has_column(found: Sequence[str], name: str) -> bool:
    return name in found or name.partition(".")[0] in found


def require_column(flag: str, name: str, found: Sequence[str], place: str) -> str:
    """`name`, if a table has it. Raises a ValueError that lists the columns which are there."""
    if has_column(found, name):
        return name
    near = difflib.get_close_matches(name, found, n=1)
    hint = f"did you mean {near[0]}?" if near else "name one of them"
    raise ValueError(f"{flag} is {name!r}: {place} has the columns {', '.join(map(repr, found)) or 'none'}; {hint}")


def chosen_column(
    flag: str, name: str | None, usual: Sequence[str], found: Sequence[str], place: str, what: str, needed: bool = True
) -> str | None:
    """The column that a flag names, or one with a usual name; None if it is not there and not `needed`.

    Raises:
        ValueError: it is needed, and not there or not named.
    """
    if name is None:
        name = next((other for other in usual if other in found), None)
    if name is None and needed:
        raise ValueError(f"{place} has the columns {', '.join(found)}: name the one with {what} with --{flag}")
    if needed:
        return require_column(flag, name, found, place)
    return name if name is not None and has_column(found, name) else None


def classification_columns(
    found: Sequence[str],
    place: str,
    texts: Sequence[str],
    label: str | None,
    slices: Sequence[str],
    needs_label: bool = True,
) -> Columns:
    """The columns of a table to classify; where texts or the label are not named, those with usual names.

    Raises:
        ValueError: a column is not there, or none can be guessed.
    """
    slices = slice_columns(found, place, slices)
    if label is None:
        label = next((name for name in LABEL_NAMES if name in found and name not in texts), None)
        if label is None and needs_label:
            rest = [name for name in found if name not in texts]
            beside = " beside text_column 'label'" if "label" in texts else ""
            raise ValueError(
                f"{place} has no column 'label'{beside}: name one of {', '.join(map(repr, rest))} with --label_column, "
                "or, where none of them is a label, choose another task (hf-recurrent train --task)"
            )
    elif needs_label:
        require_column("label_column", label, found, place)
    elif not has_column(found, label):
        label = None
    if texts:
        for name in texts:
            require_column("text_column", name, found, place)
        if len(texts) > 2 or len(set(texts)) < len(texts) or label in texts:
            raise ValueError(f"text_column is {', '.join(texts)}: expected one or two columns beside the label's")
        return Columns(tuple(texts), label, slices)
    for pair in PAIR_NAMES:
        if set(pair) <= set(found):
            return Columns(pair, label, slices)
    for name in TEXT_NAMES:
        if name in found:
            return Columns((name,), label, slices)
    rest = [name for name in found if name not in (label, *slices)]
    if len(rest) != 1:
        raise ValueError(
            f"{place} has the columns {', '.join(found)}: name the one or two with texts with --text_column"
        )
    return Columns((rest[0],), label, slices)


def word_columns(
    found: Sequence[str],
    place: str,
    words: str | None,
    label: str | None,
    slices: Sequence[str],
    needs_label: bool = True,
) -> Columns:
    """The columns of lists of words and of their labels; where they are not named, those with usual names.

    Raises:
        ValueError: a column is not there, or none can be guessed.
    """
    words = chosen_column("text_column", words, WORD_NAMES, found, place, "the lists of words")
    label = chosen_column("label_column", label, WORD_LABEL_NAMES, found, place, "their labels", needs_label)
    if words == label:
        raise ValueError(f"text_column and label_column are both {words!r}: name two columns")
    return Columns((words,), label, slice_columns(found, place, slices))


def document_columns(found: Sequence[str], place: str, text: str | None, slices: Sequence[str]) -> Columns:
    """The columns of a table of documents; where that of the text is not named, one with a usual name or the only one.

    Raises:
        ValueError: a column is not there, or none can be guessed.
    """
    usual = TEXT_NAMES if len(found) > 1 else found
    text = chosen_column("text_column", text, usual, found, place, "the texts")
    return Columns((text,), None, slice_columns(found, place, slices))


def pair_columns(
    found: Sequence[str], place: str, source: str | None, target: str | None, slices: Sequence[str]
) -> Columns:
    """The columns of sources and targets; where they are not named, those with usual names.

    Raises:
        ValueError: a column is not there, or none can be guessed.
    """
    if (source is None) != (target is None):
        given, other = ("source_column", "target_column") if target is None else ("target_column", "source_column")
        raise ValueError(f"{given} is {source or target!r} and {other} is not set: name both")
    if source is None:
        source, target = next((pair for pair in SOURCE_NAMES if set(pair) <= set(found)), (None, None))
        if source is None:
            raise ValueError(
                f"{place} has the columns {', '.join(found)}: name two with --source_column and --target_column"
            )
    require_column("source_column", source, found, place)
    require_column("target_column", target, found, place)
    if source == target:
        raise ValueError(f"source_column and target_column are both {source!r}: name two columns")
    return Columns((source, target), None, slice_columns(found, place, slices))


def span_columns(found: Sequence[str], place: str, named: Mapping[str, str | None], slices: Sequence[str]) -> Columns:
    """The columns of questions, of the texts that answer them, and of the answers; those of SQuAD if not `named`.

    Raises:
        ValueError: a column is not there, or two are the same.
    """
    names = {flag: named.get(flag) or usual for flag, usual in SPAN_NAMES.items()}
    for flag, name in names.items():
        require_column(flag, name, found, place)
    require_different(names)
    question, context, answers = names.values()
    return Columns((question, context), None, slice_columns(found, place, slices), answers=answers)


def choice_columns(
    found: Sequence[str],
    place: str,
    context: str | None,
    start: str | None,
    endings: Sequence[str],
    label: str | None,
    slices: Sequence[str],
    needs_label: bool = True,
) -> Columns:
    """The columns of contexts, of what begins every ending, of the endings, and of the number of the right one.

    Where they are not named they are those of SWAG; a context that is named has no `start` unless that is named, too.

    Raises:
        ValueError: a column is not there, two are the same, or there are fewer than two endings.
    """
    if start is None and context is None and CHOICE_START in found:
        start = CHOICE_START
    if not endings:
        numbers = (name.removeprefix(CHOICE_ENDING) for name in found if name.startswith(CHOICE_ENDING))
        endings = [f"{CHOICE_ENDING}{number}" for number in sorted(filter(str.isdecimal, numbers), key=int)]
    if len(endings) < 2:
        raise ValueError(
            f"{place} has the columns {', '.join(map(repr, found))}: name the two or more to choose from with "
            "--ending_columns"
        )
    names = {"context_column": context or CHOICE_CONTEXT, "label_column": label or "label"}
    if start is not None:
        names["start_column"] = start
    names |= {f"ending_columns ({number})": name for number, name in enumerate(endings, 1)}
    for flag, name in names.items():
        if flag != "label_column" or needs_label:
            require_column(flag, name, found, place)
    require_different(names)
    target = names["label_column"] if has_column(found, names["label_column"]) else None
    return Columns((names["context_column"], *endings), target, slice_columns(found, place, slices), start=start)


def require_different(names: Mapping[str, str]) -> None:
    """Raise a ValueError if two flags name the same column."""
    first: dict[str, str] = {}
    for flag, name in names.items():
        other = first.setdefault(name, flag)
        if other != flag:
            raise ValueError(f"{other} and {flag} are both {name!r}: name different columns")


def slice_columns(found: Sequence[str], place: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of difficulty. Raises a ValueError for one that is not there, or has a name that examples use."""
    for name in names:
        require_column("slice_by", name, found, place)
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


def keys_beside(row: Mapping[str, Any], name: str) -> str:
    """For a message: the keys that are there instead of an absent one within a column; nothing for a column."""
    column = name.rpartition(".")[0]
    within = value_of(row, column)
    if name in row or not isinstance(within, Mapping) or name.rpartition(".")[2] in within:
        return ""
    return f": {column} has {', '.join(map(repr, within))}"
