"""The figure of an explanation.

A text has an attention map for each step, and below them gates, or halting, by step and token. A picture has a map of
the steps of its pixels, and maps of the attention of the tokens that are read out.

Sizes are in inches: matplotlib's layout engines take seconds for many small maps.
"""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from ...utils import percent
from ..plots import BLUE, DOTS_PER_INCH, number_axis, save, shorten
from .explanation import MAX_TOKENS, Explanation

WIDTH, HEADING = 8.8, 0.65
# steps that are drawn, and how many maps stand side by side by the number of tokens
MAX_MAPS = 32
MAP_COLUMNS = ((8, 7), (16, 5), (MAX_TOKENS, 3))
# of pictures
MAX_READS, PICTURE_COLUMNS = 16, 6
# of names of tokens: points, inches of a character, and of a line
FONT_SIZE, CHARACTER, LINE = 6.5, 0.06, 0.1
# light to dark, and grey where a token takes no step
ATTENTION, OTHER = (colormaps[name].with_extremes(bad="#e2e8f0") for name in ("Blues", "Oranges"))
SHARES: dict[str, Any] = {"vmin": 0, "vmax": 1, "aspect": "auto", "interpolation": "nearest"}


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
    names = 0.35 + max(map(len, tokens)) * CHARACTER
    columns = next(columns for limit, columns in MAP_COLUMNS if length <= limit)
    rows, side = math.ceil(steps / columns), (WIDTH - names) / columns
    heights = [HEADING + rows * side + names, HEADING + 0.17 * max(steps, 4) + names]
    above, *below = new_parts(heights if by_token is not None else heights[:1])
    # of every token, or of every n-th where names would overlap
    marked = range(0, length, math.ceil(length * LINE / side))
    look = {"labels": [tokens[place] for place in marked], "fontsize": FONT_SIZE, "parse_math": False}
    for step, axes in enumerate(grid(above, heights[0], steps, columns, names)):
        image = axes.imshow(attention[step], cmap=ATTENTION, **SHARES)
        axes.set_title(f"step {step + 1}", fontsize=7, pad=2)
        # the last map of each column has the names of the tokens that are attended to
        if step + columns >= steps:
            axes.set_xticks(marked, rotation=90, **look)
        if step % columns == 0:
            axes.set_yticks(marked, **look)
        axes.tick_params(length=0, pad=2)
    which = f"head {head}" if head is not None else f"greatest of {num_heads} heads" if num_heads > 1 else "one head"
    part = "" if steps == found.num_steps else f", first {steps} of {found.num_steps} steps"
    write_heading(above, heights[0], f"Attention, row reads from column ({which}{part}){answer(found)}", image)
    if by_token is not None:
        (axes,) = grid(below[0], heights[1], 1, 1, names)
        extent = -0.5, length - 0.5, steps + 0.5, 0.5
        image = axes.imshow(by_token[:steps], cmap=OTHER, extent=extent, **SHARES)
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
        write_heading(below[0], heights[1], text, image)
    return above.figure


def draw_pictures(found: Explanation) -> Figure:
    """Each picture, the steps of its pixels, and at most `MAX_READS` maps of attention from the tokens read out."""
    shown = min(found.num_steps, MAX_READS) if found.readers.any() else 0
    number_maps = 1 + (found.steps is not None) + shown
    height = HEADING + math.ceil(number_maps / PICTURE_COLUMNS) * WIDTH / PICTURE_COLUMNS
    parts = new_parts([height] * len(found.pictures))
    for number, (picture, part) in enumerate(zip(found.pictures, parts, strict=True)):
        # title, values, colours and the largest value
        maps: list[tuple] = [("pixels", picture.values, "gray", picture.values.max() or 1)]
        if found.steps is not None:
            taken = picture.square(found.steps)
            title = f"steps: {taken.min()} to {taken.max()}, mean {taken.mean():.2f}"
            maps.append((title, taken, "Blues", found.num_steps))
        for step, weights in enumerate(picture.square(found.reads)[:shown], 1):
            # colours of its own for each map: one that attends to a single pixel would leave the others blank
            most = np.nan_to_num(weights).max()
            title = f"{found.stage} {step}" + (f": up to {most:.3g}" if most else "")
            maps.append((title, weights, OTHER, most or 1.0))
        squares = grid(part, height, len(maps), PICTURE_COLUMNS)
        for axes, (title, values, colours, most) in zip(squares, maps, strict=True):
            axes.imshow(values, cmap=colours, **{**SHARES, "vmax": most})
            axes.set_title(title, fontsize=7, pad=2)
        name = f"Picture {number + 1}" if len(parts) > 1 else "Picture"
        size = " x ".join(map(str, picture.values.shape))
        read = f"; attention from {found.reader}, 1 is an even share" if shown else ""
        write_heading(part, height, f"{name}, {size} pixels{'' if number else answer(found)}{read}")
    return part.figure


def new_parts(heights: list[float]) -> list[SubFigure]:
    """Parts of a white sheet, `WIDTH` wide, below each other."""
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0].tolist()


def grid(part: SubFigure, height: float, number: int, columns: int, names: float = 0.1) -> list[Axes]:
    """Axes without ticks in rows, in a part of this height, below its heading and with room for names."""
    place = {"left": names / WIDTH, "right": 0.99, "top": 1 - HEADING / height, "bottom": names / height}
    gaps = {"wspace": 0.08, "hspace": 0.15}
    axes = part.subplots(math.ceil(number / columns), columns, squeeze=False, gridspec_kw=place | gaps).ravel()
    for square in axes:
        square.set(xticks=[], yticks=[])
    for unused in axes[number:]:
        unused.remove()
    return axes[:number].tolist()


def write_heading(part: SubFigure, height: float, text: str, image: AxesImage | None = None) -> None:
    """A line of text and, at its right, the meaning of an image's colours."""
    part.text(0.015, 1 - 0.25 / height, text, fontsize=9, va="center", parse_math=False)
    if image is not None:
        colours = part.add_axes((0.83, 1 - 0.25 / height, 0.16, 0.1 / height))
        bar = part.colorbar(image, cax=colours, orientation="horizontal", ticks=(0, 0.5, 1), format="%.3g")
        bar.ax.tick_params(length=2, pad=1, labelsize=6)


def answer(found: Explanation) -> str:
    share = "" if found.probability is None else f" ({percent(found.probability)})"
    return f"; {'next token' if found.predicts_next else 'prediction'} {shorten(found.prediction)}{share}"
