"""The figure of an explanation.

A text has an attention map for each step, and below them gates, or halting, by step and token. A picture has a map of
the steps of its pixels, and maps of the attention of the tokens that are read out.

Everything is placed by hand, from the top, in inches: matplotlib's layout engines take seconds for many small maps.

Shapes: T steps or layers, S tokens.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from ...templating import percent
from ..plots import BLUE, DOTS_PER_INCH, number_axis, save, shorten
from .explanation import MAX_TOKENS, Explanation

WIDTH, EDGE, GAP, HEADING, TITLE = 8.8, 0.12, 0.1, 0.5, 0.22
# steps that are drawn, and how many maps stand side by side by the number of tokens
MAX_MAPS = 32
MAP_COLUMNS = ((8, 7), (16, 5), (MAX_TOKENS, 3))
# points of names, and inches of a character of the largest
SMALLEST, LARGEST, POINTS_PER_INCH = 5.0, 8.0, 72
CHARACTER = 0.62 * LARGEST / POINTS_PER_INCH
# of pictures
MAX_READS, PICTURE_COLUMNS = 16, 6
PICTURE_SIDE = (WIDTH - 2 * EDGE - GAP * (PICTURE_COLUMNS - 1)) / PICTURE_COLUMNS
# light to dark, and grey where a token takes no step
ATTENTION, OTHER = (colormaps[name].with_extremes(bad="#e2e8f0") for name in ("Blues", "Oranges"))


class Square(NamedTuple):
    """A map with a title; `look` are arguments of `imshow`."""

    title: str
    values: np.ndarray
    look: dict[str, Any]


def plot_explanation(found: Explanation, path: str | os.PathLike, head: int | None = None) -> Path:
    """Draw an explanation; of all attention, that of one head or the greatest weight over heads.

    Raises:
        ValueError: more than `MAX_TOKENS` tokens of a text, or no such head.
    """
    return save(draw_pictures(found) if found.pictures else draw_tokens(found, head), path)


def draw_tokens(found: Explanation, head: int | None) -> Figure:
    """The steps that were taken, at most `MAX_MAPS`; below them gates, or halting probabilities without gates."""
    tokens, steps = [shorten(token) for token in found.tokens], min(found.num_steps, MAX_MAPS)
    length, num_heads = len(tokens), found.attention.shape[1]
    if length > MAX_TOKENS:
        raise ValueError(f"explanation has {length} tokens, but only {MAX_TOKENS} can be drawn: explain a shorter text")
    idle = found.idle()[:steps]
    attention = np.where(idle[..., None], np.nan, found.head_attention(head)[:steps])
    by_token = found.halting if found.gates is None else np.where(idle, np.nan, found.gates[:steps])
    names = max(0.1 + max(map(len, tokens)) * CHARACTER, 0.35)
    columns = next(columns for limit, columns in MAP_COLUMNS if length <= limit)
    side, panel = (WIDTH - names - 2 * EDGE - GAP * (columns - 1)) / columns, 0.17 * max(steps, 4)
    below = HEADING + math.ceil(steps / columns) * (side + TITLE) + names
    figure = new_figure(below + (0 if by_token is None else HEADING + panel + names))
    squares = [Square(f"step {step + 1}", attention[step], {"cmap": ATTENTION, "vmax": 1}) for step in range(steps)]
    # names of every token, or of every n-th where they would overlap
    points = side * POINTS_PER_INCH / length
    marked = range(0, length, math.ceil(SMALLEST / points))
    look = {"labels": [tokens[place] for place in marked], "fontsize": min(max(points, SMALLEST), LARGEST)}
    for step, image in enumerate(draw_squares(figure, (EDGE + names, HEADING), squares, columns, side)):
        # the last map of each column has the names of the tokens that are attended to
        if step + columns >= steps:
            image.axes.set_xticks(marked, rotation=90, parse_math=False, **look)
        if step % columns == 0:
            image.axes.set_yticks(marked, parse_math=False, **look)
        image.axes.tick_params(length=0, pad=2)
    which = f"head {head}" if head is not None else f"greatest of {num_heads} heads" if num_heads > 1 else "one head"
    part = "" if steps == found.num_steps else f", first {steps} of {found.num_steps} steps"
    write_heading(figure, 0.0, f"Attention, row reads from column ({which}{part}){answer(found)}", image)
    if by_token is not None:
        axes = area(figure, EDGE + names, below + HEADING, WIDTH - names - 2 * EDGE, panel)
        extent = -0.5, length - 0.5, steps + 0.5, 0.5
        image = axes.imshow(by_token[:steps], cmap=OTHER, vmin=0, vmax=1, aspect="auto", extent=extent)
        axes.set_ylabel("step", fontsize=8)
        number_axis(axes.yaxis)
        axes.set_xticks(range(length), tokens, rotation=90, parse_math=False)
        axes.tick_params(labelsize=7, length=2)
        text = "Halting probability" if found.gates is None else "Gates: mean share of a state that is overwritten"
        if found.steps is not None:
            text += "; the line ends the steps of each token"
            places, ends = np.arange(length), np.minimum(found.steps, steps) + 0.5
            axes.hlines(ends, places - 0.45, places + 0.45, color=BLUE, linewidth=2.5, clip_on=False)
        axes.set_ylim(steps + 0.5, 0.5)
        write_heading(figure, below, text, image)
    return figure


def draw_pictures(found: Explanation) -> Figure:
    """Each picture, the steps of its pixels, and at most `MAX_READS` maps of attention from the tokens read out."""
    rows = []
    for text, picture in enumerate(found.pictures):
        squares = [Square("pixels", picture.values, {"cmap": "gray", "vmax": picture.brightest})]
        if found.steps is not None:
            taken = picture.square(found.steps)
            title = f"steps: {taken.min()} to {taken.max()}, mean {taken.mean():.2f}"
            squares.append(Square(title, taken, {"cmap": "Blues", "vmax": found.num_steps}))
        if found.readers.any():
            for step, weights in enumerate(picture.square(found.reads)[: min(found.num_steps, MAX_READS)], 1):
                # colours of its own for each map: one that attends to a single pixel would leave the others blank
                most = np.nan_to_num(weights).max()
                title = f"{found.stage} {step}" + (f": up to {most:.3g}" if most else "")
                squares.append(Square(title, weights, {"cmap": OTHER, "vmax": most or 1.0}))
        name = f"Picture {text + 1}" if len(found.pictures) > 1 else "Picture"
        side = len(picture.values)
        read = f"; attention from {found.reader}, 1 is an even share" if found.readers.any() else ""
        rows.append((f"{name}, {side} x {side} pixels{'' if text else answer(found)}{read}", squares))
    heights = [HEADING + math.ceil(len(squares) / PICTURE_COLUMNS) * (PICTURE_SIDE + TITLE) for _, squares in rows]
    figure, top = new_figure(sum(heights) + EDGE), 0.0
    for (heading, squares), height in zip(rows, heights, strict=True):
        write_heading(figure, top, heading)
        draw_squares(figure, (EDGE, top + HEADING), squares, PICTURE_COLUMNS, PICTURE_SIDE)
        top += height
    return figure


def new_figure(height: float) -> Figure:
    """A white sheet of `WIDTH` x `height` inches."""
    figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def area(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the top."""
    whole = figure.get_figheight()
    return figure.add_axes((left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole))


def draw_squares(
    figure: Figure, corner: tuple[float, float], squares: Sequence[Square], columns: int, side: float
) -> list[AxesImage]:
    """Maps `side` wide below their titles, in rows of so many columns from a corner at (left, top)."""
    images = []
    for number, square in enumerate(squares):
        row, column = divmod(number, columns)
        axes = area(figure, corner[0] + column * (side + GAP), corner[1] + row * (side + TITLE) + TITLE, side, side)
        axes.set_title(square.title, fontsize=7, pad=2)
        axes.set(xticks=[], yticks=[])
        images.append(axes.imshow(square.values, vmin=0, interpolation="nearest", aspect="auto", **square.look))
    return images


def write_heading(figure: Figure, top: float, text: str, image: AxesImage | None = None) -> None:
    """A line of text and, at its right, the meaning of an image's colours."""
    place = EDGE / WIDTH, 1 - (top + HEADING / 2) / figure.get_figheight()
    figure.text(*place, text, fontsize=9, va="center", parse_math=False)
    if image is not None:
        colours = area(figure, WIDTH - EDGE - 1.5, top + 0.14, 1.4, 0.1)
        bar = figure.colorbar(image, cax=colours, orientation="horizontal", ticks=(0, 0.5, 1), format="%.3g")
        bar.ax.tick_params(length=2, pad=1, labelsize=6)


def answer(found: Explanation) -> str:
    share = "" if found.probability is None else f" ({percent(found.probability)})"
    return f"; {'next token' if found.predicts_next else 'prediction'} {shorten(found.prediction)}{share}"
