"""Other models beside that of a card, on the same examples: runs with other seeds, and baselines."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .card import read_card
from .card_data import CardData, Compared
from .lint import CARD_FILE
from .tasks import METRICS

# facts of a table by which other examples, or another way of reading them, are noticed
FACTS = ("n", "documents", "tokens", "bytes", "segment_length")
# parameters of a benchmark that change its training examples alone, or how examples are read
OF_TRAINING = {"max_train_length", "train_length", "p_ignore", "max_train_samples", "max_eval_samples"}
OF_READING = {"tokenizer", "max_seq_length", "max_source_length", "max_target_length"}
# ends of the names of those that tell which part of a user's own data the examples are
OF_OWN_DATA = ("_column", "_columns", "_percentage")
# flags of a training command by which runs of one model differ
OF_A_RUN = {
    *("seed", "output_dir", "disable_tqdm", "logging_steps", "report_to", "save_total_limit"),
    *("num_proc", "dataloader_num_workers", "use_cpu", "evaluate_on", "evaluate_params", "compare_with"),
}


def compared_cards(card: CardData, folders: Sequence[str | os.PathLike]) -> list[Compared]:
    """Results of finished runs on the splits of a card; runs of one title and size are runs of one model.

    Args:
        folders: output folders of runs, each with its own card.

    Raises:
        ValueError: a folder has no card, that of this very run, that of a run that another folder has, one of other
            examples or another metric, or one of the same title and size but other settings.
    """
    models: dict[tuple, Compared] = {}
    first, seen = {_model(card): card}, {_run(card)}
    for folder in map(Path, folders):
        other = _finished(folder)
        _check_comparable(card, other, folder)
        _check_settings(first.setdefault(_model(other), other), other, folder)
        if _run(other) in seen:
            run = f"a run of {other.model_name!r} with seed {other.training.seed}"
            raise ValueError(
                f"{folder} holds {run}, as the card or another folder does: leave it out, or give it another title"
            )
        seen.add(_run(other))
        new = Compared(other.model_name, other.training.num_parameters, {}, same_model=_model(other) == _model(card))
        values = models.setdefault(_model(other), new).values
        for split, value in split_values(other).items():
            if split in split_values(card):
                values.setdefault(split, []).append(value)
    return list(models.values())


def _model(card: CardData) -> tuple:
    """By which a table tells the runs of one model from those of another."""
    return card.model_name, card.training.num_parameters


def _run(card: CardData) -> tuple:
    return *_model(card), card.training.seed


def _check_settings(first: CardData, other: CardData, folder: Path) -> None:
    """Raise a ValueError for a run of other settings than the first one of its title and size."""
    ours, theirs = _settings(first), _settings(other)
    changed = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if changed:
        values = "; ".join(f"{name}: {theirs.get(name)!r}, there {ours.get(name)!r}" for name in changed)
        raise ValueError(
            f"{folder} has the title {other.model_name!r} and the size of the card or of another folder, but other "
            f"settings ({values}): give it a title of its own, the model_name in its {CARD_FILE}"
        )


def _settings(card: CardData) -> dict[str, Any]:
    """What a card tells of how its model was trained, and of how it stops."""
    found = re.findall(r" --([\w-]+)[ =]?((?:(?! --).)*)", card.training.command)
    flags = {name.replace("-", "_"): value for name, value in found}
    return {
        "family": card.family,
        "max_steps": card.max_steps,
        "halting": card.halting,
        "recipe": card.training.recipe,
        **{name: value for name, value in flags.items() if name not in OF_A_RUN},
    }


def split_values(card: CardData) -> dict[str, float]:
    """Split -> the value of the card's metric."""
    key = METRICS[card.metric].key
    return {result.split: result.table[key] for result in card.results}


def check_finished(folders: Sequence[str | os.PathLike]) -> None:
    """Raise a ValueError for a folder of which there is nothing to compare with."""
    for folder in map(Path, folders):
        _finished(folder)


def _finished(folder: Path) -> CardData:
    if not (folder / CARD_FILE).is_file():
        raise ValueError(f"{folder} has no {CARD_FILE}: give the output folder of a finished run to compare with")
    return read_card(folder)


def _check_comparable(card: CardData, other: CardData, folder: Path) -> None:
    """Raise a ValueError for a card that has no value beside those of `card`."""
    facts = {
        "metric": (other.metric, card.metric),
        "benchmark": (other.benchmark.name, card.benchmark.name),
        "benchmark_config": (other.benchmark.config, card.benchmark.config),
        "version": (other.benchmark.version, card.benchmark.version),
        "seed of its examples": (other.benchmark.seed, card.benchmark.seed),
    }
    theirs, ours = ({result.split: result.table for result in one.results} for one in (other, card))
    shared = [split for split in ours if split in theirs]
    facts["parameters of its examples"] = (_parameters(other), _parameters(card))
    facts |= {f"examples of {split}": (_examples(theirs[split]), _examples(ours[split])) for split in shared}
    for name, (found, expected) in facts.items():
        if found != expected:
            raise ValueError(
                f"{folder} has {name} {found!r}, this card {expected!r}: compare runs on the same examples"
            )
    if not shared:
        raise ValueError(f"{folder} has results of {', '.join(theirs)}, this card of {', '.join(ours)}: none is shared")
    if (other.model_name, other.training.seed, theirs) == (card.model_name, card.training.seed, ours):
        raise ValueError(f"{folder} holds this very run, with the same seed: leave it out")


def _parameters(card: CardData) -> dict[str, Any]:
    """The parameters of a benchmark or of own data on which the test examples depend, beside their number."""
    free = OF_TRAINING | OF_READING
    found = card.benchmark.parameters.items()
    if card.benchmark.is_own:
        return {name: value for name, value in found if name.endswith(OF_OWN_DATA)}
    return {name: value for name, value in found if name not in free and not name.startswith("num_")}


def _examples(table: dict[str, Any]) -> dict[str, int]:
    return {name: table[name] for name in FACTS if name in table}
