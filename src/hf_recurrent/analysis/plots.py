"""Figures of the tables of halting, calibration, recurrence, experts and threshold sweeps; their titles are findings.

Each figure is lines over the rows of a table, bars, or maps of numbers as colours. They are drawn through matplotlib's
object interface on an Agg canvas, so that no display, backend or pyplot state of the caller matters. Apart from the
plots of `explain`, this is the only module that imports matplotlib.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..models.config.exit_criteria import CRITERIA
from ..utils import file_name, percent, write_bytes
from .answers import DECODER, ENCODER
from .halting import difficulty_key, is_ordered
from .losses import DOCUMENT, SEGMENT, STATE

BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#718096"
DOTS_PER_INCH = 110
WIDTH, MAX_WIDTH = 6.4, 14.0
HEADROOM = 1.2
MAX_TOKEN_CHARACTERS = 16
# rows of a map of one example, and columns whose names have room
MAX_ROWS, MAX_NAMES = 64, 24
TITLE = {"loc": "left", "fontsize": 9, "parse_math": False}
LEGEND = {"frameon": False, "ncols": 2, "fontsize": 8}
# of means, of the highest values, and of constants to compare with
MEAN, TOP = {"color": BLUE, "marker": "o"}, {"color": BLUE, "marker": "^", "linestyle": ":"}
ANSWERS, CONSTANT = {"color": ORANGE, "marker": "o"}, {"color": GREY, "marker": "_", "linestyle": "--"}
# wide and pale, for another line must not be hidden
BEHIND = {"color": GREY, "linewidth": 5, "alpha": 0.4}
# of several lines of one kind
SERIES = MEAN, {"color": GREY, "marker": "s", "linestyle": "--"}, {"color": ORANGE, "marker": "^", "linestyle": ":"}
CARRIES = {
    DOCUMENT: "all carried",
    SEGMENT: "all reset at each segment",
    STATE: "state vectors reset at each segment",
}


class Panel(NamedTuple):
    """Lines over one vertical axis.

    Attributes:
        lines: column of a table -> its name (None: not in the legend) and style.
        percent: whether values are shares rather than numbers.
        from_zero: whether the axis begins at 0.
        bars: whether bars are drawn in the place of lines.
    """

    label: str
    lines: Mapping[str, tuple[str | None, dict[str, Any]]]
    percent: bool = False
    from_zero: bool = True
    bars: bool = False


class Map(NamedTuple):
    """A matrix as colours.

    Attributes:
        title: above the map.
        values: (rows, columns).
        names: of the rows; empty: they are numbered.
        stops: the column after which each row stopped; empty: none is marked.
    """

    title: str
    values: Any
    names: Sequence[str] = ()
    stops: Sequence[float] = ()
    colours: str = "Blues"


def save_figures(
    folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = "", **examples: Any
) -> list[dict[str, str | None]]:
    """Draw every figure that a table of statistics allows into `folder`/assets, and list them for the card.

    Args:
        table, examples: as for `figures_of`.
        prefix: beginning of the files' names.

    Returns:
        For each figure its `kind`, `path` (relative to `folder`) and `column`: that of a figure by difficulty or by
        token, or the stack that it is about; else None.
    """
    drawn = []
    for kind, column, figure in figures_of(table, **examples):
        path = f"assets/{file_name(prefix, kind, column)}.png"
        save(figure, Path(folder) / path)
        drawn.append({"kind": kind, "path": path, "column": column})
    return drawn


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """PNG without the library's version in its metadata: the bytes depend on the data alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return write_bytes(path, buffer.getvalue())


def figures_of(
    table: Mapping[str, Any],
    heat_map: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, str | None, Figure]]:
    """Kind, column and figure of all that a table of halting, documents, experts, a sweep or a calibration allows.

    Args:
        heat_map, memory: with a table of halting, a `token_heat_map` and a `memory_map`.
    """
    if "modules" in table:
        yield "expert_usage", None, plot_expert_usage(table)
    elif "carries" in table:
        yield "loss_position", None, plot_loss_by_position(table)
    elif "thresholds" in table:
        rows = [*table["thresholds"], {**table["full_depth"], "threshold": None}]
        yield "trade_off", None, plot_thresholds(rows, table["measured"])
    elif "tests" in table:
        # the first is of all splits together, if there are any
        rows = next((tested["by_difficulty"] for tested in table["tests"].values()), None)
        if rows and is_ordered(row["value"] for row in rows):
            yield "calibrated_steps", table["difficulty"], plot_calibrated_steps(table, rows)
    else:
        yield from halting_figures(table)
    if heat_map:
        yield "heat_map", None, plot_heat_map(heat_map)
    if memory:
        yield "memory", None, plot_memory_map(memory)


def halting_figures(table: Mapping[str, Any]) -> Iterator[tuple[str, str | None, Figure]]:
    """`figures_of` a `halting_table`."""
    two = "decoder" in table
    stacks = {ENCODER: table, DECODER: {**table, **(table["decoder"] or {})}} if two else {None: table}
    for stack, found in stacks.items() if not table["fixed_depth"] else ():
        yield "steps", stack, plot_steps(found)
        # an exit criterion mixes no states
        if table["halting"] not in CRITERIA:
            yield "mass", stack, plot_mass(found)
    for column, data in table["slices"].items():
        # a column that is the same everywhere compares nothing
        if len(data["rows"]) > 1:
            yield "stacks" if two else "difficulty", column, plot_difficulty(table, column)
    for column, data in (table.get("tokens") or {}).items():
        yield "token_steps", column, plot_token_steps(data["rows"], column)


# ---- primitives


def new_figure(title: str, panels: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of `size` inches with panels below each other, which share the horizontal axis."""
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0].tolist()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
        axes.set_axisbelow(True)
    panels[0].set_title(title, **TITLE)
    return figure, panels


def draw_chart(title: str, rows: pd.DataFrame, panels: Sequence[Panel], label: str) -> Figure:
    """Columns of `rows` as lines or bars in panels below each other.

    Along the horizontal axis stand each row's `value`, and its number `n` of examples where there is one.
    """
    figure, areas = new_figure(title, len(panels), (WIDTH, 1.6 + 1.8 * len(panels)))
    for panel, axes in zip(panels, areas, strict=True):
        for column, (name, style) in panel.lines.items():
            values = rows[column].dropna()
            if panel.bars:
                axes.bar(values.index, values, color=BLUE)
            elif len(values):
                axes.plot(values.index, values, label=name, **style)
        if len(axes.get_lines()) > 1:
            axes.legend(**LEGEND)
        axes.set_ylabel(panel.label)
        if panel.percent:
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        if panel.from_zero:
            top = HEADROOM * rows[[*panel.lines]].max(axis=None)
            axes.set_ylim(0, 1.05 if panel.percent and 1 < top <= HEADROOM else top if top > 0 else 1)
    names = rows["value"] if "n" not in rows else rows["value"] + rows["n"].map("\nn={:,}".format)
    rotation = 60 if rows["value"].str.len().sum() > 60 else 0
    axes.set_xticks(rows.index, names, rotation=rotation, fontsize=8, parse_math=False)
    axes.set_xlabel(label)
    return figure


def draw_maps(maps: Sequence[Map], meaning: str, across: str, down: str = "", names: Sequence[str] = ()) -> Figure:
    """Maps below each other; `meaning` is that of their colours.

    Args:
        across, down: what the columns and rows are.
        names: of the columns; if empty or too many, they are numbered.
    """
    columns, rows = max(np.shape(one.values)[1] for one in maps), sum(len(one.values) for one in maps)
    size = np.clip(1.8 + 0.2 * columns, WIDTH, MAX_WIDTH), len(maps) + 0.19 * max(rows, 4) + 0.4
    figure, areas = new_figure("", len(maps), size)
    for axes, one in zip(areas, maps, strict=True):
        image = axes.imshow(one.values, cmap=one.colours, vmin=0, aspect="auto", interpolation="nearest")
        axes.grid(False)
        figure.colorbar(image, ax=axes, label=meaning)
        axes.set_title(one.title, **TITLE)
        axes.set_ylabel(down)
        number_axis(axes.yaxis)
        if len(one.names):
            axes.set_yticks(range(len(one.names)), map(shorten, one.names), fontsize=8, parse_math=False)
        if len(one.stops):
            axes.plot(one.stops, range(len(one.stops)), color=ORANGE, marker="|", linestyle="", label="stopped")
            axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set(xlabel=across, xlim=(-0.5, columns - 0.5))
    number_axis(axes.xaxis)
    if 0 < len(names) <= MAX_NAMES:
        axes.set_xticks(range(columns), map(shorten, names), fontsize=8, rotation=60, ha="right", parse_math=False)
    return figure


def number_axis(axis: Axis) -> None:
    """Whole numbers along an axis."""
    axis.set_major_locator(MaxNLocator(integer=True))


def shorten(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= MAX_TOKEN_CHARACTERS else text[: MAX_TOKEN_CHARACTERS - 1] + "…"


def change(values: pd.Series, written: Any = "{:.2f}".format, ordered: bool = True) -> str:
    """First and last value along buckets of numbers; the least and the largest of other buckets."""
    if ordered:
        return f"{written(values.iloc[0])} → {written(values.iloc[-1])}"
    return f"{written(values.min())} to {written(values.max())}"


# ---- halting


def accuracy_name(table: Mapping[str, Any]) -> str:
    if "decoder" in table:
        return "exact match"
    return "last-read accuracy" if "labelled_tokens" in table else "accuracy"


def spread(key: str) -> dict[str, tuple[str | None, dict]]:
    """Lines of the mean and the 95th percentile of steps."""
    return {f"{key}.mean": ("mean", MEAN), f"{key}.p95": ("95th percentile", TOP)}


def plot_steps(table: Mapping[str, Any]) -> Figure:
    """Share of halting units that stopped after each number of steps."""
    counts, units = np.array(table["steps_histogram"]), f"{table['unit']}s"
    shares = counts / counts.sum()
    mean = shares @ np.arange(len(shares))
    title = f"{units.capitalize()} stop after {mean:.1f} of {table['max_depth']} steps on average"
    return draw_shares(title, shares, f"share of {counts.sum():,} {units}", "executed depth steps")


def plot_mass(table: Mapping[str, Any]) -> Figure:
    """Mean halting mass of each state: how the output mixes the depths."""
    mass = np.array(table["halting_mass"])
    title = f"Depth {mass.argmax()} has the most weight in the output: {percent(mass.max())} of the halting mass"
    return draw_shares(title, mass, "mean halting mass", "depth step (0 is the input)")


def draw_shares(title: str, shares: np.ndarray, label: str, places: str) -> Figure:
    """Shares of 0, 1, ... steps as bars."""
    rows = pd.DataFrame({"value": map(str, range(len(shares))), "share": shares})
    return draw_chart(title, rows, [Panel(label, {"share": (None, {})}, percent=True, bars=True)], places)


def plot_difficulty(table: Mapping[str, Any], column: str) -> Figure:
    """Steps and, aligned below them, accuracy for each bucket of a slice column.

    Of a language model, both are those at the last read. Of two stacks, they are the mean steps of the tokens of each,
    and exact match, as in Figure 4 of the Sparse Universal Transformer paper.
    """
    data, key, name, two = table["slices"][column], difficulty_key(table), accuracy_name(table), "decoder" in table
    rows, ordered = pd.json_normalize(data["rows"]), data["numeric"]
    # no model can beat a constant answer on examples of one label, as in slices by label
    rows["constant"] = rows["majority_baseline"].where(rows["majority_baseline"] < 1)
    constant = "most frequent target" if two else "majority class"
    panels = [Panel(name, {"accuracy": (name, ANSWERS), "constant": (constant, CONSTANT)}, percent=True)]
    found = f"{name} {change(rows['accuracy'], percent, ordered)}"
    if not table["fixed_depth"]:
        steps = "steps at the last read" if key == "answer_steps" else "steps"
        found = f"{steps} {change(rows[f'{key}.mean'], ordered=ordered)}, {found}"
        label = "mean depth steps of a token" if two else steps if key == "answer_steps" else "executed depth steps"
        stacks = {"steps.mean": (ENCODER, MEAN), "decoder_steps.mean": (DECODER, TOP)}
        panels.insert(0, Panel(label, stacks if two else spread(key)))
    return draw_chart(f"By {column}: {found}", rows, panels, column)


def plot_token_steps(table: Sequence[Mapping[str, Any]], column: str) -> Figure:
    """Steps of tokens by `column`: "position" or "kind"."""
    rows = pd.json_normalize(table)
    most = rows.loc[rows["steps.mean"].idxmax()]
    title = f"Most steps at {column} {most['value']}: {most['steps.mean']:.2f} on average"
    label = column if column == "position" else "token"
    return draw_chart(title, rows, [Panel("executed depth steps", spread("steps"))], label)


def plot_calibrated_steps(calibration: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Mean steps of a calibrated exit and, below them, its accuracy and that of full depth, by difficulty."""
    table, column = pd.DataFrame(rows), calibration["difficulty"]
    steps = {"mean_depth": ("mean", MEAN)}
    if calibration.get("trained_steps") is not None:
        table["trained"] = calibration["trained_steps"]
        steps["trained"] = "most steps in training", {**CONSTANT, "marker": ""}
    answers = {"full_accuracy": ("full depth", BEHIND), "accuracy": ("early exit", ANSWERS)}
    table = table.astype(dict.fromkeys(answers, float))
    panels = [Panel("executed depth steps", steps), Panel("accuracy", answers, percent=True)]
    return draw_chart(f"Steps of the calibrated exit by {column}: {change(table['mean_depth'])}", table, panels, column)


def plot_thresholds(rows: Sequence[Mapping[str, Any]], name: str) -> Figure:
    """Accuracy (called `name`), block calls and time at each halting threshold of a sweep; the last row: full depth."""
    table, (*lower, full) = pd.json_normalize([*rows]), rows
    fast = min(lower or rows, key=lambda row: row["relative_time"])
    title = (
        f"Threshold {fast['threshold']:g}: {percent(fast['relative_time'])} of the time, {name} "
        f"{100 * (fast['accuracy'] - full['accuracy']):+.1f} points"
    )
    table["value"] = ["full depth" if row["threshold"] is None else f"{row['threshold']:g}" for row in rows]
    calls = {f"stacks.{stack}.share": (stack, style) for stack, style in zip(full["stacks"], SERIES, strict=False)}
    panels = [
        Panel(name, {"accuracy": (None, ANSWERS)}, percent=True, from_zero=False),
        Panel("block calls", calls, percent=True),
        Panel("time of a pass", {"relative_time": (None, CONSTANT)}, percent=True),
    ]
    return draw_chart(title, table, panels, "halting threshold at test time")


# ---- maps of examples, and of experts


def plot_heat_map(heat_map: Mapping[str, Any]) -> Figure:
    """Halting mass of each halting unit (row) over depth (column) for one example."""
    steps, total = heat_map["steps"], len(heat_map["rows"])
    part = "" if total <= MAX_ROWS else f" (first {MAX_ROWS} of {total})"
    title = f"One example stops after {min(steps)} to {max(steps)} steps{part}"
    shown = Map(title, *(heat_map[name][:MAX_ROWS] for name in ("mass", "rows", "steps")))
    return draw_maps([shown], "halting mass", "depth step (0 is the input)")


def plot_memory_map(memory: Mapping[str, Any]) -> Figure:
    """Attention of chunks to memory slots, and their updates: `reads` and `writes` of `memory_map`, (chunks, slots)."""
    reads = Map("Reads: mean attention of a chunk's tokens to each slot", np.transpose(memory["reads"]))
    writes = Map("Writes: how far a chunk moves each slot", np.transpose(memory["writes"]), colours="Oranges")
    return draw_maps([reads, writes], "", "chunk", "memory slot", names=memory["chunks"])


def plot_expert_usage(table: Mapping[str, Any]) -> Figure:
    """Share of each expert (column) in each step (row), one panel for each module; a step without tokens is empty."""
    maps = []
    for name, module in table["modules"].items():
        usage = np.array(module["usage"])
        # not a number where no token takes a step
        shares = usage / np.where(usage.any(1), usage.sum(1), np.nan)[:, None]
        balance = "" if module["balance"] is None else f", balance {module['balance']:.2f}"
        title = f"{name.capitalize()}: {module['num_experts']} experts{balance}"
        maps.append(Map(title, shares, [str(step) for step in range(1, len(usage) + 1)]))
    return draw_maps(maps, "share", "expert", "step")


# ---- texts


def plot_loss_by_position(table: Mapping[str, Any]) -> Figure:
    """Bits per token in each bin of positions, for each way of carrying state."""
    rows = pd.DataFrame(table["by_position"])
    bits = pd.DataFrame(rows["bits_per_token"].tolist())
    # texts that are read in one piece
    text, piece = (table["texts"].removesuffix("s"), "block") if "texts" in table else ("document", "segment")
    found = f"{change(bits[DOCUMENT])} bits per token"
    for row in table["carries"]:
        if row["carry"] == SEGMENT:
            found = f"resetting costs {row['difference']:.3f} bits per token"
    lines = {carry: (CARRIES[carry], style) for carry, style in zip(CARRIES, SERIES, strict=True) if carry in bits}
    panel = Panel("bits per token", lines, from_zero=False)
    label = f"tokens of the {text} before, at least (a {piece} has {table['segment_length']:,})"
    bits["value"] = rows["first"].map("{:,}".format)
    return draw_chart(f"Loss by position in the {text}: {found}", bits, [panel], label)
