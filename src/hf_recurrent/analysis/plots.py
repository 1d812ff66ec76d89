"""Figures of the tables of halting, calibration, recurrence, experts and threshold sweeps; their titles are findings.

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
from ..templating import percent
from .calibration import ALL_TESTS
from .figures import (
    BLUE,
    GREY,
    HEADROOM,
    ORANGE,
    depth_axis,
    draw_image,
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

Rows = Sequence[Mapping[str, Any]]

MAX_HEAT_MAP_ROWS, MAX_CHUNK_LABELS = 64, 24
# of splits, and how many buckets of difficulty have room side by side
MARKERS, MAX_BUCKETS_DRAWN = "os^Dv", 20
# between names along an axis from 0 to 1
MIN_DISTANCE = 0.05
LEGEND = {"frameon": False, "ncols": 2, "fontsize": 8}
# of means, of the highest values, and of constants to compare with
MEAN, TOP = {"color": BLUE, "marker": "o"}, {"color": BLUE, "marker": "^", "linestyle": ":"}
ANSWERS, CONSTANT = {"color": ORANGE, "marker": "o"}, {"color": GREY, "marker": "_", "linestyle": "--"}
# of ways of carrying state, and of stacks
CARRIES = {
    DOCUMENT: ("all carried", {"color": BLUE, "marker": "o"}),
    SEGMENT: ("all reset at each segment", {"color": GREY, "marker": "s", "linestyle": "--"}),
    STATE: ("state vectors reset at each segment", {"color": ORANGE, "marker": "^", "linestyle": ":"}),
}
STACKS = {
    MODEL: (None, {"color": BLUE, "marker": "o"}),
    BOTH: ("both stacks", {"color": BLUE, "marker": "o"}),
    ENCODER: (ENCODER, {"color": GREY, "marker": "s", "linestyle": ":"}),
    DECODER: (DECODER, {"color": GREY, "marker": "^", "linestyle": "--"}),
}


def save_halting_figures(
    folder: str | os.PathLike,
    table: Mapping[str, Any],
    *,
    prefix: str = "",
    curve: Rows = (),
    heat_map: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> list[dict[str, str | None]]:
    """Draw every figure that the data allows into `folder`/assets -> their list, as `save_all` returns it."""

    def figures() -> Iterator[tuple[str, str | None, Figure]]:
        if not table["fixed_depth"]:
            yield "steps", None, plot_steps(table)
            # an exit criterion mixes no states
            if table["halting"] not in CRITERIA:
                yield "mass", None, plot_mass(table)
        for column, data in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(data["rows"]) > 1:
                yield "difficulty", column, plot_difficulty(table, column)
        for column, data in (table.get("tokens") or {}).items():
            yield "token_steps", column, plot_token_steps(data["rows"], column)
        if curve:
            yield "threshold", None, plot_threshold_curve(curve, _accuracy_name(table))
        if heat_map:
            yield "heat_map", None, plot_heat_map(heat_map)
        if memory:
            yield "memory", None, plot_memory_map(memory)

    return save_all(folder, prefix, figures())


def save_pair_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str
) -> list[dict[str, str | None]]:
    """Draw every figure of a model with two stacks into `folder`/assets -> their list, as of `save_all`.

    `column` of an entry is the slice column, or the stack that the figure is about.
    """
    drawn = []
    for stack in (ENCODER, DECODER) if not table["fixed_depth"] else ():
        own = {**table, **(table["decoder"] if stack == DECODER else {}), "slices": {}}
        found = save_halting_figures(folder, own, prefix=f"{prefix}_{stack}")
        drawn += [{**figure, "column": stack} for figure in found]
    slices = [column for column, data in table["slices"].items() if len(data["rows"]) > 1]
    figures = (("stacks", column, plot_difficulty(table, column)) for column in slices)
    return drawn + save_all(folder, prefix, figures)


def _accuracy_name(table: Mapping[str, Any]) -> str:
    if "decoder" in table:
        return "exact match"
    return "last-read accuracy" if "labelled_tokens" in table else "accuracy"


def plot_steps(table: Mapping[str, Any]) -> Figure:
    """Share of halting units that stopped after each number of steps."""
    counts, units = np.array(table["steps_histogram"]), f"{table['unit']}s"
    shares = counts / counts.sum()
    mean = shares @ np.arange(len(shares))
    title = f"{units.capitalize()} stop after {mean:.1f} of {table['max_depth']} steps on average"
    figure, axes = _bars(range(len(shares)), shares, mean, title, f"share of {counts.sum():,} {units}")
    depth_axis(axes, "executed depth steps", len(shares) - 1)
    return figure


def plot_mass(table: Mapping[str, Any]) -> Figure:
    """Mean halting mass of each state: how the output mixes the depths."""
    mass = np.array(table["halting_mass"])
    title = f"Depth {mass.argmax()} has the most weight in the output: {percent(mass.max())} of the halting mass"
    figure, axes = _bars(range(len(mass)), mass, mass @ np.arange(len(mass)), title, "mean halting mass")
    depth_axis(axes, "depth step (0 is the input)", len(mass) - 1)
    return figure


def _bars(places: Sequence[float], shares: np.ndarray, mean: float, title: str, label: str) -> tuple[Figure, Axes]:
    """Bars of shares at equally distant places, with their mean."""
    figure, (axes,) = new_figure(1, (6.4, 3.6), title=title)
    axes.bar(places, shares, color=BLUE, width=0.8 * (places[1] - places[0]))
    axes.axvline(mean, color=ORANGE, linewidth=1.5, label=f"mean {mean:.2f}")
    axes.legend(**LEGEND)
    share_axis(axes, label, HEADROOM * max(shares))
    return figure, axes


def plot_difficulty(table: Mapping[str, Any], column: str) -> Figure:
    """Steps and, aligned below them, accuracy for each bucket of a slice column.

    Of a language model, both are those at the last read. Of two stacks, they are the mean steps of the tokens of each,
    and exact match, as in Figure 4 of the Sparse Universal Transformer paper.
    """
    data, key, name, two = table["slices"][column], difficulty_key(table), _accuracy_name(table), "decoder" in table
    rows, fixed = pd.json_normalize(data["rows"]), table["fixed_depth"]
    at_read, ordered = " at the last read" if key == "answer_steps" else "", data["numeric"]
    found = [f"{name} {_change(rows['accuracy'], percent, ordered)}"]
    if not fixed:
        found.insert(0, f"steps{at_read} {_change(rows[f'{key}.mean'], ordered=ordered)}")
    size = (1, (6.4, 3.4)) if fixed else (2, (6.4, 5.2))
    figure, panels = new_figure(*size, title=f"By {column}: {', '.join(found)}")
    if not fixed:
        stacks = {"steps.mean": (ENCODER, MEAN), "decoder_steps.mean": (DECODER, TOP)}
        lines = stacks if two else _spread(key)
        draw_lines(panels[0], rows, lines)
        label = "mean depth steps of a token" if two else f"{'' if at_read else 'executed depth '}steps{at_read}"
        steps_axis(panels[0], label, rows[[*lines]].max(axis=None))
    # no model can beat a constant answer on examples of one label, as in slices by label
    rows["constant"] = rows["majority_baseline"].where(rows["majority_baseline"] < 1)
    constant = "most frequent target" if two else "majority class"
    draw_lines(panels[-1], rows, {"accuracy": (name, ANSWERS), "constant": (constant, CONSTANT)})
    share_axis(panels[-1], name, 1.05)
    _name_buckets(panels[-1], rows, column)
    return figure


def draw_lines(
    axes: Axes, rows: pd.DataFrame, lines: Mapping[str, tuple[str | None, dict]], places: Any = None
) -> None:
    """A line for each column of `rows` that has values, with its name and style; several lines have a legend."""
    for column, (name, style) in lines.items():
        if rows[column].notna().any():
            axes.plot(range(len(rows)) if places is None else places, rows[column], label=name, **style)
    if len(axes.get_lines()) > 1:
        axes.legend(**LEGEND)


def _change(values: pd.Series, written: Any = "{:.2f}".format, ordered: bool = True) -> str:
    """First and last value along buckets of numbers; the least and the largest of other buckets."""
    if ordered:
        return f"{written(values.iloc[0])} → {written(values.iloc[-1])}"
    return f"{written(values.min())} to {written(values.max())}"


def _cheaper(row: Mapping[str, Any], full: Mapping[str, Any], name: str) -> str:
    """Time and accuracy of a lower threshold."""
    points = 100 * (row["accuracy"] - full["accuracy"])
    return f"Threshold {row['threshold']:g}: {percent(row['relative_time'])} of the time, {name} {points:+.1f} points"


def _spread(key: str) -> dict[str, tuple[str, dict]]:
    """Lines of the mean and the 95th percentile of steps."""
    return {f"{key}.mean": ("mean", MEAN), f"{key}.p95": ("95th percentile", TOP)}


def _name_buckets(axes: Axes, rows: pd.DataFrame, column: str) -> None:
    """The buckets of a column along the horizontal axis, with their numbers of examples."""
    names = [f"{value}\nn={n:,}" for value, n in zip(rows["value"], rows["n"], strict=True)]
    rotation = 60 if rows["value"].str.len().sum() > 60 else 0
    axes.set_xticks(range(len(names)), names, rotation=rotation, fontsize=8, parse_math=False)
    axes.set_xlabel(column)


def plot_threshold_curve(curve: Rows, accuracy_name: str) -> Figure:
    """Accuracy (`accuracy_name`), mean steps and relative time at each halting threshold, aligned."""
    rows = pd.DataFrame(curve).sort_values("threshold")
    low, high = rows.iloc[[0, -1]].to_dict("records")
    figure, (answers, depth, time) = new_figure(3, (6.4, 6.0), title=_cheaper(low, high, accuracy_name))
    draw_lines(answers, rows, {"accuracy": (None, ANSWERS)})
    share_axis(answers, accuracy_name, 1.05)
    draw_lines(depth, rows, {"mean_steps": ("executed", MEAN), "mean_ponder_cost": ("ponder cost", TOP)})
    steps_axis(depth, "mean depth steps", rows["mean_steps"].max())
    draw_lines(time, rows, {"relative_time": (None, {"color": GREY, "marker": "o"})})
    share_axis(time, "time of a pass", HEADROOM * rows["relative_time"].max())
    time.set_xticks(range(len(rows)), [f"{threshold:g}" for threshold in rows["threshold"]])
    time.set_xlabel("halting threshold at test time")
    return figure


def save_calibration_figures(folder: str | os.PathLike, calibration: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """Draw the steps of a calibrated exit by difficulty into `folder`/assets -> their list, as of `save_all`."""
    tests = {
        split: found
        for split, found in calibration["tests"].items()
        if found["by_difficulty"] and is_ordered(row["value"] for row in found["by_difficulty"])
    }
    column = calibration["difficulty"]
    figures = (
        [("calibrated_steps", column, plot_calibrated_steps(tests, column, calibration.get("trained_steps")))]
        if tests
        else []
    )
    return save_all(folder, "", figures)


def plot_calibrated_steps(
    tests: Mapping[str, Mapping[str, Any]], column: str, trained_steps: int | None = None
) -> Figure:
    """Mean steps of a calibrated exit and, below them, its accuracy and that of full depth, by difficulty.

    Every split of `tests` has a line, as long as there are few enough buckets in all; otherwise only the first. All
    splits together, where they are measured, have the only line.
    """
    if ALL_TESTS in tests:
        tests = {ALL_TESTS: tests[ALL_TESTS]}
    elif len({row["value"] for found in tests.values() for row in found["by_difficulty"]}) > MAX_BUCKETS_DRAWN:
        tests = dict([next(iter(tests.items()))])
    rows = pd.DataFrame([{**row, "split": split} for split, found in tests.items() for row in found["by_difficulty"]])
    rows = rows.assign(low=rows["value"].map(lower_end)).sort_values("low", kind="stable")
    sizes = rows.groupby("value", sort=False)["n"].sum().reset_index()
    places = {value: place for place, value in enumerate(sizes["value"])}
    title = f"Steps of the calibrated exit by {column}: {_change(rows['mean_depth'])}"
    figure, (depth, answers) = new_figure(2, (6.4, 5.2), title=title)
    for (split, own), marker in zip(rows.groupby("split", sort=False), itertools.cycle(MARKERS)):
        of_split, at = f", {split}" if len(tests) > 1 else "", own["value"].map(places)
        draw_lines(depth, own, {"mean_depth": (f"mean{of_split}", {"color": BLUE, "marker": marker})}, at)
        # wide and pale, for the early exit must not hide it
        full = {"color": GREY, "linewidth": 5, "alpha": 0.4}
        lines = {"full_accuracy": (f"full depth{of_split}", full)}
        lines["accuracy"] = f"early exit{of_split}", {"color": ORANGE, "marker": marker}
        draw_lines(answers, own.astype({name: float for name in lines}), lines, at)
    steps_axis(depth, "executed depth steps", rows["mean_depth"].max())
    if trained_steps is not None and trained_steps < depth.get_ylim()[1]:
        depth.axhline(trained_steps, color=GREY, linestyle="--", linewidth=1, label="most steps in training")
        depth.legend(**LEGEND)
    share_axis(answers, "accuracy", 1.05)
    _name_buckets(answers, sizes, column)
    return figure


def plot_heat_map(heat_map: Mapping[str, Any]) -> Figure:
    """Halting mass of each halting unit (row) over depth (column) for one example."""
    mass, names, steps = heat_map["mass"], heat_map["rows"], heat_map["steps"]
    shown = min(len(names), MAX_HEAT_MAP_ROWS)
    part = "" if shown == len(names) else f" (first {shown} of {len(names)})"
    title = f"One example stops after {min(steps)} to {max(steps)} steps{part}"
    figure, (axes,) = new_figure(1, (6.4, 1.5 + 0.19 * max(shown, 4)), title=title)
    _draw_units(axes, names[:shown], mass[:shown], steps[:shown], "halting mass")
    depth_axis(axes, "depth step (0 is the input)", len(mass[0]) - 1)
    return figure


def _draw_units(axes: Axes, names: Sequence[str], values: Any, stops: Sequence[float], label: str, **look: Any) -> None:
    """Values of each halting unit (row) over depth (column), with marks where the units stop."""
    draw_image(axes, values, label, **look)
    axes.plot(stops, range(len(names)), color=ORANGE, marker="|", linestyle="", label="stopped")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_yticks(range(len(names)), [shorten(name) for name in names], fontsize=8, parse_math=False)


def plot_token_steps(table: Rows, column: str) -> Figure:
    """Steps of tokens by `column`: "position" or "kind"."""
    rows = pd.json_normalize(table)
    most = rows.loc[rows["steps.mean"].idxmax()]
    title = f"Most steps at {column} {most['value']}: {most['steps.mean']:.2f} on average"
    figure, (axes,) = new_figure(1, (6.4, 3.6), title=title)
    draw_lines(axes, rows, _spread("steps"))
    _name_buckets(axes, rows, column if column == "position" else "token")
    steps_axis(axes, "executed depth steps", rows["steps.p95"].max())
    return figure


def plot_memory_map(memory: Mapping[str, Any]) -> Figure:
    """Attention of chunks to memory slots, and their updates: `reads` and `writes` of `memory_map`, (chunks, slots)."""
    chunks, slots = np.shape(memory["reads"])
    width, height = min(max(6.4, 1.8 + 0.3 * chunks), 14.0), 1.8 + 2 * max(0.16 * slots, 1.0)
    figure, panels = new_figure(2, (width, height), title="Reads: mean attention of a chunk's tokens to each slot")
    panels[1].set_title("Writes: how far a chunk moves each slot", loc="left", fontsize=10)
    for axes, key, colours in zip(panels, ("reads", "writes"), ("Blues", "Oranges"), strict=True):
        draw_image(axes, np.transpose(memory[key]), cmap=colours)
        axes.set_ylabel("memory slot")
    if chunks <= MAX_CHUNK_LABELS:
        names = [shorten(name) for name in memory["chunks"]]
        panels[-1].set_xticks(range(chunks), names, fontsize=8, rotation=60, ha="right", parse_math=False)
    panels[-1].set_xlabel("chunk")
    return figure


def save_recurrence_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = ""
) -> list[dict[str, str | None]]:
    """Draw every figure that a `recurrence_table` allows into `folder`/assets -> their list, as of `save_all`."""
    figures = [("loss_position", None, plot_loss_by_position(table))]
    if table["gates"] is not None:
        figures.append(("gate_openness", None, plot_gate_openness(table["gates"])))
    return save_all(folder, prefix, figures)


def plot_loss_by_position(table: Mapping[str, Any]) -> Figure:
    """Bits per token in each bin of positions, for each way of carrying state, with the segment's length marked."""
    rows, whole = pd.DataFrame(table["by_position"]), table.get("texts")
    bits = pd.DataFrame(rows["bits_per_token"].tolist())
    # texts that are read in one piece
    text, piece = (whole.removesuffix("s"), "block") if whole else ("document", "segment")
    found = f"{_change(bits[DOCUMENT])} bits per token"
    for row in table["carries"]:
        if row["carry"] == SEGMENT:
            found = f"resetting costs {row['difference']:.3f} bits per token"
    title = f"Loss by position in the {text}: {found}"
    figure, (axes,) = new_figure(1, (6.4, 3.8), title=title)
    # the middle of a bin on a logarithmic axis
    draw_lines(axes, bits, {carry: CARRIES[carry] for carry in bits}, (rows["first"] * rows["last"]) ** 0.5)
    axes.axvline(table["segment_length"], color=GREY, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"tokens of the {text} before (line: a {piece} of {table['segment_length']:,})")
    axes.set_ylabel("bits per token")
    return figure


def plot_gate_openness(gates: Mapping[str, Any]) -> Figure:
    """Histogram of state units by the fraction of them that an update forgets."""
    shares = np.array(gates["histogram"]) / gates["units"]
    places = (np.arange(len(shares)) + 0.5) / len(shares)
    title = f"An update forgets {percent(gates['mean'])} of a state unit on average"
    figure, axes = _bars(places, shares, gates["mean"], title, f"share of {gates['units']:,} state units")
    axes.set_xlim(0, 1)
    axes.set_xlabel("share that an update forgets")
    return figure


def save_expert_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = ""
) -> list[dict[str, str | None]]:
    """Draw the figure of an `expert_table` into `folder`/assets -> its list, as of `save_all`."""
    return save_all(folder, prefix, [("expert_usage", None, plot_expert_usage(table))])


def plot_expert_usage(table: Mapping[str, Any]) -> Figure:
    """Share of each expert (column) in each step (row), one panel for each module; a step without tokens is empty."""
    modules = table["modules"]
    experts = max(module["num_experts"] for module in modules.values())
    steps = max(len(module["usage"]) for module in modules.values())
    size = min(max(6.4, 1.8 + 0.16 * experts), 14.0), len(modules) * (0.75 + 0.13 * max(steps, 6)) + 0.4
    figure, panels = new_figure(len(modules), size)
    for axes, (name, module) in zip(panels, modules.items(), strict=True):
        usage = np.array(module["usage"])
        # not a number where no token takes a step
        draw_image(axes, usage / np.where(usage.any(1), usage.sum(1), np.nan)[:, None], "share")
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
    figures = [("trade_off", None, plot_trade_off(table))]
    for picture in table.get("pictures", ()):
        stack = picture["stack"]
        figures.append(("halting_plot", None if stack == MODEL else stack, plot_remaining_mass(picture)))
    return save_all(folder, prefix, figures)


def plot_trade_off(table: Mapping[str, Any]) -> Figure:
    """Accuracy at each threshold against the block calls it executes and against its time, in shares of full depth."""
    rows, full, own = table["thresholds"], table["full_depth"], table["own_threshold"]
    accuracies, times = ([row[key] for row in rows] for key in ("accuracy", "relative_time"))
    fast = min(rows, key=lambda row: row["relative_time"])
    figure, panels = new_figure(2, (6.4, 6.0), title=_cheaper(fast, full, table["measured"]))
    for stack in full["stacks"]:
        label, style = STACKS[stack]
        calls = [row["stacks"][stack]["share"] for row in rows]
        panels[0].plot(calls, accuracies, markersize=4, linewidth=1.2, label=label, **style)
        if stack in (MODEL, BOTH):
            _name_points(panels[0], calls, rows, own)
    panels[1].plot(times, accuracies, markersize=4, linewidth=1.2, **ANSWERS)
    _name_points(panels[1], times, rows, own)
    lowest, highest = min(*accuracies, full["accuracy"]), max(*accuracies, full["accuracy"])
    margin = max(0.08 * (highest - lowest), 0.005)
    labels = "share of all block calls that is executed", "time of a pass, over that at full depth"
    for axes, label in zip(panels, labels, strict=True):
        axes.plot([1.0], [full["accuracy"]], color=GREY, marker="*", markersize=9, linestyle="", label="full depth")
        share_axis(axes, table["measured"], 1.0)
        axes.set_ylim(lowest - margin, highest + 2 * margin)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(label)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_xlim(0, max(1.0, *times) * (HEADROOM + 1) / 2)
    return figure


def _name_points(axes: Axes, places: Sequence[float], rows: Rows, own: float) -> None:
    """Thresholds above their points where they have room, first of all the checkpoint's own, in bold."""
    named: list[float] = []
    for place, row in sorted(zip(places, rows, strict=True), key=lambda item: item[1]["threshold"] != own):
        if all(abs(place - other) >= MIN_DISTANCE for other in named):
            named.append(place)
            look = {"fontsize": 7, "fontweight": "bold" if row["threshold"] == own else "normal", "ha": "center"}
            text = f"{row['threshold']:g}"
            axes.annotate(text, (place, row["accuracy"]), xytext=(0, 5), textcoords="offset points", **look)


def plot_remaining_mass(picture: Mapping[str, Any]) -> Figure:
    """Remaining halting mass before each step (column) of each token or other unit (row), one panel per example."""
    examples = picture["examples"]
    steps = [taken for example in examples for taken in example["steps"]]
    where = "" if picture["stack"] == MODEL else f" of the {picture['stack']}"
    title = f"A {picture['unit']}{where} stops after {min(steps)} to {max(steps)} steps"
    figure, panels = new_figure(len(examples), (6.4, 0.8 * len(examples) + 0.19 * len(steps)), title=title)
    for axes, example in zip(panels, examples, strict=True):
        stops = np.array(example["steps"]) - 0.5
        _draw_units(axes, example["names"], example["remaining"], stops, "remaining mass", cmap="viridis", vmax=1)
    axes.set_xlabel("step")
    axes.xaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
    return figure
