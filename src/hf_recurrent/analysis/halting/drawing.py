"""What the figures of halting tables are drawn with: size, axes, and files of the same bytes for the same data.

Figures are drawn through the object interface on an Agg canvas, so that no display, backend or pyplot state
of the caller matters.
"""

import io
import os
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ...metrics.serialize import write_bytes

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"
DOTS_PER_INCH = 110
HEADROOM = 1.2
MAX_TOKEN_CHARACTERS = 16


def new_figure(panels: int, size: tuple[float, float], shared: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of `size` inches with panels below each other, which share the horizontal axis if it is `shared`."""
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(panels, 1, sharex=shared, squeeze=False)[:, 0].tolist()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e2e8f0", linewidth=0.8)
        axis.set_axisbelow(True)
    return figure, axes


def depth_axis(axes: Axes, label: str, most: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(most, 12) + 1))
    axes.set_xlim(-0.6, most + 0.6)
    axes.set_xlabel(label)


def share_axis(axes: Axes, label: str, top: float) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_ylim(0, top)
    axes.set_ylabel(label)


def steps_axis(axes: Axes, label: str, most: float) -> None:
    """From 0 to just above `most` steps; nobody executes a fraction of a step, so ticks are whole."""
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, max(HEADROOM * most, 1))
    axes.set_ylabel(label)


def shorten(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= MAX_TOKEN_CHARACTERS else text[: MAX_TOKEN_CHARACTERS - 1] + "…"


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """PNG without the library's version in its metadata: the bytes depend on the data alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return write_bytes(path, buffer.getvalue())
