"""Figures of halting tables; with `drawing`, `token_plots` and those of `explain` that draw the only modules
that import matplotlib."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .drawing import (
    BLUE,
    GREY,
    HEADROOM,
    ORANGE,
    depth_axis,
    new_figure,
    save,
    share_axis,
    shorten,
    steps_axis,
)
from .table import judged_steps
from .token_plots import plot_depth_along, plot_memory_map, plot_token_steps

MAX_HEAT_MAP_ROWS = 64


def plot_all(
    folder: str | os.PathLike,
    table: Mapping[str, Any],
    *,
    prefix: str = "",
    curve: Sequence[Mapping[str, float]] = (),
    heat_map: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> list[dict[str, str | None]]:
    """Draw every figure that the data allows into `folder`/assets, and list them for the card.

    Each entry holds `kind`, `path` (relative to `folder`) and `column` (of a figure by difficulty or by token, else
    None).
    """
    drawn = []

    def draw(plot: Callable, data: Any, kind: str, column: str | None = None) -> None:
        words = [prefix, kind, column or ""]
        name = "_".join(re.sub(r"[^\w-]+", "_", word) for word in words if word)
        extra = () if column is None else (column,)
        plot(data, Path(folder) / "assets" / f"{name}.png", *extra)
        drawn.append({"kind": kind, "path": f"assets/{name}.png", "column": column})

    if not table["fixed_depth"]:
        draw(plot_steps_histogram, table, "steps")
        draw(plot_halting_mass, table, "mass")
    for column, data in table["slices"].items():
        # a column that is the same everywhere compares nothing
        if len(data["rows"]) > 1:
            draw(plot_difficulty, table, "difficulty", column)
    for column in table.get("tokens") or ():
        draw(plot_token_steps, table, "token_steps", column)
    if curve:
        draw(partial(plot_threshold_curve, measured=_measured(table)), curve, "threshold")
    if heat_map and heat_map["mass"]:
        draw(plot_heat_map, heat_map, "heat_map")
        if "answers" in heat_map:
            draw(plot_depth_along, heat_map, "depth")
    if memory:
        draw(plot_memory_map, memory, "memory")
    return drawn


def plot_steps_histogram(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Share of halting units that stopped after each number of steps."""
    counts = _halting(table, "steps_histogram")
    total = sum(counts)
    figure, (axes,) = new_figure(1, (6.4, 3.6))
    axes.bar(range(len(counts)), [count / total for count in counts], color=BLUE, width=0.8)
    mean = sum(step * count for step, count in enumerate(counts)) / total
    axes.axvline(mean, color=ORANGE, linewidth=1.5, label=f"mean {mean:.2f}")
    axes.legend(frameon=False)
    depth_axis(axes, "executed depth steps", len(counts) - 1)
    share_axis(axes, f"share of {table['unit']}s", HEADROOM * max(counts) / total)
    axes.set_title(f"Where {total:,} {table['unit']}s stopped (at most {table['max_steps']} steps)")
    return save(figure, path)


def plot_halting_mass(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Mean halting mass of each state: how the output mixes the depths."""
    mass = _halting(table, "halting_mass")
    figure, (axes,) = new_figure(1, (6.4, 3.6))
    axes.bar(range(len(mass)), mass, color=BLUE, width=0.8)
    mean = sum(depth * share for depth, share in enumerate(mass))
    axes.axvline(mean, color=ORANGE, linewidth=1.5, label=f"mean {mean:.2f}")
    axes.legend(frameon=False)
    depth_axis(axes, "depth step (0 is the input)", len(mass) - 1)
    share_axis(axes, "mean halting mass", HEADROOM * max(mass))
    axes.set_title("Halting mass over depth")
    return save(figure, path)


def plot_difficulty(table: Mapping[str, Any], path: str | os.PathLike, column: str) -> Path:
    """Ponder steps and, aligned below them, accuracy for each bucket of a slice column.

    Of a language model, both are those at the last read.
    """
    if column not in table["slices"]:
        raise ValueError(f"no slice column '{column}'; the table has {sorted(table['slices'])}")
    rows = table["slices"][column]["rows"]
    judged, measured = judged_steps(table), _measured(table)
    at_read = " at the last read" if judged == "answer_steps" else ""
    places = range(len(rows))
    figure, panels = new_figure(1 if table["fixed_depth"] else 2, (6.4, 3.4 if table["fixed_depth"] else 5.2))
    if not table["fixed_depth"]:
        steps = [row[judged] for row in rows]
        panels[0].plot(places, [step["mean"] for step in steps], color=BLUE, marker="o", label="mean")
        panels[0].plot(
            places,
            [step["p95"] for step in steps],
            color=BLUE,
            marker="^",
            linestyle=":",
            label="95th percentile",
        )
        steps_axis(panels[0], f"{'' if at_read else 'executed depth '}steps{at_read}", max(s["p95"] for s in steps))
        panels[0].legend(frameon=False, ncols=2)
    axes = panels[-1]
    axes.plot(places, [row["accuracy"] for row in rows], color=ORANGE, marker="o", label=measured)
    baseline = [row["majority_baseline"] for row in rows]
    axes.plot(places, baseline, color=GREY, marker="_", linestyle="--", label="majority class")
    share_axis(axes, measured, 1.05)
    axes.legend(frameon=False, ncols=2)
    crowded = sum(len(row["value"]) for row in rows) > 60
    names = [f"{row['value']}\nn={row['n']}" for row in rows]
    axes.set_xticks(places, names, rotation=60 if crowded else 0, fontsize=8, parse_math=False)
    axes.set_xlabel(column)
    title = f"Steps{at_read} and {measured} by {column}"
    panels[0].set_title(f"{measured.capitalize()} by {column}, fixed depth" if table["fixed_depth"] else title)
    return save(figure, path)


def plot_threshold_curve(
    curve: Sequence[Mapping[str, float]], path: str | os.PathLike, *, measured: str = "accuracy"
) -> Path:
    """Accuracy, which is called `measured`, mean steps and relative time at each halting threshold, aligned."""
    if not curve:
        raise ValueError("a model of fixed depth has no threshold curve")
    rows = sorted(curve, key=lambda row: row["threshold"])
    places = range(len(rows))
    figure, panels = new_figure(3, (6.4, 6.0))
    panels[0].plot(places, [row["accuracy"] for row in rows], color=ORANGE, marker="o")
    share_axis(panels[0], measured, 1.05)
    panels[1].plot(places, [row["mean_steps"] for row in rows], color=BLUE, marker="o", label="executed")
    cost = [row["mean_ponder_cost"] for row in rows]
    panels[1].plot(places, cost, color=BLUE, marker="s", linestyle=":", label="ponder cost")
    steps_axis(panels[1], "mean depth steps", max(row["mean_steps"] for row in rows))
    panels[1].legend(frameon=False, ncols=2)
    panels[2].plot(places, [row["relative_time"] for row in rows], color=GREY, marker="o")
    share_axis(panels[2], "time of a pass", HEADROOM * max(row["relative_time"] for row in rows))
    panels[2].set_xticks(places, [f"{row['threshold']:g}" for row in rows])
    panels[2].set_xlabel("halting threshold at test time")
    panels[0].set_title(f"Stopping earlier: {measured}, depth and time")
    return save(figure, path)


def plot_heat_map(heat_map: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Halting mass of each halting unit (row) over depth (column) for one example."""
    mass, rows = heat_map["mass"], heat_map["rows"]
    if not mass:
        raise ValueError("a model of fixed depth has no halting mass to draw")
    shown = min(len(rows), MAX_HEAT_MAP_ROWS)
    figure, (axes,) = new_figure(1, (6.4, 1.5 + 0.19 * max(shown, 4)))
    image = axes.imshow(mass[:shown], aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axes.plot(heat_map["steps"][:shown], range(shown), color=ORANGE, marker="|", linestyle="", label="stopped")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_yticks(range(shown), [shorten(row) for row in rows[:shown]], fontsize=8, parse_math=False)
    depth_axis(axes, "depth step (0 is the input)", len(mass[0]) - 1)
    axes.set_title("Halting mass" if shown == len(rows) else f"Halting mass, first {shown} of {len(rows)}")
    axes.title.set_horizontalalignment("left")
    axes.title.set_x(0)
    axes.grid(False)
    figure.colorbar(image, ax=axes, label="halting mass")
    return save(figure, path)


def _measured(table: Mapping[str, Any]) -> str:
    """What a table's accuracy is called."""
    return "last-read accuracy" if "labelled_tokens" in table else "accuracy"


def _halting(table: Mapping[str, Any], key: str) -> list[float]:
    if table["fixed_depth"]:
        raise ValueError(f"a model of fixed depth has no {key}")
    return table[key]
