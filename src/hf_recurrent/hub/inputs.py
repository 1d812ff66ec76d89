"""What a checkpoint's card tells of its inputs, and copies, which have no card."""

import os
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from ..files import read_json, write_json
from .lint import CARD_FILE
from .tasks import CLASSIFICATION

INPUTS_FILE = "inputs.json"

Fact = TypeVar("Fact")


def read_inputs(name: str | os.PathLike, **options: Any) -> dict[str, Any]:
    """What a card, or the `INPUTS_FILE` of a copy, tells of a checkpoint's inputs; nothing where neither is there.

    `texts`: how many an input of a classifier has that a run trained, one, or the two of a pair; `settings`: how
    training read the examples.

    Args:
        name: a folder, or a repository on the Hub.
        options: of the loaders of the checkpoint.
    """
    # transformers is slow to import, and commands without a checkpoint read cards, too
    from transformers.utils import cached_file

    missing = {f"_raise_exceptions_for_{reason}": False for reason in ("missing_entries", "connection_errors")}
    path = cached_file(name, CARD_FILE, **options, **missing)
    facts = {"texts": texts_of_inputs, "settings": lambda card: dict(card["benchmark"]["parameters"])}
    if path is None:
        path = cached_file(name, INPUTS_FILE, **options, **missing)
        facts = {"texts": itemgetter("texts"), "settings": lambda kept: dict(kept["settings"])}
    found = {} if path is None else {key: fact_of(path, read) for key, read in facts.items()}
    return {key: value for key, value in found.items() if value is not None}


def write_inputs(folder: Path, origin: str, **options: Any) -> None:
    """Let the copy of a checkpoint know what `read_inputs` finds of the original."""
    found = read_inputs(origin, **options)
    if found:
        write_json(folder / INPUTS_FILE, found)


def texts_of_inputs(card: Any) -> int | None:
    return (1 if card["example"]["text_pair"] is None else 2) if card["task"] == CLASSIFICATION else None


def fact_of(path: str | os.PathLike, read: Callable[[Any], Fact]) -> Fact | None:
    """A fact that is `read` from a JSON file; None for one that is broken."""
    try:
        return read(read_json(Path(path)))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def training_file(inputs: Mapping[str, Any]) -> str | None:
    """Name of the file that a checkpoint was trained on; None where its `inputs` do not tell."""
    try:
        return inputs["settings"]["files"]["train"]
    except (LookupError, TypeError):
        return None


def check_texts(checkpoint: str, inputs: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise a ValueError for columns of texts that are pairs where the checkpoint reads single texts, or vice versa."""
    known = inputs.get("texts")
    if known is not None and len(columns) != known:
        found, read = ("single texts", "pairs") if known == 2 else ("pairs", "single texts")
        wanted = "the two columns of its pairs" if known == 2 else "the column of its texts"
        raise ValueError(
            f"text_column is {', '.join(columns)}, for {found}, but {checkpoint} was trained on {read}: name {wanted}"
        )
