"""The settings of a run's report: its card, times and predictions."""

# HfArg makes dataclass fields
# ruff: noqa: RUF009

import re
from dataclasses import dataclass

from transformers.hf_argparser import HfArg

from ..hub.publish import check_repo_id
from .paper import PaperRow
from .recipes import mapping
from .values import check_numbers

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass
class ReportArguments:
    """The run's title and further contents of its card."""

    title: str | None = HfArg(default=None, help="Title of the model card.")
    license: str | None = HfArg(
        default=None,
        help="Licence of the weights as the Hub identifies it, such as mit. If unset: apache-2.0 of a benchmark, "
        "unknown of your own data, that of the checkpoint which was fine-tuned.",
    )
    paper: dict | str | None = HfArg(
        default=None,
        help="The row of a paper's table that the run reproduces, {id, table, row} and column where these are "
        "reproduced one by one; ids and rows are those of training/paper_results.yaml in the package.",
    )
    paper_table: str = HfArg(default="none", help="Instead of paper, a note for the card on what the run reproduces.")
    paper_variants: dict | str | None = HfArg(
        default=None,
        help="Changes by flags that the paper's tables have too, as {'config.pooling = cls': the keys of paper that "
        "they change, or nothing if the row stays the same}.",
    )
    notice: str | None = HfArg(default=None, help="A note at the head of the card.")
    differences: list[str] = HfArg(default_factory=list, help="Differences from the paper.")
    dataset_id: str | None = HfArg(default=None, help="The benchmark's repository on the Hub, for evaluation results.")
    examples: bool = HfArg(default=False, help="Quote examples of your own data on the card, which is published.")
    keep_checkpoints: bool = HfArg(default=False, help="Keep checkpoint-N folders of a finished run.")

    def __post_init__(self) -> None:
        self.paper = mapping("paper", self.paper)
        self.paper_variants = mapping("paper_variants", self.paper_variants)
        if self.dataset_id is not None:
            check_repo_id(self.dataset_id, "dataset_id")
        if self.license is not None and not LICENSE.fullmatch(self.license):
            raise ValueError(
                f"license is {self.license!r}: expected what the Hub calls a licence, such as mit, cc-by-4.0 or other"
            )
        if self.paper and self.paper_table != "none":
            raise ValueError(f"paper is {self.paper} and paper_table {self.paper_table!r}: set one of them")
        if self.paper_variants and not self.paper:
            raise ValueError("paper_variants are changes of a row: set paper to {id: ..., table: ..., row: ...} too")
        for other in [{}, *self.paper_variants.values()] if self.paper else ():
            PaperRow.of({**self.paper, **mapping("a value of paper_variants", other)})


@dataclass
class TimedReportArguments(ReportArguments):
    """The card, times and predictions of a run."""

    timing: bool = HfArg(default=False, help="Report seconds of each training epoch and of each evaluation pass.")
    write_predictions: bool = HfArg(default=False, help="Write predictions/<split>.jsonl.")


@dataclass
class RunArguments(TimedReportArguments):
    """The card, times, predictions and trade-off curve of a run."""

    thresholds: list[float] = HfArg(
        default_factory=lambda: [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999],
        help="Halting thresholds of the trade-off curve on the first split; none if empty.",
    )
    threshold_samples: int = HfArg(default=500, help="Examples of the trade-off curve.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self)
