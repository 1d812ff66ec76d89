"""Shared by all figures: sizes, axes, names of files, and files of the same bytes for the same data.

Figures are drawn through the object interface on an Agg canvas, so that no display, backend or pyplot state
of the caller matters.
"""

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..files import write_bytes
from .tables import file_name

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"
DOTS_PER_INCH = 110
HEADROOM = 1.2
MAX_TOKEN_CHARACTERS = 16


def new_figure(
    panels: int, size: tuple[float, float], shared: bool = True, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """A figure of `size` inches with panels below each other, which share the horizontal axis if it is `shared`."""
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(panels, 1, sharex=shared, squeeze=False)[:, 0].tolist()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e2e8f0", linewidth=0.8)
        axis.set_axisbelow(True)
    axes[0].set_title(title, loc="left", fontsize=10, parse_math=False)
    return figure, axes


def draw_image(axes: Axes, values: Sequence[Sequence[float]], label: str = "", **look: Any) -> None:
    """Values as colours, and what these mean at the right, named `label`."""
    look = {"cmap": "Blues", "vmin": 0, "aspect": "auto", "interpolation": "nearest", **look}
    image = axes.imshow(values, **look)
    axes.grid(False)
    axes.figure.colorbar(image, ax=axes, label=label)


def depth_axis(axes: Axes, label: str, max_depth: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(max_depth, 12) + 1))
    axes.set_xlim(-0.6, max_depth + 0.6)
    axes.set_xlabel(label)


def number_steps(axes: Axes, nbins: int) -> None:
    """Ticks of an image with a row for each step: the first step is in row 0."""
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=nbins))
    axes.yaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")


def mark_last_steps(axes: Axes, steps: Iterable[float], **style: Any) -> None:
    """In an image with a row for each step, a line below the last step of each column."""
    ends = np.asarray(list(steps)) - 0.5
    places = np.arange(len(ends))
    axes.hlines(ends, places - 0.45, places + 0.45, **style)


def share_axis(axes: Axes, label: str, top: float) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_ylim(0, top)
    axes.set_ylabel(label)


def steps_axis(axes: Axes, label: str, max_depth: float) -> None:
    """From 0 to just above `max_depth`; nobody executes a fraction of a step, so ticks are whole."""
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, max(HEADROOM * max_depth, 1))
    axes.set_ylabel(label)


def shorten(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= MAX_TOKEN_CHARACTERS else text[: MAX_TOKEN_CHARACTERS - 1] + "…"


def save_all(
    folder: str | os.PathLike, prefix: str, figures: Iterable[tuple[str, str | None, Figure]]
) -> list[dict[str, str | None]]:
    """Save figures into `folder`/assets, and list them for the card.

    Args:
        prefix: beginning of the files' names.
        figures: `kind`, `column` (of a figure by difficulty, by token or of a stack, else None), and the figure.

    Returns:
        For each figure its `kind`, `path` (relative to `folder`) and `column`.
    """
    drawn = []
    for kind, column, figure in figures:
        path = f"assets/{file_name(prefix, kind, column)}.png"
        save(figure, Path(folder) / path)
        drawn.append({"kind": kind, "path": path, "column": column})
    return drawn


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """PNG without the library's version in its metadata: the bytes depend on the data alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return write_bytes(path, buffer.getvalue())
