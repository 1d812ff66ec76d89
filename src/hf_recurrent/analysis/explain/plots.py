"""The figure of an explanation: an attention map for each step, and below them gates, or halting, by step and token.

Shapes: T steps, S tokens. Lengths are in inches, and everything is placed by hand: matplotlib's layout engines take
seconds for many small maps.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..halting.drawing import BLUE, DOTS_PER_INCH, save, shorten
from .explanation import Explanation
from .text import MAX_TOKENS

# of steps that are drawn, and of tokens by how many maps stand side by side
MAX_MAPS = 32
MAP_COLUMNS = ((8, 7), (16, 5), (MAX_TOKENS, 3))
WIDTH, EDGE, GAP, HEADING, STEP_TITLE, STEP_HEIGHT, STEP_AXIS = 8.8, 0.12, 0.1, 0.5, 0.22, 0.17, 0.35
IDLE_GREY = "#e2e8f0"
# of fonts
SMALLEST, LARGEST, POINTS_PER_INCH, CHARACTER_WIDTH = 5.0, 8.0, 72, 0.62


@dataclass(frozen=True)
class Sheet:
    """Where things go: `maps` rows and columns of squares `side` wide, room for names, and the panel below."""

    rows: int
    columns: int
    side: float
    names: float
    low: float

    @property
    def maps_height(self) -> float:
        return HEADING + self.rows * (self.side + STEP_TITLE) + self.names

    @property
    def height(self) -> float:
        return self.maps_height + (HEADING + self.low + self.names if self.low else 0)

    def axes(self, figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        return figure.add_axes((left / WIDTH, bottom / self.height, width / WIDTH, height / self.height))


def plot_explanation(explanation: Explanation, path: str | os.PathLike, head: int | None = None) -> Path:
    """Draw the steps that were taken, at most `MAX_MAPS`, of one head or of the greatest weight over heads.

    The panel below shows gates or, where there are none, halting probabilities; a line ends each token's steps.

    Raises:
        ValueError: more than `MAX_TOKENS` tokens, or no such head.
    """
    length, steps = len(explanation.tokens), min(explanation.num_steps, MAX_MAPS)
    if length > MAX_TOKENS:
        raise ValueError(f"explanation has {length} tokens, but only {MAX_TOKENS} can be drawn: explain a shorter text")
    idle = explanation.idle()[:steps]
    view = np.where(idle[..., None], np.nan, explanation.view(head)[:steps])
    low = explanation.halting if explanation.gates is None else np.where(idle, np.nan, explanation.gates[:steps])
    sheet = sheet_for([shorten(token) for token in explanation.tokens], steps, low is not None)
    figure = Figure(figsize=(WIDTH, sheet.height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    draw_maps(figure, sheet, view, explanation, heading(explanation, head, steps))
    if low is not None:
        draw_low(figure, sheet, low[:steps], explanation)
    return save(figure, path)


def sheet_for(names: list[str], steps: int, has_low: bool) -> Sheet:
    columns = next(columns for most, columns in MAP_COLUMNS if len(names) <= most)
    room = max(0.1 + max(map(len, names)) * CHARACTER_WIDTH * LARGEST / POINTS_PER_INCH, STEP_AXIS)
    side = (WIDTH - room - 2 * EDGE - GAP * (columns - 1)) / columns
    return Sheet(math.ceil(steps / columns), columns, side, room, STEP_HEIGHT * max(steps, 4) if has_low else 0.0)


def heading(explanation: Explanation, head: int | None, steps: int) -> str:
    num_heads = explanation.attention.shape[1]
    which = f"head {head}" if head is not None else f"greatest of {num_heads} heads" if num_heads > 1 else "one head"
    part = "" if steps == explanation.num_steps else f", first {steps} of {explanation.num_steps} steps"
    share = "" if explanation.probability is None else f" ({explanation.probability:.1%})"
    what = f"{'next token' if explanation.continues else 'prediction'} {shorten(explanation.prediction)}{share}"
    return f"Attention, row reads from column ({which}{part}); {what}"


def colours(name: str) -> Colormap:
    """A sequential map from light to dark, and grey where a token takes no step."""
    return colormaps[name].with_extremes(bad=IDLE_GREY)


def draw_maps(figure: Figure, sheet: Sheet, view: np.ndarray, explanation: Explanation, text: str) -> None:
    steps = len(view)
    for step in range(steps):
        row, column = divmod(step, sheet.columns)
        left = EDGE + sheet.names + column * (sheet.side + GAP)
        top = HEADING + row * (sheet.side + STEP_TITLE) + STEP_TITLE
        axes = sheet.axes(figure, left, top, sheet.side, sheet.side)
        image = axes.imshow(view[step], cmap=colours("Blues"), vmin=0, vmax=1, interpolation="nearest", aspect="auto")
        axes.set_title(f"step {step + 1}", fontsize=8, pad=3)
        # the last map of each column has the names of what is read
        name_tokens(axes, explanation.tokens, sheet.side, step + sheet.columns >= steps, column == 0)
    title_and_scale(figure, sheet, 0.0, text, image)


def name_tokens(axes: Axes, tokens: list[str], side: float, below: bool, left: bool) -> None:
    """Names beside a map `side` wide, of every token or of every n-th where they would overlap."""
    points = side * POINTS_PER_INCH / len(tokens)
    places = range(0, len(tokens), math.ceil(SMALLEST / points))
    names, font = [shorten(tokens[place]) for place in places], min(max(points, SMALLEST), LARGEST)
    for wanted, ticks, options in ((below, axes.set_xticks, {"rotation": 90}), (left, axes.set_yticks, {})):
        if wanted:
            ticks(places, names, fontsize=font, parse_math=False, **options)
        else:
            ticks([])
    axes.tick_params(length=0, pad=2)


def title_and_scale(figure: Figure, sheet: Sheet, top: float, text: str, image: Any) -> None:
    """A panel's heading, and at its right what its colours mean."""
    figure.text(EDGE / WIDTH, 1 - (top + 0.25) / sheet.height, text, fontsize=9, va="center", parse_math=False)
    scale = figure.colorbar(
        image, cax=sheet.axes(figure, WIDTH - EDGE - 1.5, top + 0.14, 1.4, 0.1), orientation="horizontal"
    )
    scale.set_ticks([0, 0.5, 1], labels=["0", "0.5", "1"], fontsize=6)
    scale.ax.tick_params(length=2, pad=1)


def draw_low(figure: Figure, sheet: Sheet, values: np.ndarray, explanation: Explanation) -> None:
    """Gates or halting probabilities (T, S), and a line below the last step that each token kept."""
    steps, length = values.shape
    text = "Halting probability" if explanation.gates is None else "Gates: mean share of a state that is overwritten"
    left, top = EDGE + sheet.names, sheet.maps_height
    axes = sheet.axes(figure, left, top + HEADING, WIDTH - left - EDGE, sheet.low)
    image = axes.imshow(values, aspect="auto", cmap=colours("Oranges"), vmin=0, vmax=1, interpolation="nearest")
    axes.set_ylabel("step", fontsize=8)
    # the first step stands at row 0
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    axes.yaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
    axes.set_xticks(range(length), [shorten(token) for token in explanation.tokens], rotation=90, parse_math=False)
    axes.tick_params(labelsize=7, length=2)
    if explanation.steps is not None:
        text += "; the line ends the steps of each token"
        ends, places = np.minimum(explanation.steps, steps) - 0.5, np.arange(length)
        axes.hlines(ends, places - 0.45, places + 0.45, color=BLUE, linewidth=2.5, clip_on=False)
    axes.set_ylim(steps - 0.5, -0.5)
    title_and_scale(figure, sheet, top, text, image)
