"""The figure of a picture that is read pixel by pixel: where steps are spent, and what the readout attends to.

Shapes: T steps or layers, a picture of `side` x `side` pixels.
"""

import math
import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from ..halting.drawing import BLUE
from .canvas import PIXELS, Canvas, NotDrawableError
from .page import UNIT, Page, draw_bars, numbered, predicted_words, steps_colours
from .plots import EDGE, HEADING, IDLE_GREY, WIDTH, colours
from .reading import Reading

# maps of steps that are drawn, and how many stand side by side
MAX_MAPS, COLUMNS = 16, 8
LARGE, GAP, TITLE = 2.2, 0.1, 0.2
SMALL = (WIDTH - 2 * EDGE - GAP * (COLUMNS - 1)) / COLUMNS
TAKES = {"token": "Pixels that take each step", "chunk": "Chunks that take each step"}


def plot_pixels(reading: Reading, canvas: Canvas, path: str | os.PathLike) -> Path:
    """Draw each picture, where its steps are spent, and the readout's attention, at most `MAX_MAPS` steps of each.

    Raises:
        NotDrawableError: the row is not of pixels.
    """
    if canvas.kind != PIXELS:
        raise NotDrawableError(f"canvas is of {canvas.kind}: expected {PIXELS}")
    heights = [block_height(live_maps(reading, canvas, text)) for text in range(len(canvas.columns))]
    attended = [] if reading.attention is None else list(reading.attention[:MAX_MAPS])
    page_height = sum(HEADING + LARGE + GAP + height + block_height(attended) for height in heights)
    page, top = Page(page_height + EDGE), 0.0
    for text in range(len(canvas.columns)):
        top = draw_picture(page, top, reading, canvas, text)
        top = draw_live(page, top, reading, canvas, text)
        if attended:
            top = draw_attention(page, top, reading, canvas, text)
    return page.save(path)


def block_height(maps: list) -> float:
    """Of small maps with their heading."""
    return HEADING + math.ceil(len(maps) / COLUMNS) * (SMALL + TITLE) if maps else 0.0


def live_maps(reading: Reading, canvas: Canvas, text: int) -> list[np.ndarray]:
    """(side, side) bool of each step: which pixels take it. Empty where all take the same steps."""
    if reading.unit not in TAKES:
        return []
    taken = canvas.spread(reading.steps, text)
    return [taken >= step for step in range(1, min(reading.num_steps, MAX_MAPS) + 1)]


def draw_picture(page: Page, top: float, reading: Reading, canvas: Canvas, text: int) -> float:
    """The picture, and beside it its steps -> where the next thing goes."""
    side = canvas.sides[text]
    name = f"{numbered('Picture', text, len(canvas.columns))}, {side} x {side} pixels"
    page.heading(top, name + ("" if text else predicted_words(reading)))
    axes = page.axes(EDGE, top + HEADING, LARGE, LARGE)
    pixels = canvas.shaped(canvas.values[text], text)
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=canvas.brightest, interpolation="nearest")
    axes.set_axis_off()
    left, end = EDGE + LARGE + 3 * GAP, top + HEADING + LARGE + GAP
    if reading.unit in TAKES:
        taken = canvas.spread(reading.steps, text)
        axes = page.axes(left, top + HEADING, LARGE, LARGE)
        most = max(reading.num_steps, 1)
        image = axes.imshow(taken, cmap=steps_colours(most), vmin=-0.5, vmax=most + 0.5, interpolation="nearest")
        axes.set_axis_off()
        page.steps_scale(top, image, most)
        what = "of each pixel" if reading.unit == "token" else "of the chunk of each pixel"
        page.note(
            left + LARGE + 2 * GAP,
            top + HEADING,
            f"Steps {what}:\n{taken.min()} to {taken.max()}, {taken.mean():.2f} on average",
        )
    elif reading.unit is not None:
        column = canvas.columns[text][0]
        taken = int(reading.steps[column])
        draw_bars(page, left, top + HEADING + 0.3, WIDTH - left - EDGE, reading.halting[:, column], taken)
        page.note(left, top + HEADING, f"Halting probability of each step: {taken} taken and kept")
    else:
        page.note(left, top + HEADING, "A fixed depth: nothing halts")
    return end


def draw_live(page: Page, top: float, reading: Reading, canvas: Canvas, text: int) -> float:
    maps = live_maps(reading, canvas, text)
    if not maps:
        return top
    page.heading(top, f"{TAKES[reading.unit]} (blue){part(len(maps), reading.num_steps, 'step')}")
    for number, live in enumerate(maps):
        axes = small(page, top, number, f"step {number + 1}: {live.mean():.0%}")
        axes.imshow(live, cmap=ListedColormap([IDLE_GREY, BLUE]), vmin=0, vmax=1, interpolation="nearest")
    return top + block_height(maps)


def draw_attention(page: Page, top: float, reading: Reading, canvas: Canvas, text: int) -> float:
    maps = canvas.spread(reading.relative, text)[:MAX_MAPS]
    shown = part(len(maps), len(reading.attention), reading.stage)
    page.heading(top, f"Attention from the readout, {reading.reader}{shown}; {UNIT}")
    for number, weights in enumerate(maps):
        # colours of its own for each map: one that attends to a single pixel would leave the others blank
        most = float(np.nan_to_num(weights).max())
        axes = small(page, top, number, f"{reading.stage} {number + 1}" + (f": up to {most:.3g}" if most else ""))
        image = axes.imshow(weights, cmap=colours("Oranges"), vmin=0, vmax=most or 1.0, interpolation="nearest")
    # the bar serves all maps
    page.scale(top, image, [0, image.get_clim()[1]], ["0", "most"])
    return top + block_height(list(maps))


def part(drawn: int, total: int, unit: str) -> str:
    return "" if drawn == total else f", first {drawn} of {total} {unit}s"


def small(page: Page, top: float, number: int, title: str) -> Axes:
    row, column = divmod(number, COLUMNS)
    axes = page.axes(EDGE + column * (SMALL + GAP), top + HEADING + row * (SMALL + TITLE) + TITLE, SMALL, SMALL)
    axes.set_title(title, fontsize=7, pad=2)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes
