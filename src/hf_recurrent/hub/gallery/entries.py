"""The checkpoints of a gallery, read from their cards."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...analysis.tables import HALTING_FILE, RECURRENCE_FILE
from ...registry import ARCHITECTURES
from ..card import read_rendered
from ..card_data import CardData
from ..findings import above_majority, depth_trends, time_saved
from ..lint import CARD_FILE
from ..tasks import METRICS, Metric

# letters that need no escaping in a link, a heading or a repository's name
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Entry:
    """One checkpoint folder: its card data and `readme`, the text that README.md must have.

    Numbers of the whole checkpoint are those of the card's first split, as in the card's claim.
    """

    folder: Path
    card: CardData
    readme: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def architecture(self) -> str:
        return ARCHITECTURES[self.card.family].prefix

    @property
    def task(self) -> str:
        """The benchmark with its config, as `load_benchmark` takes them."""
        return f"{self.card.benchmark.name} {self.card.benchmark.config}"

    @property
    def metric(self) -> Metric:
        """The measure by which it stands among others: where the card has BLEU, exact match, a share as theirs."""
        return METRICS["exact_match" if self.card.metric == "bleu" else self.card.metric]

    @property
    def main_table(self) -> dict[str, Any]:
        """`halting_table` of the first split."""
        return self.card.results[0].table

    @property
    def statistics_file(self) -> str:
        """Name of the file of statistics beside the card."""
        return RECURRENCE_FILE if self.card.of_documents else HALTING_FILE

    @property
    def mean_steps(self) -> float:
        """Mean depth steps of an example, or of a token of documents; all steps where depth is fixed."""
        if self.card.halting == "none":
            return float(self.card.max_depth)
        return self.main_table["mean_steps"] if self.card.of_documents else self.main_table["steps"]["mean"]

    @property
    def trend(self) -> dict[str, Any] | None:
        """How steps follow difficulty, as `findings.depth_trends` tells it of the first split; None: depth is fixed."""
        return next(iter(depth_trends(self.card.to_dict())), None)

    @property
    def at_chance(self) -> list[str]:
        """The splits on which it is no better than the most frequent answer; none of documents."""
        tables = {result.split: result.table for result in self.card.results if not self.card.of_documents}
        return [split for split, table in tables.items() if not above_majority(table)]

    @property
    def rank(self) -> tuple[bool, float, str]:
        """Sorts those first that think longer on harder input, by how closely steps follow difficulty, then by name."""
        trend = self.trend or {"direction": None}
        follows = trend["direction"] == "grow" and trend["above"] is not False
        return not follows, -trend["spearman"] if follows else 0.0, self.name

    @property
    def saved(self) -> dict[str, Any] | None:
        """Time that stopping early saves, as `findings.time_saved` tells it."""
        return time_saved(self.card.to_dict())

    @property
    def accuracy(self) -> dict[str, float]:
        """Split -> accuracy, as a fraction; of documents, bits."""
        return {result.split: result.table[self.metric.key] for result in self.card.results}


def card_folders(root: str | os.PathLike) -> list[Path]:
    """The folders of `root` that hold card data, by name.

    Raises:
        ValueError: `root` is no folder, or holds no such folder.
    """
    root = Path(root)
    hint = "pass one that holds checkpoint folders"
    if not root.is_dir():
        raise ValueError(f"root={str(root)!r} is not a folder: {hint}")
    folders = sorted(path.parent for path in root.glob(f"[!.]*/{CARD_FILE}"))
    if not folders:
        raise ValueError(f"root={str(root)!r} holds no folder with a {CARD_FILE}: {hint}")
    return folders


def read_entry(folder: Path) -> Entry:
    """The checkpoint in `folder`.

    Raises:
        ValueError: the folder's name or its card data cannot be used; the message names the folder.
    """
    if not NAME.fullmatch(folder.name):
        raise ValueError(f"{folder.name}: use letters, digits, '.', '_' and '-' in the name of a checkpoint folder")
    try:
        return Entry(folder, *read_rendered(folder))
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder.name}/{CARD_FILE} is not the data of a card: {error}") from error


def read_gallery(root: str | os.PathLike) -> list[Entry]:
    """The checkpoints in the folders of `root` that hold card data, by name.

    Raises:
        ValueError: `root` holds none, or a folder's card data cannot be used; the message names the folder.
    """
    return [read_entry(folder) for folder in card_folders(root)]
