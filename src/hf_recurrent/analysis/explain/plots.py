"""The figure of an explanation.

A short text has an attention map for each step, and below them gates, or halting, by step and token. A picture has a
map of where its steps are spent, and maps of the readout's attention. Bytes are letters, coloured by steps or reads.

Everything is placed by hand, from the top, in inches: matplotlib's layout engines take seconds for many small maps.

Shapes: T steps or layers, S tokens, n bytes of a text, `LINE` bytes a line.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from ...templating import percent
from ..plots import BLUE, DOTS_PER_INCH, number_axis, save, shorten
from .canvas import PIXELS, NotDrawableError
from .explanation import MAX_TOKENS, Explanation

WIDTH, EDGE, GAP, HEADING, TITLE = 8.8, 0.12, 0.1, 0.5, 0.22
# steps that are drawn, and how many maps stand side by side by the number of tokens
MAX_MAPS = 32
MAP_COLUMNS = ((8, 7), (16, 5), (MAX_TOKENS, 3))
# points of names, and inches of a character of the largest
SMALLEST, LARGEST, POINTS_PER_INCH = 5.0, 8.0, 72
CHARACTER = 0.62 * LARGEST / POINTS_PER_INCH
# of the readout's attention
MAX_READS, READ_COLUMNS, PICTURE = 16, 8, 2.2
READ_SIDE = (WIDTH - 2 * EDGE - GAP * (READ_COLUMNS - 1)) / READ_COLUMNS
EVEN = "1 is an even share"
# bytes that are drawn, of all texts of an example, and in each line
MAX_BYTES, LINE, LINE_HEIGHT = 2000, 100, 0.17
# fraction of a colour map's range that leaves black letters readable
PALE = 0.6
LOOK = {"interpolation": "nearest", "aspect": "auto"}
FONT = "DejaVu Sans Mono"
MARKS = {"\n": "\u21b5", "\t": "\u2192", "\r": "\u2190"}
CONTINUES, UNKNOWN = "\u00b7", "\u25af"


class Page:
    """A white sheet of `WIDTH` x `height` inches."""

    def __init__(self, height: float):
        self.height = height
        self.figure = Figure(figsize=(WIDTH, height), dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        return self.figure.add_axes((left / WIDTH, bottom / self.height, width / WIDTH, height / self.height))

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        style = {"fontsize": 8, "va": "top", "parse_math": False, **style}
        self.figure.text(left / WIDTH, 1 - top / self.height, text, **style)

    def heading(
        self, top: float, text: str, image: AxesImage | None = None, ticks: Any = (0, 0.5, 1), names: Any = None
    ) -> None:
        """A line of text and, at its right, the meaning of an image's colours."""
        self.text(EDGE, top + 0.25, text, fontsize=9, va="center")
        if image is not None:
            place = self.axes(WIDTH - EDGE - 1.5, top + 0.14, 1.4, 0.1)
            bar = self.figure.colorbar(image, cax=place, orientation="horizontal", ticks=ticks, format="%.3g")
            if names:
                bar.set_ticklabels(names)
            bar.ax.tick_params(length=2, pad=1, labelsize=6)

    def picture(self, place: tuple[float, float, float, float], values: np.ndarray, **look: Any) -> AxesImage:
        """Values as colours without axes, at (left, top, width, height)."""
        axes = self.axes(*place)
        axes.set_axis_off()
        return axes.imshow(values, **LOOK, **look)

    def maps(self, left: float, top: float, columns: int, titles: Sequence[str], side: float) -> list[Axes]:
        """Squares `side` wide below titles, in rows of so many columns."""
        squares = []
        for number, title in enumerate(titles):
            row, column = divmod(number, columns)
            place = left + column * (side + GAP), top + row * (side + TITLE) + TITLE
            squares.append(self.axes(*place, side, side))
            squares[-1].set_title(title, fontsize=7, pad=2)
            squares[-1].set(xticks=[], yticks=[])
        return squares

    def steps(self, place: tuple, values: np.ndarray, found: Explanation, darkest: float = 1.0) -> dict[str, Any]:
        """Numbers of steps as colours -> the arguments of their `heading`."""
        most = found.num_steps
        shades = ListedColormap(colormaps["Blues"](np.linspace(0.05, darkest, most + 1))).with_extremes(bad="white")
        image = self.picture(place, values, cmap=shades, vmin=-0.5, vmax=most + 0.5)
        return {"image": image, "ticks": MaxNLocator(integer=True, nbins=8)}


def plot_explanation(found: Explanation, path: str | os.PathLike, head: int | None = None) -> Path:
    """Draw an explanation; of all attention, that of one head or the greatest weight over heads.

    Raises:
        ValueError: more than `MAX_TOKENS` tokens of a text, or no such head.
        NotDrawableError: bytes of which neither steps nor attention can be shown.
    """
    if found.canvas is None:
        page = plot_maps(found, head)
    else:
        page = (plot_pixels if found.canvas.kind == PIXELS else plot_bytes)(found)
    return save(page.figure, path)


def plot_maps(found: Explanation, head: int | None) -> Page:
    """The steps that were taken, at most `MAX_MAPS`; below them gates, or halting probabilities without gates."""
    tokens, steps = [shorten(token) for token in found.tokens], min(found.num_steps, MAX_MAPS)
    length, num_heads = len(tokens), found.attention.shape[1]
    if length > MAX_TOKENS:
        raise ValueError(f"explanation has {length} tokens, but only {MAX_TOKENS} can be drawn: explain a shorter text")
    idle = found.idle()[:steps]
    attention = np.where(idle[..., None], np.nan, found.head_attention(head)[:steps])
    names = max(0.1 + max(map(len, tokens)) * CHARACTER, 0.35)
    columns = next(columns for limit, columns in MAP_COLUMNS if length <= limit)
    side = (WIDTH - names - 2 * EDGE - GAP * (columns - 1)) / columns
    below = HEADING + math.ceil(steps / columns) * (side + TITLE) + names
    gated, panel = found.gates is not None, 0.17 * max(steps, 4)
    by_token = np.where(idle, np.nan, found.gates[:steps]) if gated else found.halting
    page = Page(below + (0 if by_token is None else HEADING + panel + names))
    # of every token, or of every n-th where names would overlap
    points = side * POINTS_PER_INCH / length
    marked = range(0, length, math.ceil(SMALLEST / points))
    look = {"labels": [tokens[place] for place in marked], "fontsize": min(max(points, SMALLEST), LARGEST)}
    titles = [f"step {step + 1}" for step in range(steps)]
    for step, axes in enumerate(page.maps(EDGE + names, HEADING, columns, titles, side)):
        image = axes.imshow(attention[step], cmap=colours("Blues"), vmin=0, vmax=1, **LOOK)
        # the last map of each column has the names of the tokens that are attended to
        if step + columns >= steps:
            axes.set_xticks(marked, rotation=90, parse_math=False, **look)
        if step % columns == 0:
            axes.set_yticks(marked, parse_math=False, **look)
        axes.tick_params(length=0, pad=2)
    which = f"head {head}" if head is not None else f"greatest of {num_heads} heads" if num_heads > 1 else "one head"
    part = "" if steps == found.num_steps else f", first {steps} of {found.num_steps} steps"
    page.heading(0.0, f"Attention, row reads from column ({which}{part}){answer(found)}", image)
    if by_token is not None:
        axes = page.axes(EDGE + names, below + HEADING, WIDTH - names - 2 * EDGE, panel)
        extent = -0.5, length - 0.5, steps + 0.5, 0.5
        image = axes.imshow(by_token[:steps], cmap=colours("Oranges"), vmin=0, vmax=1, extent=extent, **LOOK)
        axes.set_ylabel("step", fontsize=8)
        number_axis(axes.yaxis)
        axes.set_xticks(range(length), tokens, rotation=90, parse_math=False)
        axes.tick_params(labelsize=7, length=2)
        text = "Gates: mean share of a state that is overwritten" if gated else "Halting probability"
        if found.steps is not None:
            text += "; the line ends the steps of each token"
            places, ends = np.arange(length), np.minimum(found.steps, steps) + 0.5
            axes.hlines(ends, places - 0.45, places + 0.45, color=BLUE, linewidth=2.5, clip_on=False)
        axes.set_ylim(steps + 0.5, 0.5)
        page.heading(below, text, image)
    return page


def plot_pixels(found: Explanation) -> Page:
    """Each picture, where its steps are spent, and the readout's attention, at most `MAX_READS` steps of it."""
    canvas, number = found.canvas, 0 if found.reads is None else min(len(found.reads), MAX_READS)
    above, left = HEADING + PICTURE + GAP, EDGE + PICTURE + 3 * GAP
    height = above + (HEADING + math.ceil(number / READ_COLUMNS) * (READ_SIDE + TITLE) if number else 0.0)
    page = Page(height * len(canvas.columns) + EDGE)
    for text, (own, values) in enumerate(zip(canvas.columns, canvas.values, strict=True)):
        start, pixels, scale = text * height, canvas.shaped(values), {}
        top = start + HEADING
        page.picture((EDGE, top, PICTURE, PICTURE), pixels, cmap="gray", vmin=0, vmax=canvas.brightest)
        if found.steps is None or found.halts_whole:
            page.text(left, top, halts(found, own) or "A fixed depth: nothing halts")
        else:
            taken = canvas.shaped(found.steps[own])
            scale = page.steps((left, top, PICTURE, PICTURE), taken, found)
            owner = "of each pixel" if found.unit == "token" else "of the chunk of each pixel"
            note = f"Steps {owner}:\n{taken.min()} to {taken.max()}, {taken.mean():.2f} on average"
            page.text(left + PICTURE + 2 * GAP, top, note)
        size = f"{len(pixels)} x {len(pixels)} pixels"
        page.heading(start, f"{named('Picture', found, text)}, {size}{'' if text else answer(found)}", **scale)
        if not number:
            continue
        maps = canvas.shaped(found.relative[:number, own])
        # colours of its own for each map: one that attends to a single pixel would leave the others blank
        limits = np.nan_to_num(maps).max((1, 2))
        titles = [
            f"{found.stage.split()[-1]} {at}" + (f": up to {limit:.3g}" if limit else "")
            for at, limit in enumerate(limits, 1)
        ]
        squares = page.maps(EDGE, start + above + HEADING, READ_COLUMNS, titles, READ_SIDE)
        for axes, weights, limit in zip(squares, maps, limits, strict=True):
            image = axes.imshow(weights, cmap=colours("Oranges"), vmin=0, vmax=limit or 1.0, **LOOK)
        shown = "" if number == len(found.reads) else f", first {number} of {len(found.reads)} {found.stage}s"
        reads = f"Attention from the readout, {found.reader}{shown}; {EVEN}"
        # the bar serves all maps
        page.heading(start + above, reads, image, [0, image.get_clim()[1]], ["0", "most"])
    return page


def plot_bytes(found: Explanation) -> Page:
    """The beginning of each text, over the steps of its bytes or chunks, or the readout's attention.

    Steps where bytes or chunks halt by themselves. Otherwise, attention in the last step or layer.
    """
    canvas, whole, texts = found.canvas, found.halts_whole, len(found.canvas.columns)
    if found.reads is None and (found.steps is None or whole):
        raise NotDrawableError("bytes that halt together, of a model whose attention is not known, have no colours")
    shown = [own[: MAX_BYTES // texts] for own in canvas.columns]
    heights = [HEADING + math.ceil(len(own) / LINE) * LINE_HEIGHT for own in shown]
    page, top = Page(sum(heights) + EDGE), 0.0
    for text, (own, height) in enumerate(zip(shown, heights, strict=True)):
        place, cells = (
            (EDGE, top + HEADING, WIDTH - 2 * EDGE, height - HEADING),
            np.full(-(-len(own) // LINE) * LINE, np.nan),
        )
        if found.steps is not None and not whole:
            what = "steps" if found.unit == "token" else "steps of each chunk"
            cells[: len(own)] = found.steps[own]
            scale = page.steps(place, cells.reshape(-1, LINE), found, PALE)
        else:
            # each text of a pair has its own last step
            attended, what = np.flatnonzero(~np.isnan(found.reads[:, canvas.columns[text]]).all(-1)), "no attention"
            if len(attended):
                what = f"attention from the readout in {found.stage} {attended[-1] + 1}, {EVEN}"
                cells[: len(own)] = found.relative[attended[-1], own]
            what = "; ".join(filter(None, (halts(found, own), what)))
            limit = float(np.nan_to_num(cells).max()) or 1.0
            # from nothing to an orange that is not too dark for letters
            palette = ListedColormap(colormaps["Oranges"](np.linspace(0.0, PALE, 256))).with_extremes(bad="white")
            image = page.picture(place, cells.reshape(-1, LINE), cmap=palette, vmin=0, vmax=limit)
            scale = {"image": image, "ticks": [0, limit / 2, limit]}
        length = len(canvas.columns[text])
        size = f"{length:,} byte{'' if length == 1 else 's'}"
        size = size if length == len(own) else f"the first {len(own):,} of {size}"
        page.heading(top, f"{named('Text', found, text)}, {size}: {what}{'' if text else answer(found)}", **scale)
        axes = scale["image"].axes
        for at, letter in enumerate(letters_of(canvas.values[text][: len(own)])):
            if letter != " ":
                row, column = divmod(at, LINE)
                axes.text(column, row, letter, family=FONT, fontsize=8, ha="center", va="center", parse_math=False)
        row, column = np.divmod(np.flatnonzero(np.diff(found.chunks[own])), LINE)
        axes.vlines(column + 0.5, row - 0.5, row + 0.5, color="black", linewidth=1)
        top += height
    return page


def letters_of(content: np.ndarray) -> list[str]:
    """(n,) bytes -> n letters.

    A character of several bytes is drawn at the first, with a dot at each other. Line ends and tabs have marks, and so
    has a byte of no character, of a control character or of one that the font lacks.
    """
    known, letters = font_manager.get_font(font_manager.findfont(FONT)), []
    # bytes that are no UTF-8 become surrogates, one for each byte
    for character in content.astype(np.uint8).tobytes().decode("utf-8", "surrogateescape"):
        shown = character.isprintable() and known.get_char_index(ord(character)) > 0
        letters.append(MARKS.get(character, character if shown else UNKNOWN))
        letters += CONTINUES * (len(character.encode("utf-8", "surrogateescape")) - 1)
    return letters


def halts(found: Explanation, own: np.ndarray) -> str:
    """When a text that halts as a whole does."""
    taken = int(found.steps[own[0]]) if found.halts_whole else 0
    return f"halts after {taken} step{'' if taken == 1 else 's'}" if found.halts_whole else ""


def colours(name: str) -> Colormap:
    """A sequential map from light to dark, and grey where a token takes no step."""
    return colormaps[name].with_extremes(bad="#e2e8f0")


def named(name: str, found: Explanation, text: int) -> str:
    """Such as "Text 2", if there are several."""
    return f"{name} {text + 1}" if len(found.canvas.columns) > 1 else name


def answer(found: Explanation) -> str:
    share = "" if found.probability is None else f" ({percent(found.probability)})"
    return f"; {'next token' if found.predicts_next else 'prediction'} {shorten(found.prediction)}{share}"
