"""Figures of the tables of halting, recurrence, experts and threshold sweeps.

Together with `figures` and the plots of `explain` the only modules that import matplotlib.
"""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..models.common.exit_criteria import CRITERIA
from .calibration import ALL_TESTS
from .figures import (
    BLUE,
    GREY,
    HEADROOM,
    ORANGE,
    depth_axis,
    mark_last_steps,
    new_figure,
    number_steps,
    save_all,
    share_axis,
    shorten,
    steps_axis,
)
from .halting import difficulty_key
from .model_facts import DECODER, ENCODER, MODEL
from .recurrence import DOCUMENT, SEGMENT, STATE
from .sweep import BOTH
from .tables import is_ordered, lower_end

MAX_HEAT_MAP_ROWS = 64
MAX_CHUNK_LABELS = 24
# in inches
CHUNK_WIDTH, SLOT_HEIGHT, EXPERT_WIDTH, EXPERT_STEP_HEIGHT, UNIT_WIDTH, UNIT_STEP_HEIGHT = (
    0.3,
    0.16,
    0.16,
    0.13,
    0.19,
    0.14,
)
# of ways of carrying state, and of stacks
CARRY_STYLES = {DOCUMENT: (BLUE, "o", "-"), SEGMENT: (GREY, "s", "--"), STATE: (ORANGE, "^", ":")}
CARRY_NAMES = {
    DOCUMENT: "all carried",
    SEGMENT: "all reset at each segment",
    STATE: "state vectors reset at each segment",
}
STACK_STYLES = {
    MODEL: (BLUE, "o", "-"),
    BOTH: (BLUE, "o", "-"),
    ENCODER: (GREY, "s", ":"),
    DECODER: (GREY, "^", "--"),
}
EXPERT_USAGE, TRADE_OFF, HALTING_PLOT = "expert_usage", "trade_off", "halting_plot"
CALIBRATED_STEPS = "calibrated_steps"
# of splits, and how many buckets of difficulty have room side by side
MARKERS, MAX_BUCKETS_DRAWN = "os^Dv", 20
SMALL_FONT = 7
# between names along an axis from 0 to 1
MIN_DISTANCE = 0.05


def save_halting_figures(
    folder: str | os.PathLike,
    table: Mapping[str, Any],
    *,
    prefix: str = "",
    curve: Sequence[Mapping[str, float]] = (),
    heat_map: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> list[dict[str, str | None]]:
    """Draw every figure that the data allows into `folder`/assets -> their list, as `save_all` returns it."""

    def figures() -> Iterator[tuple[str, str | None, Figure]]:
        if not table["fixed_depth"]:
            yield "steps", None, plot_steps_histogram(table)
            # an exit criterion mixes no states
            if table["halting"] not in CRITERIA:
                yield "mass", None, plot_halting_mass(table)
        for column, data in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(data["rows"]) > 1:
                yield "difficulty", column, plot_difficulty(table, column)
        for column in table.get("tokens") or ():
            yield "token_steps", column, plot_token_steps(table, column)
        if curve:
            yield "threshold", None, plot_threshold_curve(curve, _accuracy_name(table))
        if heat_map:
            yield "heat_map", None, plot_heat_map(heat_map)
        if memory:
            yield "memory", None, plot_memory_map(memory)

    return save_all(folder, prefix, figures())


def plot_steps_histogram(table: Mapping[str, Any]) -> Figure:
    """Share of halting units that stopped after each number of steps."""
    counts, unit = np.array(table["steps_histogram"]), table["unit"]
    title = f"Where {counts.sum():,} {unit}s stopped (at most {table['max_depth']} steps)"
    return _plot_depths(counts / counts.sum(), "executed depth steps", f"share of {unit}s", title)


def plot_halting_mass(table: Mapping[str, Any]) -> Figure:
    """Mean halting mass of each state: how the output mixes the depths."""
    labels = ("depth step (0 is the input)", "mean halting mass", "Halting mass over depth")
    return _plot_depths(table["halting_mass"], *labels)


def _plot_depths(shares: Sequence[float], depth: str, share: str, title: str) -> Figure:
    """Bars of shares of the depths 0..L, with their mean."""
    figure, (axes,) = new_figure(1, (6.4, 3.6))
    axes.bar(range(len(shares)), shares, color=BLUE, width=0.8)
    _mark_mean(axes, sum(step * value for step, value in enumerate(shares)))
    depth_axis(axes, depth, len(shares) - 1)
    share_axis(axes, share, HEADROOM * max(shares))
    axes.set_title(title)
    return figure


def _mark_mean(axes: Axes, mean: float) -> None:
    axes.axvline(mean, color=ORANGE, linewidth=1.5, label=f"mean {mean:.2f}")
    axes.legend(frameon=False)


def _draw_image(axes: Axes, values: Sequence[Sequence[float]], label: str = "", **look: Any) -> None:
    """Values as colours, and what these mean at the right, named `label`."""
    look = {"cmap": "Blues", "vmin": 0, "aspect": "auto", "interpolation": "nearest", **look}
    image = axes.imshow(values, **look)
    axes.grid(False)
    axes.figure.colorbar(image, ax=axes, label=label)


def plot_difficulty(table: Mapping[str, Any], column: str) -> Figure:
    """Ponder steps and, aligned below them, accuracy for each bucket of a slice column.

    Of a language model, both are those at the last read.
    """
    rows = table["slices"][column]["rows"]
    key, accuracy_name = difficulty_key(table), _accuracy_name(table)
    at_read = " at the last read" if key == "answer_steps" else ""
    places = range(len(rows))
    figure, panels = new_figure(1 if table["fixed_depth"] else 2, (6.4, 3.4 if table["fixed_depth"] else 5.2))
    if not table["fixed_depth"]:
        means, tops = ([row[key][name] for row in rows] for name in ("mean", "p95"))
        panels[0].plot(places, means, color=BLUE, marker="o", label="mean")
        panels[0].plot(places, tops, color=BLUE, marker="^", linestyle=":", label="95th percentile")
        steps_axis(panels[0], f"{'' if at_read else 'executed depth '}steps{at_read}", max(tops))
        panels[0].legend(frameon=False, ncols=2)
    draw_accuracy(panels[-1], rows, column, accuracy_name, "majority class")
    title = f"Steps{at_read} and {accuracy_name} by {column}"
    panels[0].set_title(f"{accuracy_name.capitalize()} by {column}, fixed depth" if table["fixed_depth"] else title)
    return figure


def draw_accuracy(axes: Axes, rows: Sequence[Mapping[str, Any]], column: str, name: str, constant: str) -> None:
    """The accuracy of each bucket, called `name`, and that of the `constant` answer."""
    places, baseline = range(len(rows)), [row["majority_baseline"] for row in rows]
    axes.plot(places, [row["accuracy"] for row in rows], color=ORANGE, marker="o", label=name)
    # examples of one label each, as in slices by label, have no constant answer to beat
    if min(baseline) < 1:
        axes.plot(places, baseline, color=GREY, marker="_", linestyle="--", label=constant)
    share_axis(axes, name, 1.05)
    axes.legend(frameon=False, ncols=2)
    _name_buckets(axes, {row["value"]: row["n"] for row in rows}, column)


def _name_buckets(axes: Axes, sizes: Mapping[str, int], column: str) -> None:
    """The buckets of a column along the horizontal axis, with their numbers of examples."""
    crowded = sum(map(len, sizes)) > 60
    names = [f"{value}\nn={n:,}" for value, n in sizes.items()]
    axes.set_xticks(range(len(names)), names, rotation=60 if crowded else 0, fontsize=8, parse_math=False)
    axes.set_xlabel(column)


def plot_threshold_curve(curve: Sequence[Mapping[str, float]], accuracy_name: str) -> Figure:
    """Accuracy (`accuracy_name`), mean steps and relative time at each halting threshold, aligned."""
    rows = pd.DataFrame(curve).sort_values("threshold")
    places = range(len(rows))
    figure, (answers, depth, time) = new_figure(3, (6.4, 6.0))
    answers.plot(places, rows["accuracy"], color=ORANGE, marker="o")
    share_axis(answers, accuracy_name, 1.05)
    answers.set_title(f"Stopping earlier: {accuracy_name}, depth and time")
    depth.plot(places, rows["mean_steps"], color=BLUE, marker="o", label="executed")
    depth.plot(places, rows["mean_ponder_cost"], color=BLUE, marker="s", linestyle=":", label="ponder cost")
    steps_axis(depth, "mean depth steps", rows["mean_steps"].max())
    depth.legend(frameon=False, ncols=2)
    time.plot(places, rows["relative_time"], color=GREY, marker="o")
    share_axis(time, "time of a pass", HEADROOM * rows["relative_time"].max())
    time.set_xticks(places, [f"{threshold:g}" for threshold in rows["threshold"]])
    time.set_xlabel("halting threshold at test time")
    return figure


def save_calibration_figures(folder: str | os.PathLike, calibration: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """Draw the steps of a calibrated exit by difficulty into `folder`/assets -> their list, as of `save_all`."""
    buckets = {split: [row["value"] for row in found["by_difficulty"]] for split, found in calibration["tests"].items()}
    tests = {split: calibration["tests"][split] for split, labels in buckets.items() if labels and is_ordered(labels)}
    if not tests:
        return []
    column = calibration["difficulty"]
    return save_all(folder, "", [(CALIBRATED_STEPS, column, plot_calibrated_steps(tests, column))])


def plot_calibrated_steps(tests: Mapping[str, Mapping[str, Any]], column: str) -> Figure:
    """Mean steps of a calibrated exit and, below them, its accuracy and that of full depth, by difficulty.

    Every split of `tests` has a line, as long as there are few enough buckets in all; otherwise only the first. All
    splits together, where they are measured, have the only line.
    """
    if ALL_TESTS in tests:
        tests = {ALL_TESTS: tests[ALL_TESTS]}
    elif len({row["value"] for found in tests.values() for row in found["by_difficulty"]}) > MAX_BUCKETS_DRAWN:
        tests = dict([next(iter(tests.items()))])
    rows = [row for found in tests.values() for row in found["by_difficulty"]]
    rows.sort(key=lambda row: lower_end(row["value"]))
    sizes = {row["value"]: sum(other["n"] for other in rows if other["value"] == row["value"]) for row in rows}
    places = {value: place for place, value in enumerate(sizes)}
    figure, panels = new_figure(2, (6.4, 5.2))
    for (split, found), marker in zip(tests.items(), itertools.cycle(MARKERS)):
        buckets = found["by_difficulty"]
        at = [places[row["value"]] for row in buckets]
        of_split = f", {split}" if len(tests) > 1 else ""
        for axes, key, label, look in (
            (panels[0], "mean_depth", "mean", {"color": BLUE}),
            (panels[1], "full_accuracy", "full depth", {"color": GREY, "linestyle": "--"}),
            (panels[1], "accuracy", "early exit", {"color": ORANGE}),
        ):
            if all(row[key] is not None for row in buckets):
                axes.plot(at, [row[key] for row in buckets], marker=marker, label=label + of_split, **look)
    steps_axis(panels[0], "executed depth steps", max(row["mean_depth"] for row in rows))
    share_axis(panels[1], "accuracy", 1.05)
    for axes in panels:
        axes.legend(frameon=False, ncols=2, fontsize=8)
    _name_buckets(panels[1], sizes, column)
    panels[0].set_title(f"Steps and accuracy of the calibrated exit by {column}")
    return figure


def plot_heat_map(heat_map: Mapping[str, Any]) -> Figure:
    """Halting mass of each halting unit (row) over depth (column) for one example."""
    mass, rows = heat_map["mass"], heat_map["rows"]
    shown = min(len(rows), MAX_HEAT_MAP_ROWS)
    figure, (axes,) = new_figure(1, (6.4, 1.5 + 0.19 * max(shown, 4)))
    _draw_image(axes, mass[:shown], "halting mass")
    axes.plot(heat_map["steps"][:shown], range(shown), color=ORANGE, marker="|", linestyle="", label="stopped")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_yticks(range(shown), [shorten(row) for row in rows[:shown]], fontsize=8, parse_math=False)
    depth_axis(axes, "depth step (0 is the input)", len(mass[0]) - 1)
    axes.set_title("Halting mass" if shown == len(rows) else f"Halting mass, first {shown} of {len(rows)}", loc="left")
    return figure


def plot_token_steps(table: Mapping[str, Any], column: str) -> Figure:
    """Ponder steps of tokens by `column` of the table's `tokens`: "position" or "kind"."""
    rows = table["tokens"][column]["rows"]
    figure, (axes,) = new_figure(1, (6.4, 3.6))
    places = range(len(rows))
    means, tops = ([row["steps"][name] for row in rows] for name in ("mean", "p95"))
    axes.bar(places, means, color=BLUE, width=0.7, label="mean")
    axes.plot(places, tops, color=ORANGE, marker="^", linestyle="", label="95th percentile")
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    _name_buckets(axes, {row["value"]: row["n"] for row in rows}, column if column == "position" else "token")
    steps_axis(axes, "executed depth steps", max(tops))
    axes.set_title(f"Steps by {column}", loc="left")
    return figure


def plot_memory_map(memory: Mapping[str, Any]) -> Figure:
    """Attention of chunks to memory slots, and their updates: `reads` and `writes` of `memory_map`, (chunks, slots)."""
    reads, writes = memory["reads"], memory["writes"]
    chunks, slots = len(reads), len(reads[0])
    height = 1.8 + 2 * max(SLOT_HEIGHT * slots, 1.0)
    figure, panels = new_figure(2, (min(max(6.4, 1.8 + CHUNK_WIDTH * chunks), 14.0), height))
    read, written = "Reads: mean attention of a chunk's tokens to each slot", "Writes: how far a chunk moves each slot"
    for axes, values, colours, title in ((panels[0], reads, "Blues", read), (panels[1], writes, "Oranges", written)):
        _draw_image(axes, np.transpose(values), cmap=colours)
        axes.set_ylabel("memory slot")
        axes.set_title(title, loc="left", fontsize=10)
    if chunks <= MAX_CHUNK_LABELS:
        names = [shorten(name) for name in memory["chunks"]]
        panels[-1].set_xticks(range(chunks), names, fontsize=8, rotation=60, ha="right", parse_math=False)
    panels[-1].set_xlabel("chunk")
    return figure


def _accuracy_name(table: Mapping[str, Any]) -> str:
    return "last-read accuracy" if "labelled_tokens" in table else "accuracy"


def save_recurrence_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = ""
) -> list[dict[str, str | None]]:
    """Draw every figure that a `recurrence_table` allows into `folder`/assets -> their list, as of `save_all`."""
    figures = [("loss_position", None, plot_loss_by_position(table))]
    if table["gates"] is not None:
        figures.append(("gate_openness", None, plot_gate_openness(table)))
    return save_all(folder, prefix, figures)


def plot_loss_by_position(table: Mapping[str, Any]) -> Figure:
    """Bits per token in each bin of positions, for each way of carrying state, with the segment's length marked."""
    rows = table["by_position"]
    figure, (axes,) = new_figure(1, (6.4, 3.8))
    # the middle of a bin on a logarithmic axis
    places = [(row["first"] * row["last"]) ** 0.5 for row in rows]
    for carry in rows[0]["bits_per_token"]:
        colour, marker, line = CARRY_STYLES[carry]
        bits = [row["bits_per_token"][carry] for row in rows]
        axes.plot(places, bits, color=colour, marker=marker, linestyle=line, label=CARRY_NAMES[carry])
    axes.axvline(table["segment_length"], color=GREY, linewidth=0.8)
    axes.set_xscale("log", base=2)
    # texts that are read in one piece
    text, piece = {"blocks": ("block", "block"), "documents": ("document", "block")}.get(
        table.get("texts"), ("document", "segment")
    )
    axes.set_xlabel(f"tokens of the {text} before (line: a {piece} of {table['segment_length']:,})")
    axes.set_ylabel("bits per token")
    if len(rows[0]["bits_per_token"]) > 1:
        axes.legend(frameon=False)
    axes.set_title(f"Loss by position in the {text}", loc="left")
    return figure


def plot_gate_openness(table: Mapping[str, Any]) -> Figure:
    """Histogram of state units by the fraction of them that an update forgets."""
    gates = table["gates"]
    counts, units = gates["histogram"], gates["units"]
    figure, (axes,) = new_figure(1, (6.4, 3.4))
    width = 1 / len(counts)
    places = [(i + 0.5) * width for i in range(len(counts))]
    axes.bar(places, [n / units for n in counts], color=BLUE, width=0.9 * width)
    _mark_mean(axes, gates["mean"])
    axes.set_xlim(0, 1)
    axes.set_xlabel("share that an update forgets")
    share_axis(axes, "share of state units", HEADROOM * max(counts) / units)
    axes.set_title(f"Gate openness of {units:,} state units", loc="left")
    return figure


def save_expert_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = ""
) -> list[dict[str, str | None]]:
    """Draw the figure of an `expert_table` into `folder`/assets -> its list, as of `save_all`."""
    return save_all(folder, prefix, [(EXPERT_USAGE, None, plot_expert_usage(table))])


def plot_expert_usage(table: Mapping[str, Any]) -> Figure:
    """Share of each expert (column) in each step (row), one panel for each module; a step without tokens is empty."""
    modules = table["modules"]
    experts = max(module["num_experts"] for module in modules.values())
    steps = max(len(module["usage"]) for module in modules.values())
    height = len(modules) * (0.75 + EXPERT_STEP_HEIGHT * max(steps, 6)) + 0.4
    figure, panels = new_figure(len(modules), (min(max(6.4, 1.8 + EXPERT_WIDTH * experts), 14.0), height))
    for axes, (name, module) in zip(panels, modules.items(), strict=True):
        usage = np.array(module["usage"])
        # not a number where no token takes a step
        _draw_image(axes, usage / np.where(usage.any(1), usage.sum(1), np.nan)[:, None], "share")
        axes.set_ylabel("step")
        number_steps(axes, 6)
        axes.set_xlim(-0.5, experts - 0.5)
        balance = "" if module["balance"] is None else f", balance {module['balance']:.2f}"
        axes.set_title(f"{name.capitalize()}: {module['num_experts']} experts{balance}", loc="left", fontsize=10)
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlabel("expert")
    return figure


def save_sweep_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = ""
) -> list[dict[str, str | None]]:
    """Draw the figures of a sweep and its `pictures` into `folder`/assets -> their list, as of `save_all`.

    The `column` of a picture is its stack, where there are two.
    """
    figures = [(TRADE_OFF, None, plot_trade_off(table))]
    for picture in table.get("pictures", ()):
        stack = picture["stack"]
        figures.append((HALTING_PLOT, None if stack == MODEL else stack, plot_remaining_mass(picture)))
    return save_all(folder, prefix, figures)


def plot_trade_off(table: Mapping[str, Any]) -> Figure:
    """Accuracy at each threshold against the block calls it executes and against its time, in shares of full depth."""
    rows, full = table["thresholds"], table["full_depth"]
    figure, panels = new_figure(2, (6.4, 6.0))
    accuracies = [row["accuracy"] for row in rows]
    for stack in full["stacks"]:
        colour, marker, line = STACK_STYLES[stack]
        calls = [row["stacks"][stack]["share"] for row in rows]
        label = None if stack == MODEL else {BOTH: "both stacks"}.get(stack, stack)
        style = {"color": colour, "marker": marker, "linestyle": line, "label": label}
        panels[0].plot(calls, accuracies, markersize=4, linewidth=1.2, **style)
        if stack in (MODEL, BOTH):
            _name_points(panels[0], calls, rows, table["own_threshold"])
    times = [row["relative_time"] for row in rows]
    panels[1].plot(times, accuracies, markersize=4, linewidth=1.2, color=ORANGE, marker="o", linestyle="-")
    _name_points(panels[1], times, rows, table["own_threshold"])
    lowest, highest = min(*accuracies, full["accuracy"]), max(*accuracies, full["accuracy"])
    margin = max(0.08 * (highest - lowest), 0.005)
    for axes, label in (
        (panels[0], "share of all block calls that is executed"),
        (panels[1], "time of a pass, over that at full depth"),
    ):
        axes.plot([1.0], [full["accuracy"]], color=GREY, marker="*", markersize=9, linestyle="", label="full depth")
        share_axis(axes, table["measured"], 1.0)
        axes.set_ylim(lowest - margin, highest + 2 * margin)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(label)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_xlim(0, max(1.0, *times) * (HEADROOM + 1) / 2)
    panels[0].set_title("Halting thresholds after training: accuracy, work and time", loc="left")
    return figure


def _name_points(axes: Axes, places: Sequence[float], rows: Sequence[Mapping[str, Any]], own: float) -> None:
    """Thresholds above their points where they have room, first of all the checkpoint's own, in bold."""
    named: list[float] = []
    for place, row in sorted(zip(places, rows, strict=True), key=lambda item: item[1]["threshold"] != own):
        if any(abs(place - other) < MIN_DISTANCE for other in named):
            continue
        named.append(place)
        axes.annotate(
            f"{row['threshold']:g}",
            (place, row["accuracy"]),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL_FONT,
            fontweight="bold" if row["threshold"] == own else "normal",
        )


def plot_remaining_mass(picture: Mapping[str, Any]) -> Figure:
    """Remaining halting mass before each step (row) of each token or other unit (column), one panel per example."""
    examples = picture["examples"]
    widest = max(len(example["names"]) for example in examples)
    depth = len(examples[0]["remaining"][0])
    height = len(examples) * (1.3 + UNIT_STEP_HEIGHT * max(depth, 8))
    figure, panels = new_figure(len(examples), (max(6.4, 1.6 + UNIT_WIDTH * widest), height), shared=False)
    for axes, example in zip(panels, examples, strict=True):
        places = range(len(example["names"]))
        _draw_image(axes, np.transpose(example["remaining"]), "remaining mass", cmap="viridis", vmax=1)
        mark_last_steps(axes, example["steps"], color=ORANGE, linewidth=1.6)
        axes.set_xticks(places, [shorten(name) for name in example["names"]], rotation=90, parse_math=False)
        axes.tick_params(labelsize=SMALL_FONT, length=2, labelbottom=True)
        number_steps(axes, 10)
        axes.set_ylabel("step")
        axes.set_xlim(-0.5, widest - 0.5)
        axes.set_ylim(depth - 0.5, -0.5)
    where = "" if picture["stack"] == MODEL else f" of the {picture['stack']}"
    panels[0].set_title(f"When each {picture['unit']}{where} stops; lines: by the checkpoint's threshold", loc="left")
    return figure
