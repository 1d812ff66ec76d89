"""The checkpoints of a gallery, read from their cards."""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...registry import ARCHITECTURES
from ..card import render_card
from ..findings import above_majority, adaptivity, best_fixed_depth, has_choice, time_saved
from ..results import RESULTS_FILE, read_results
from ..tasks import METRICS, Metric

# letters that need no escaping in a link, a heading or a repository's name
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Entry:
    """One checkpoint folder: its results and `readme`, the text that README.md must have.

    Numbers of the whole checkpoint are those of the first split.
    """

    folder: Path
    results: dict[str, Any]
    readme: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def architecture(self) -> str:
        return ARCHITECTURES[self.results["model"]["type"]].prefix

    @property
    def task(self) -> str:
        """The benchmark with its config, as `load_benchmark` takes them."""
        return f"{self.results['data']['name']} {self.results['data']['config']}"

    @property
    def of_documents(self) -> bool:
        """Whether its numbers are losses of documents."""
        return METRICS[self.results["metric"]].in_bits

    @property
    def metric(self) -> Metric:
        """The measure by which it stands among others: where the card has BLEU, exact match, a share as theirs."""
        metric = self.results["metric"]
        return METRICS["exact_match" if metric == "bleu" else metric]

    @property
    def main_split(self) -> str:
        return next(iter(self.results["splits"]))

    @property
    def main_table(self) -> dict[str, Any]:
        """The table of the first split."""
        return self.results["splits"][self.main_split]

    @property
    def mean_steps(self) -> float:
        """Mean depth steps of an example, or of a token of documents; all steps where depth is fixed."""
        if self.main_table["fixed_depth"]:
            return float(self.main_table["max_depth"])
        return self.main_table["mean_steps"] if self.of_documents else self.main_table["steps"]["mean"]

    @cached_property
    def adaptivity(self) -> dict[str, Any]:
        """Whether it thinks longer on harder input, as `findings.adaptivity` tells it."""
        return adaptivity(self.results)

    @property
    def trend(self) -> dict[str, Any] | None:
        """How steps follow difficulty over the tested splits, or on the first one; None: depth is fixed."""
        return next(iter(self.adaptivity["rows"]), None)

    @property
    def at_chance(self) -> list[str]:
        """The splits on which it is no better than the most frequent answer; none of documents."""
        splits = {} if self.of_documents else self.results["splits"]
        return [split for split, table in splits.items() if not above_majority(table)]

    @property
    def rank(self) -> tuple[bool, float, str]:
        """Sorts those first that think longer on harder input, by how closely steps follow difficulty, then by name."""
        trend = self.trend or {"direction": None}
        follows = trend["direction"] == "grow" and trend["above"] is not False
        return not follows, -trend["spearman"] if follows else 0.0, self.name

    @property
    def saved(self) -> dict[str, Any] | None:
        """Time that stopping early saves, as `findings.time_saved` tells it."""
        return time_saved(self.results)

    @property
    def against_fixed(self) -> float | None:
        """Time at the calibrated setting over that of the best fixed depth, see `findings.best_fixed_depth`."""
        calibration = self.results["calibration"]
        rival = best_fixed_depth(calibration) if has_choice(calibration) else None
        return rival and calibration["calibrated"]["relative_time"] / rival["relative_time"]

    @property
    def accuracy(self) -> dict[str, float]:
        """Split -> accuracy, as a fraction; of documents, bits."""
        return {split: table[self.metric.key] for split, table in self.results["splits"].items()}


def card_folders(root: str | os.PathLike) -> list[Path]:
    """The folders of `root` that hold results, by name.

    Raises:
        ValueError: `root` is no folder, or holds no such folder.
    """
    folders = sorted(path.parent for path in Path(root).glob(f"[!.]*/{RESULTS_FILE}"))
    if not folders:
        reason = f"holds no folder with a {RESULTS_FILE}" if Path(root).is_dir() else "is not a folder"
        raise ValueError(f"root={str(root)!r} {reason}: pass one that holds checkpoint folders")
    return folders


def read_entry(folder: Path) -> Entry:
    """The checkpoint in `folder`.

    Raises:
        ValueError: the folder's name or its results cannot be used; the message names the folder.
    """
    if not NAME.fullmatch(folder.name):
        raise ValueError(f"{folder.name}: use letters, digits, '.', '_' and '-' in the name of a checkpoint folder")
    try:
        results = read_results(folder)
        if results is None or not results["splits"]:
            raise ValueError("it has no results of a run")
        return Entry(folder, results, render_card(results))
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder.name}/{RESULTS_FILE} cannot be used: {error}") from error


def read_gallery(root: str | os.PathLike) -> list[Entry]:
    """The checkpoints in the folders of `root` that hold results, by name.

    Raises:
        ValueError: `root` holds none, or a folder's results cannot be used; the message names the folder.
    """
    return [read_entry(folder) for folder in card_folders(root)]
