"""A figure on which everything is placed by hand, from the top, in inches.

matplotlib's layout engines take seconds for many small maps.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..figures import BLUE, DOTS_PER_INCH, GREY, ORANGE, save

WIDTH, EDGE, GAP, HEADING = 8.8, 0.12, 0.1, 0.5
SCALE_WIDTH, SCALE_HEIGHT = 1.4, 0.1
IDLE_GREY = "#e2e8f0"
# of colours of attention
UNIT = "1 is an even share"
# fraction of a colour map's range that leaves black letters readable
PALE = 0.6
BARS_HEIGHT, BARS_BELOW, BARS_LEFT = 0.9, 0.45, 0.55


class Page:
    """A white sheet of `WIDTH` x `height` inches."""

    def __init__(self, height: float):
        self.height = height
        self.figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        return self.figure.add_axes((left / WIDTH, bottom / self.height, width / WIDTH, height / self.height))

    def heading(self, top: float, text: str) -> None:
        self.figure.text(EDGE / WIDTH, 1 - (top + 0.25) / self.height, text, fontsize=9, va="center", parse_math=False)

    def note(self, left: float, top: float, text: str) -> None:
        self.figure.text(left / WIDTH, 1 - top / self.height, text, fontsize=8, va="top", parse_math=False)

    def scale(self, top: float, image: Any, ticks: list[float], names: list[str]) -> None:
        """The meaning of an image's colours, at the right of a heading."""
        place = self.axes(WIDTH - EDGE - SCALE_WIDTH - 0.1, top + 0.14, SCALE_WIDTH, SCALE_HEIGHT)
        bar = self.figure.colorbar(image, cax=place, orientation="horizontal")
        bar.set_ticks(ticks, labels=names, fontsize=6)
        bar.ax.tick_params(length=2, pad=1)

    def steps_scale(self, top: float, image: Any, max_depth: int) -> None:
        ticks = MaxNLocator(integer=True, nbins=6).tick_values(0, max_depth)
        ticks = [tick for tick in ticks if 0 <= tick <= max_depth]
        self.scale(top, image, ticks, [f"{tick:.0f}" for tick in ticks])

    def save(self, path: str | os.PathLike) -> Path:
        return save(self.figure, path)


def colours(name: str) -> Colormap:
    """A sequential map from light to dark, and grey where a token takes no step."""
    return colormaps[name].with_extremes(bad=IDLE_GREY)


def steps_colours(max_depth: int, pale: bool = False) -> Colormap:
    """A colour for each of 0 to `max_depth` steps."""
    shades = np.linspace(0.05, PALE if pale else 1.0, max_depth + 1)
    return ListedColormap(colormaps["Blues"](shades)).with_extremes(bad="white")


def pale_colours() -> Colormap:
    """From nothing to an orange that is not too dark for letters."""
    return ListedColormap(colormaps["Oranges"](np.linspace(0.0, PALE, 256))).with_extremes(bad="white")


def draw_bars(page: Page, left: float, top: float, width: float, probabilities: np.ndarray, taken: int) -> Axes:
    """Halting probabilities (T,) by step, of which `taken` were taken and kept; the next one stopped."""
    axes = page.axes(left + BARS_LEFT, top, width - BARS_LEFT, BARS_HEIGHT)
    places = np.arange(1, len(probabilities) + 1)
    axes.bar(places, probabilities, width=0.7, color=[BLUE if place <= taken else ORANGE for place in places])
    axes.axvline(taken + 0.5, color=GREY, linestyle=":", linewidth=1.5)
    axes.set_ylim(0, 1)
    axes.set_xlim(0.4, max(len(places), 4) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    axes.set_xlabel("step", fontsize=8, labelpad=1)
    axes.tick_params(labelsize=7, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def numbered(name: str, text: int, texts: int) -> str:
    """Such as "Text 2", if there are several."""
    return f"{name} {text + 1}" if texts > 1 else name
