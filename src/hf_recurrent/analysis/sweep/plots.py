"""Figures of a sweep: what stopping earlier costs, and when the tokens of a few rows stop."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..halting.drawing import (
    BLUE,
    GREY,
    HEADROOM,
    ORANGE,
    new_figure,
    save,
    share_axis,
    shorten,
)
from ..halting.stacks import DECODER, ENCODER, MODEL
from .table import BOTH

TRADE_OFF, HALTING_PLOT = "trade_off", "halting_plot"
LOOKS = {MODEL: (BLUE, "o", "-"), BOTH: (BLUE, "o", "-"), ENCODER: (GREY, "s", ":"), DECODER: (GREY, "^", "--")}
# inches
UNIT_WIDTH, STEP_HEIGHT = 0.19, 0.14
SMALL = 7
# of names along an axis from 0 to 1
LEAST_DISTANCE = 0.05


def draw_all(folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = "") -> list[dict[str, Any]]:
    """Draw the figures of one split into `folder`/assets -> `kind`, `path` and `column` (the stack) of each."""
    drawn = []
    for kind, stack, data in (
        (TRADE_OFF, None, table),
        *((HALTING_PLOT, picture["stack"], picture) for picture in table.get("pictures", ())),
    ):
        column = None if stack in (None, MODEL) else stack
        words = [re.sub(r"[^\w-]+", "_", word) for word in (prefix, kind, column) if word]
        path = f"assets/{'_'.join(words)}.png"
        (plot_trade_off if kind == TRADE_OFF else plot_halting)(data, Path(folder) / path)
        drawn.append({"kind": kind, "path": path, "column": column})
    return drawn


def plot_trade_off(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Accuracy at each threshold against the block calls it executes and against its time, in shares of full depth."""
    rows, full = table["thresholds"], table["full_depth"]
    figure, panels = new_figure(2, (6.4, 6.0))
    for stack in full["stacks"]:
        colour, marker, line = LOOKS[stack]
        calls = [row["stacks"][stack]["share"] for row in rows]
        label = None if stack == MODEL else {BOTH: "both stacks"}.get(stack, stack)
        _curve(panels[0], calls, rows, {"color": colour, "marker": marker, "linestyle": line, "label": label})
        if stack in (MODEL, BOTH):
            _name_points(panels[0], calls, rows, table["own_threshold"])
    times = [row["relative_time"] for row in rows]
    _curve(panels[1], times, rows, {"color": ORANGE, "marker": "o", "linestyle": "-"})
    _name_points(panels[1], times, rows, table["own_threshold"])
    lowest = min(row["accuracy"] for row in (*rows, full))
    highest = max(row["accuracy"] for row in (*rows, full))
    room = max(0.08 * (highest - lowest), 0.005)
    for axes, what in (
        (panels[0], "share of all block calls that is executed"),
        (panels[1], "time of a pass, over that at full depth"),
    ):
        axes.plot([1.0], [full["accuracy"]], color=GREY, marker="*", markersize=9, linestyle="", label="full depth")
        share_axis(axes, table["measured"], 1.0)
        axes.set_ylim(lowest - room, highest + 2 * room)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(what)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_xlim(0, max(1.0, *times) * (HEADROOM + 1) / 2)
    panels[0].set_title("Halting thresholds after training: accuracy, work and time", loc="left")
    return save(figure, path)


def _curve(axes: Axes, places: Sequence[float], rows: Sequence[Mapping[str, Any]], look: Mapping[str, Any]) -> None:
    axes.plot(places, [row["accuracy"] for row in rows], markersize=4, linewidth=1.2, **look)


def _name_points(axes: Axes, places: Sequence[float], rows: Sequence[Mapping[str, Any]], own: float) -> None:
    """Thresholds above their points where they have room, first of all the checkpoint's own, in bold."""
    named: list[float] = []
    for place, row in sorted(zip(places, rows, strict=True), key=lambda item: item[1]["threshold"] != own):
        if any(abs(place - other) < LEAST_DISTANCE for other in named):
            continue
        named.append(place)
        axes.annotate(
            f"{row['threshold']:g}",
            (place, row["accuracy"]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
            fontweight="bold" if row["threshold"] == own else "normal",
        )


def plot_halting(picture: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """What is left of the halting mass before each step (row) of each token or other unit (column), row by row."""
    examples = picture["examples"]
    widest = max(len(example["names"]) for example in examples)
    depth = len(examples[0]["remaining"][0])
    height = len(examples) * (1.3 + STEP_HEIGHT * max(depth, 8))
    figure, panels = new_figure(len(examples), (max(6.4, 1.6 + UNIT_WIDTH * widest), height), shared=False)
    for axes, example in zip(panels, examples, strict=True):
        by_step = [list(step) for step in zip(*example["remaining"], strict=True)]
        places = range(len(example["names"]))
        image = axes.imshow(by_step, aspect="auto", cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        ends = [steps - 0.5 for steps in example["steps"]]
        axes.hlines(ends, [p - 0.45 for p in places], [p + 0.45 for p in places], color=ORANGE, linewidth=1.6)
        axes.set_xticks(places, [shorten(name) for name in example["names"]], rotation=90, parse_math=False)
        axes.tick_params(labelsize=SMALL, length=2, labelbottom=True)
        # the first step stands at row 0
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        axes.yaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
        axes.set_ylabel("step")
        axes.set_xlim(-0.5, widest - 0.5)
        axes.set_ylim(depth - 0.5, -0.5)
        axes.grid(False)
        figure.colorbar(image, ax=axes, label="remaining mass")
    where = "" if picture["stack"] == MODEL else f" of the {picture['stack']}"
    panels[0].set_title(f"When each {picture['unit']}{where} stops; lines: by the checkpoint's threshold", loc="left")
    return save(figure, path)
