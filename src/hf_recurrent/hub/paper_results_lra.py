"""What "Investigating Recurrent Transformers with Dynamic Halt" (arXiv 2402.00976) reports of Long Range Arena.

Table 4, the authors' own models: accuracy on the test split, means and deviations of three runs, as printed. Of the TLB
on Pathfinder, whose deviation is 13, a footnote says that one of the three runs failed to learn the task.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from .paper_results import PaperResult


class ArenaTask(NamedTuple):
    """A column of Table 4; `cells` are means and deviations in percent, by row.

    `config` is that of benchmark `lra`. Of `widths`, the models' hidden sizes, and `least_steps`, the optimiser steps
    after which training can end at the earliest, by its patience or its schedule, the second is that of chunk-recurrent
    models.
    """

    config: str
    widths: tuple[int, int]
    least_steps: tuple[int, int]
    cells: Mapping[str, tuple[float, float]]


ROWS = ("Transformer", "UT", "GUT", "TLB", "GUTLB")
CHUNK_RECURRENT = ("TLB", "GUTLB")


def _task(config: str, widths: tuple[int, int], least_steps: tuple[int, int], *cells: tuple[float, float]) -> ArenaTask:
    return ArenaTask(config, widths, least_steps, MappingProxyType(dict(zip(ROWS, cells, strict=True))))


TABLE_4: Mapping[str, ArenaTask] = MappingProxyType(
    {
        "ListOps": _task(
            "listops",
            (512, 512),
            (36_000, 36_000),
            *((45.05, 1.3), (28.50, 12.4), (17.80, 0.0), (50.35, 0.07), (40.88, 0.74)),
        ),
        "Text": _task(
            "text",
            (256, 256),
            (9_384, 9_384),
            *((68.01, 0.78), (67.33, 0.8), (67.95, 0.06), (83.55, 0.15), (82.25, 0.26)),
        ),
        "Retrieval": _task(
            "retrieval",
            (128, 128),
            (32_179, 8_050),
            *((78.65, 0.85), (79.15, 0.34), (68.84, 12.9), (86.48, 0.05), (85.09, 0.83)),
        ),
        "Image": _task(
            "image",
            (128, 128),
            (17_952, 17_952),
            *((40.09, 0.52), (40.60, 0.029), (34.82, 1.5), (53.39, 0.85), (53.22, 0.43)),
        ),
        "Pathfinder": _task(
            "pathfinder32",
            (64, 128),
            (27_500, 62_400),
            *((70.26, 1.3), (67.17, 1.6), (60.81, 3.5), (69.18, 13.0), (69.02, 0.29)),
        ),
    }
)


def arena_cell(task: str, row: str) -> PaperResult:
    """The paper's accuracy of a model (one of `ROWS`) on a task (a key of `TABLE_4`).

    Raises:
        ValueError: the table has no such column or row.
    """
    if task not in TABLE_4 or row not in ROWS:
        raise ValueError(f"Table 4 has no {task!r} of {row!r}: it has {', '.join(TABLE_4)}, of {', '.join(ROWS)}")
    mean, std = TABLE_4[task].cells[row]
    return PaperResult(None, round(mean / 100, 4), round(std / 100, 5))


def is_like_theirs(task: str, row: str, config: str, hidden_size: int, steps: int) -> bool:
    """Whether a run on configuration `config` of benchmark `lra` has the paper's data, width and training."""
    known, place = TABLE_4[task], row in CHUNK_RECURRENT
    return config == known.config and hidden_size == known.widths[place] and steps >= known.least_steps[place]
