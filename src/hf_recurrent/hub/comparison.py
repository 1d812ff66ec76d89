"""Other models compared with that of a card, on the same examples: runs with other seeds, and baselines."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .card import read_card
from .card_data import CardData, Compared
from .lint import CARD_FILE
from .tasks import METRICS


def compared_cards(card: CardData, folders: Sequence[str | os.PathLike]) -> list[Compared]:
    """Results of finished runs on the splits of a card; runs of one title and size are runs of one model.

    Args:
        folders: output folders of runs, each with its own card.

    Raises:
        ValueError: a folder has no card, or one of other examples, or of a run that is compared already.
    """
    models: dict[tuple[str, int], Compared] = {}
    seen = [run_of(card)]
    for folder in folders:
        check_finished([folder])
        other = read_card(folder)
        shared = [split for split in split_values(card) if split in split_values(other)]
        ours, theirs = measured_on(card, shared), measured_on(other, shared)
        differences = [name for name in ours if ours[name] != theirs[name]]
        if differences or not shared:
            raise ValueError(
                f"{folder} has another {' and '.join(differences) or 'split'} than this card: compare runs on the same "
                "examples"
            )
        if run_of(other) in seen:
            raise ValueError(f"{folder} holds the run {run_of(other)}, which is compared already: leave it out")
        seen.append(run_of(other))
        model = (other.model_name, other.training.num_parameters)
        new = Compared(*model, {}, same_model=model == (card.model_name, card.training.num_parameters))
        for split in shared:
            models.setdefault(model, new).values.setdefault(split, []).append(split_values(other)[split])
    return list(models.values())


def run_of(card: CardData) -> tuple[str, int, int]:
    return card.model_name, card.training.num_parameters, card.training.seed


def split_values(card: CardData) -> dict[str, float]:
    """Split -> the value of the card's metric."""
    return {result.split: result.table[METRICS[card.metric].key] for result in card.results}


def measured_on(card: CardData, splits: Sequence[str]) -> dict[str, Any]:
    """Facts of the examples of some splits, and of the measure, that cards must share to be compared."""
    data = card.benchmark
    tables = (result.table for result in card.results if result.split in splits)
    return {
        "metric": card.metric,
        "benchmark": (data.name, data.config),
        "version": (data.version, data.seed),
        "number of examples": [table.get("n", table.get("tokens")) for table in tables],
    }


def check_finished(folders: Sequence[str | os.PathLike]) -> None:
    """Raise a ValueError for a folder of which there is nothing to compare with."""
    for folder in folders:
        if not (Path(folder) / CARD_FILE).is_file():
            raise ValueError(f"{folder} has no {CARD_FILE}: give the output folder of a finished run to compare with")
