"""What a checkpoint's card tells of its inputs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..files import read_json
from .lint import CARD_FILE
from .tasks import CLASSIFICATION

Fact = TypeVar("Fact")


def texts_of_inputs(folder: str | os.PathLike) -> int | None:
    """Texts in an input of a classifier that a run trained: one, or the two of a pair; None where no card tells."""

    def number(card: Any) -> int | None:
        return (1 if card["example"]["text_pair"] is None else 2) if card["task"] == CLASSIFICATION else None

    return of_card(folder, number)


def training_file(folder: str | os.PathLike) -> str | None:
    """Name of the file that a checkpoint was trained on; None where no card tells of one."""
    return of_card(folder, lambda card: card["benchmark"]["parameters"]["files"]["train"])


def of_card(folder: str | os.PathLike, read: Callable[[Any], Fact]) -> Fact | None:
    """A fact that is `read` from the data of a card; None for a card that is broken or not there."""
    try:
        return read(read_json(Path(folder) / CARD_FILE))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def check_texts(checkpoint: str, columns: Sequence[str]) -> None:
    """Raise a ValueError for columns of texts that are pairs where the checkpoint reads single texts, or vice versa."""
    known = texts_of_inputs(checkpoint)
    if known is not None and len(columns) != known:
        found, read = ("single texts", "pairs") if known == 2 else ("pairs", "single texts")
        wanted = "the two columns of its pairs" if known == 2 else "the column of its texts"
        raise ValueError(
            f"text_column is {', '.join(columns)}, for {found}, but {checkpoint} was trained on {read}, as its "
            f"{CARD_FILE} shows: name {wanted}"
        )
