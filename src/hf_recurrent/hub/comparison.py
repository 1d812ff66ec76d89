"""Other models compared with that of a card, on the same examples: runs with other seeds, and baselines."""

import os
from collections.abc import Sequence
from pathlib import Path

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
    check_finished(folders)
    models: dict[tuple[str, int], Compared] = {}
    own, seen = (card.model_name, card.training.num_parameters), [run_of(card)]
    for folder in folders:
        other = read_card(folder)
        ours, theirs = measured_values(card), measured_values(other)
        shared = [split for split in ours if split in theirs]
        same = card.metric == other.metric and data_of(card) == data_of(other)
        if not (shared and same and all(ours[split][0] == theirs[split][0] for split in shared)):
            raise ValueError(f"{folder} was measured on other examples than this card: compare runs on the same ones")
        if run_of(other) in seen:
            raise ValueError(f"{folder} holds the run {run_of(other)}, which is compared already: leave it out")
        seen.append(run_of(other))
        model = (other.model_name, other.training.num_parameters)
        new = models.setdefault(model, Compared(*model, {}, same_model=model == own))
        for split in shared:
            new.values.setdefault(split, []).append(theirs[split][1])
    return list(models.values())


def run_of(card: CardData) -> tuple[str, int, int]:
    return card.model_name, card.training.num_parameters, card.training.seed


def data_of(card: CardData) -> tuple[str, str, str, int | None]:
    return card.benchmark.name, card.benchmark.config, card.benchmark.version, card.benchmark.seed


def measured_values(card: CardData) -> dict[str, tuple[int, float]]:
    """Split -> how many examples or tokens it has, and the value of the card's metric."""
    key = METRICS[card.metric].key
    return {
        result.split: (result.table.get("n", result.table.get("tokens")), result.table[key]) for result in card.results
    }


def check_finished(folders: Sequence[str | os.PathLike]) -> None:
    """Raise a ValueError for a folder of which there is nothing to compare with."""
    for folder in folders:
        if not (Path(folder) / CARD_FILE).is_file():
            raise ValueError(f"{folder} has no {CARD_FILE}: give the output folder of a finished run to compare with")
