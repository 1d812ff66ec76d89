"""The figure of a text that is read byte by byte: its letters, coloured by steps or by the readout's attention.

Shapes: n bytes of a text, T steps, `LINE` bytes a line.
"""

import math
import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.image import AxesImage

from ..halting.drawing import GREY
from .canvas import BYTES_OF_TEXT, Canvas, NotDrawableError
from .letters import FONT, letters_of
from .page import BARS_BELOW, BARS_HEIGHT, UNIT, Page, draw_bars, numbered, pale_colours, predicted_words, steps_colours
from .plots import EDGE, HEADING, WIDTH
from .reading import Reading

# bytes that are drawn, of all texts of a row, and in each line
MAX_BYTES, LINE = 2000, 100
LINE_HEIGHT, BARS_WIDTH = 0.17, 4.0
LETTERS = {
    "text": {"fontsize": 8, "color": "black"},
    "mark": {"fontsize": 8, "color": GREY},
    "hex": {"fontsize": 4.5, "color": "#702459"},
}


def plot_bytes(reading: Reading, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw each text, `MAX_BYTES` in all, over the steps of its bytes or chunks, or the readout's attention.

    Steps where bytes or chunks halt by themselves. Otherwise, attention in the last step or layer; a text that halts as
    a whole has its halting probabilities below.

    Raises:
        NotDrawableError: the row is not of bytes, or there is neither.
    """
    if canvas.kind != BYTES_OF_TEXT:
        raise NotDrawableError(f"canvas is of {canvas.kind}: expected {BYTES_OF_TEXT}")
    by_steps, bars = reading.unit in ("token", "chunk"), reading.unit in ("row", "sentence")
    if not by_steps and reading.attention is None:
        raise NotDrawableError("bytes that halt together, of a model whose attention is not known, have no colours")
    shown = shares([len(values) for values in canvas.values])
    below = HEADING + BARS_HEIGHT + BARS_BELOW if bars else 0.0
    page = Page(sum(HEADING + lines(count) * LINE_HEIGHT + below for count in shown) + EDGE)
    top = 0.0
    for text, count in enumerate(shown):
        top = draw_text(page, top, reading, canvas, text, count)
        if bars:
            column = canvas.columns[text][0]
            page.heading(top, f"Halting probability of each step, {int(reading.steps[column])} taken and kept")
            draw_bars(page, EDGE, top + HEADING, BARS_WIDTH, reading.halting[:, column], int(reading.steps[column]))
            top += below
    return page.save(path)


def shares(lengths: list[int]) -> list[int]:
    """How many bytes are drawn of each text: `MAX_BYTES` in all, and what short texts leave to the others."""
    drawn, left = [0] * len(lengths), MAX_BYTES
    for rank, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        drawn[place] = min(lengths[place], left // (len(lengths) - rank))
        left -= drawn[place]
    return drawn


def lines(count: int) -> int:
    return math.ceil(count / LINE)


def draw_text(page: Page, top: float, reading: Reading, canvas: Canvas, text: int, count: int) -> float:
    """One text over its colours -> where the next thing goes."""
    length, own = len(canvas.values[text]), canvas.columns[text][:count]
    axes = page.axes(EDGE, top + HEADING, WIDTH - 2 * EDGE, lines(count) * LINE_HEIGHT)
    cells = np.full(lines(count) * LINE, np.nan)
    if reading.unit in ("token", "chunk"):
        what, most = "steps" if reading.unit == "token" else "steps of each chunk", max(reading.num_steps, 1)
        cells[:count] = reading.steps[own]
        image = draw_cells(axes, cells, steps_colours(most, pale=True), (-0.5, most + 0.5))
        page.steps_scale(top, image, most)
    else:
        stage = reading.last_read(canvas.columns[text])
        what = "no attention" if stage is None else f"attention from the readout in {reading.stage} {stage + 1}, {UNIT}"
        if stage is not None:
            cells[:count] = reading.relative[stage, own]
        most = float(np.nan_to_num(cells).max()) or 1.0
        page.share_scale(top, draw_cells(axes, cells, pale_colours(), (0.0, most)), most)
    size = f"{length:,} byte{'' if length == 1 else 's'}"
    size = size if count == length else f"the first {count:,} of {size}"
    name = f"{numbered('Text', text, len(canvas.columns))}, {size}: {what}"
    page.heading(top, name + ("" if text else predicted_words(reading)))
    write_letters(axes, canvas.values[text][:count])
    if reading.chunks is not None:
        row, column = np.divmod(np.flatnonzero(np.diff(reading.chunks[own])), LINE)
        axes.vlines(column + 0.5, row - 0.5, row + 0.5, color="black", linewidth=1)
    return top + HEADING + lines(count) * LINE_HEIGHT


def draw_cells(axes: Axes, cells: np.ndarray, palette: Colormap, limits: tuple[float, float]) -> AxesImage:
    axes.set_axis_off()
    return axes.imshow(
        cells.reshape(-1, LINE), cmap=palette, vmin=limits[0], vmax=limits[1], aspect="auto", interpolation="nearest"
    )


def write_letters(axes: Axes, content: np.ndarray) -> None:
    for place, letter in enumerate(letters_of(content)):
        if letter.text.isspace():
            continue
        row, column = divmod(place, LINE)
        axes.text(
            column, row, letter.text, family=FONT, ha="center", va="center", parse_math=False, **LETTERS[letter.kind]
        )
