"""The figure of an explanation: an attention map for each step, and below them gates, or halting, by step and token.

Shapes: T steps, S tokens. Lengths are in inches.
"""

import math
import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ..figures import BLUE, mark_last_steps, number_steps, shorten
from .explanation import MAX_TOKENS, Explanation
from .page import EDGE, GAP, HEADING, WIDTH, Page, colours

# of steps that are drawn, and of tokens by how many maps stand side by side
MAX_MAPS = 32
MAP_COLUMNS = ((8, 7), (16, 5), (MAX_TOKENS, 3))
STEP_TITLE, STEP_HEIGHT, STEP_AXIS = 0.22, 0.17, 0.35
# of fonts
SMALLEST, LARGEST, POINTS_PER_INCH = 5.0, 8.0, 72
# width of a character of the largest font
CHARACTER = 0.62 * LARGEST / POINTS_PER_INCH


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
    attention = np.where(idle[..., None], np.nan, explanation.head_attention(head)[:steps])
    by_token = explanation.halting if explanation.gates is None else np.where(idle, np.nan, explanation.gates[:steps])
    names = max(0.1 + max(len(shorten(token)) for token in explanation.tokens) * CHARACTER, STEP_AXIS)
    columns = next(columns for limit, columns in MAP_COLUMNS if length <= limit)
    side = (WIDTH - names - 2 * EDGE - GAP * (columns - 1)) / columns
    maps = HEADING + math.ceil(steps / columns) * (side + STEP_TITLE) + names
    panel = STEP_HEIGHT * max(steps, 4)
    page = Page(maps + (0 if by_token is None else HEADING + panel + names))
    draw_maps(page, names, columns, side, attention, explanation, heading(explanation, head, steps))
    if by_token is not None:
        draw_panel(page, EDGE + names, maps, panel, by_token[:steps], explanation)
    return page.save(path)


def heading(explanation: Explanation, head: int | None, steps: int) -> str:
    num_heads = explanation.attention.shape[1]
    which = f"head {head}" if head is not None else f"greatest of {num_heads} heads" if num_heads > 1 else "one head"
    part = "" if steps == explanation.num_steps else f", first {steps} of {explanation.num_steps} steps"
    share = "" if explanation.probability is None else f" ({explanation.probability:.1%})"
    name = "next token" if explanation.predicts_next else "prediction"
    return f"Attention, row reads from column ({which}{part}); {name} {shorten(explanation.prediction)}{share}"


def draw_maps(
    page: Page, names: float, columns: int, side: float, attention: np.ndarray, explanation: Explanation, text: str
) -> None:
    """Square maps `side` wide in `columns`, with space for `names` at the left, below a heading."""
    steps = len(attention)
    for step in range(steps):
        row, column = divmod(step, columns)
        left = EDGE + names + column * (side + GAP)
        axes = page.axes(left, HEADING + row * (side + STEP_TITLE) + STEP_TITLE, side, side)
        image = axes.imshow(
            attention[step], cmap=colours("Blues"), vmin=0, vmax=1, interpolation="nearest", aspect="auto"
        )
        axes.set_title(f"step {step + 1}", fontsize=8, pad=3)
        # the last map of each column has the names of the tokens that are attended to
        name_tokens(axes, explanation.tokens, side, step + columns >= steps, column == 0)
    page.heading(0.0, text)
    page.scale(0.0, image, [0, 0.5, 1], ["0", "0.5", "1"])


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


def draw_panel(
    page: Page, left: float, top: float, height: float, values: np.ndarray, explanation: Explanation
) -> None:
    """Gates or halting probabilities (T, S), and a line below the last step that each token kept."""
    steps, length = values.shape
    text = "Halting probability" if explanation.gates is None else "Gates: mean share of a state that is overwritten"
    axes = page.axes(left, top + HEADING, WIDTH - left - EDGE, height)
    image = axes.imshow(values, aspect="auto", cmap=colours("Oranges"), vmin=0, vmax=1, interpolation="nearest")
    axes.set_ylabel("step", fontsize=8)
    number_steps(axes, 12)
    axes.set_xticks(range(length), [shorten(token) for token in explanation.tokens], rotation=90, parse_math=False)
    axes.tick_params(labelsize=7, length=2)
    if explanation.steps is not None:
        text += "; the line ends the steps of each token"
        mark_last_steps(axes, np.minimum(explanation.steps, steps), color=BLUE, linewidth=2.5, clip_on=False)
    axes.set_ylim(steps - 0.5, -0.5)
    page.heading(top, text)
    page.scale(top, image, [0, 0.5, 1], ["0", "0.5", "1"])
