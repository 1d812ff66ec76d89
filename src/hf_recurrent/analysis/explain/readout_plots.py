"""The figure of a readout trace, of pixels or of bytes: where steps are spent, and what the readout attends to.

A picture is drawn with maps of each step below it; a text as its letters, coloured by steps or by attention.
Shapes: T steps or layers, a picture of `side` x `side` pixels, n bytes of a text, `LINE` bytes a line.
"""

import math
import os
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.image import AxesImage

from ...templating import percent
from ..figures import GREY
from .canvas import PIXELS, Canvas, NotDrawableError
from .page import (
    BARS_BELOW,
    BARS_HEIGHT,
    EDGE,
    GAP,
    HEADING,
    UNIT,
    WIDTH,
    Page,
    colours,
    draw_bars,
    numbered,
    pale_colours,
    steps_colours,
)
from .readout import ReadoutTrace

# maps of steps that are drawn, and how many stand side by side
MAX_MAPS, COLUMNS = 16, 8
LARGE, TITLE = 2.2, 0.2
SMALL = (WIDTH - 2 * EDGE - GAP * (COLUMNS - 1)) / COLUMNS
# bytes that are drawn, of all texts of an example, and in each line
MAX_BYTES, LINE = 2000, 100
LINE_HEIGHT, BARS_WIDTH = 0.17, 4.0
LETTERS = {
    "text": {"fontsize": 8, "color": "black"},
    "mark": {"fontsize": 8, "color": GREY},
    "hex": {"fontsize": 4.5, "color": "#702459"},
}
FONT = "DejaVu Sans Mono"
CONTINUES = "\u00b7"
NAMED = {"\n": "\u21b5", "\t": "\u2192", "\r": "\u2190"}


def plot_readout(trace: ReadoutTrace, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw an example; see `plot_pixels` and `plot_bytes`."""
    return (plot_pixels if canvas.kind == PIXELS else plot_bytes)(trace, canvas, path)


def format_prediction(trace: ReadoutTrace) -> str:
    share = "" if trace.probability is None else f" ({percent(trace.probability)})"
    return f"; prediction {trace.prediction}{share}"


def plot_pixels(trace: ReadoutTrace, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw each picture, where its steps are spent, and the readout's attention, at most `MAX_MAPS` steps of it."""
    number = 0 if trace.attention is None else min(len(trace.attention), MAX_MAPS)
    above = HEADING + LARGE + GAP
    height = above + (HEADING + math.ceil(number / COLUMNS) * (SMALL + TITLE) if number else 0.0)
    page = Page(height * len(canvas.columns) + EDGE)
    for text in range(len(canvas.columns)):
        draw_picture(page, text * height, trace, canvas, text)
        if number:
            draw_attention(page, text * height + above, trace, canvas, text)
    return page.save(path)


def draw_picture(page: Page, top: float, trace: ReadoutTrace, canvas: Canvas, text: int) -> None:
    """Draw the picture, and beside it its steps."""
    side = canvas.sides[text]
    name = f"{numbered('Picture', text, len(canvas.columns))}, {side} x {side} pixels"
    page.heading(top, name + ("" if text else format_prediction(trace)))
    axes = page.axes(EDGE, top + HEADING, LARGE, LARGE)
    pixels = canvas.shaped(canvas.values[text], text)
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=canvas.brightest, interpolation="nearest")
    axes.set_axis_off()
    left = EDGE + LARGE + 3 * GAP
    if trace.unit in ("token", "chunk"):
        taken = canvas.select(trace.steps, text)
        axes = page.axes(left, top + HEADING, LARGE, LARGE)
        max_depth = max(trace.num_steps, 1)
        image = axes.imshow(
            taken, cmap=steps_colours(max_depth), vmin=-0.5, vmax=max_depth + 0.5, interpolation="nearest"
        )
        axes.set_axis_off()
        page.steps_scale(top, image, max_depth)
        owner = "of each pixel" if trace.unit == "token" else "of the chunk of each pixel"
        page.note(
            left + LARGE + 2 * GAP,
            top + HEADING,
            f"Steps {owner}:\n{taken.min()} to {taken.max()}, {taken.mean():.2f} on average",
        )
    elif trace.unit is not None:
        column = canvas.columns[text][0]
        taken = int(trace.steps[column])
        draw_bars(page, left, top + HEADING + 0.3, WIDTH - left - EDGE, trace.halting[:, column], taken)
        page.note(left, top + HEADING, f"Halting probability of each step: {taken} taken and kept")
    else:
        page.note(left, top + HEADING, "A fixed depth: nothing halts")


def draw_attention(page: Page, top: float, trace: ReadoutTrace, canvas: Canvas, text: int) -> None:
    maps, total = canvas.select(trace.relative, text)[:MAX_MAPS], len(trace.attention)
    shown = "" if len(maps) == total else f", first {len(maps)} of {total} {trace.stage}s"
    page.heading(top, f"Attention from the readout, {trace.reader}{shown}; {UNIT}")
    for number, weights in enumerate(maps):
        # colours of its own for each map: one that attends to a single pixel would leave the others blank
        limit = float(np.nan_to_num(weights).max())
        row, column = divmod(number, COLUMNS)
        below = HEADING + row * (SMALL + TITLE) + TITLE
        axes = page.axes(EDGE + column * (SMALL + GAP), top + below, SMALL, SMALL)
        axes.set_title(f"{trace.stage} {number + 1}" + (f": up to {limit:.3g}" if limit else ""), fontsize=7, pad=2)
        axes.set_xticks([])
        axes.set_yticks([])
        image = axes.imshow(weights, cmap=colours("Oranges"), vmin=0, vmax=limit or 1.0, interpolation="nearest")
    # the bar serves all maps
    page.scale(top, image, [0, image.get_clim()[1]], ["0", "most"])


def plot_bytes(trace: ReadoutTrace, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw each text, `MAX_BYTES` in all, over the steps of its bytes or chunks, or the readout's attention.

    Steps where bytes or chunks halt by themselves. Otherwise, attention in the last step or layer; a text that halts as
    a whole has its halting probabilities below.

    Raises:
        NotDrawableError: there is neither.
    """
    by_steps, bars = trace.unit in ("token", "chunk"), trace.unit in ("row", "sentence")
    if not by_steps and trace.attention is None:
        raise NotDrawableError("bytes that halt together, of a model whose attention is not known, have no colours")
    shown = bytes_to_draw([len(values) for values in canvas.values])
    below = HEADING + BARS_HEIGHT + BARS_BELOW if bars else 0.0
    heights = [HEADING + math.ceil(count / LINE) * LINE_HEIGHT for count in shown]
    page, top = Page(sum(height + below for height in heights) + EDGE), 0.0
    for text, (count, height) in enumerate(zip(shown, heights, strict=True)):
        draw_text(page, top, trace, canvas, text, count)
        top += height
        if bars:
            column = canvas.columns[text][0]
            page.heading(top, f"Halting probability of each step, {int(trace.steps[column])} taken and kept")
            draw_bars(page, EDGE, top + HEADING, BARS_WIDTH, trace.halting[:, column], int(trace.steps[column]))
            top += below
    return page.save(path)


def bytes_to_draw(lengths: list[int]) -> list[int]:
    """Numbers of bytes that are drawn of each text: `MAX_BYTES` in all, shared evenly between long texts."""
    drawn, left = [0] * len(lengths), MAX_BYTES
    for rank, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        drawn[place] = min(lengths[place], left // (len(lengths) - rank))
        left -= drawn[place]
    return drawn


def draw_text(page: Page, top: float, trace: ReadoutTrace, canvas: Canvas, text: int, count: int) -> None:
    """Draw the first `count` bytes of one text over their colours."""
    length, own, lines = len(canvas.values[text]), canvas.columns[text][:count], math.ceil(count / LINE)
    axes = page.axes(EDGE, top + HEADING, WIDTH - 2 * EDGE, lines * LINE_HEIGHT)
    cells = np.full(lines * LINE, np.nan)
    if trace.unit in ("token", "chunk"):
        name, limit = "steps" if trace.unit == "token" else "steps of each chunk", max(trace.num_steps, 1)
        cells[:count] = trace.steps[own]
        image = draw_cells(axes, cells, steps_colours(limit, pale=True), (-0.5, limit + 0.5))
        page.steps_scale(top, image, limit)
    else:
        stage = trace.last_attended(canvas.columns[text])
        name = "no attention" if stage is None else f"attention from the readout in {trace.stage} {stage + 1}, {UNIT}"
        if stage is not None:
            cells[:count] = trace.relative[stage, own]
        limit = float(np.nan_to_num(cells).max()) or 1.0
        image = draw_cells(axes, cells, pale_colours(), (0.0, limit))
        page.scale(top, image, [0, limit / 2, limit], ["0", f"{limit / 2:.3g}", f"{limit:.3g}"])
    size = f"{length:,} byte{'' if length == 1 else 's'}"
    size = size if count == length else f"the first {count:,} of {size}"
    heading = f"{numbered('Text', text, len(canvas.columns))}, {size}: {name}"
    page.heading(top, heading + ("" if text else format_prediction(trace)))
    for place, (letter, kind) in enumerate(letters_of(canvas.values[text][:count])):
        if not letter.isspace():
            row, column = divmod(place, LINE)
            axes.text(column, row, letter, family=FONT, ha="center", va="center", parse_math=False, **LETTERS[kind])
    if trace.chunks is not None:
        row, column = np.divmod(np.flatnonzero(np.diff(trace.chunks[own])), LINE)
        axes.vlines(column + 0.5, row - 0.5, row + 0.5, color="black", linewidth=1)


def draw_cells(axes: Axes, cells: np.ndarray, palette: Colormap, limits: tuple[float, float]) -> AxesImage:
    axes.set_axis_off()
    return axes.imshow(
        cells.reshape(-1, LINE), cmap=palette, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest"
    )


def letters_of(content: np.ndarray) -> list[tuple[str, str]]:
    """(n,) bytes -> n letters, and kinds: "text"; "mark", for a byte without a letter of its own; or "hex".

    A character of several bytes stands at the first, with a dot at each other. Line ends and tabs have marks; a byte of
    no character, of a control character or of one that the font lacks is shown in hexadecimal.
    """
    known = font_manager.get_font(font_manager.findfont(FONT))
    letters: list[tuple[str, str]] = []
    # bytes that are no UTF-8 become surrogates, one for each byte
    for character in content.astype(np.uint8).tobytes().decode("utf-8", "surrogateescape"):
        encoded = character.encode("utf-8", "surrogateescape")
        if character in NAMED:
            letters.append((NAMED[character], "mark"))
        elif character.isprintable() and known.get_char_index(ord(character)) > 0:
            letters.append((character, "text"))
            letters += [(CONTINUES, "mark")] * (len(encoded) - 1)
        else:
            letters += [(f"{byte:02x}", "hex") for byte in encoded]
    return letters
