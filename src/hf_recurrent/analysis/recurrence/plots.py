"""Figures of recurrence: loss by position in the document, and how far gates are open."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..halting.drawing import BLUE, GREY, HEADROOM, ORANGE, new_figure, save, share_axis
from .record import DOCUMENT, SEGMENT, STATE

# what is drawn of each way of reading
LOOKS = {DOCUMENT: (BLUE, "o", "-"), SEGMENT: (GREY, "s", "--"), STATE: (ORANGE, "^", ":")}
NAMES = {DOCUMENT: "all carried", SEGMENT: "all reset at each segment", STATE: "state vectors reset at each segment"}


def plot_all(folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = "") -> list[dict[str, str | None]]:
    """Draw every figure that the table allows into `folder`/assets -> `kind`, `path` and `column` of each."""
    drawn = []
    for plot, kind in ((plot_loss_by_position, "loss_position"), (plot_gate_openness, "gate_openness")):
        if kind == "gate_openness" and table["gates"] is None:
            continue
        words = [re.sub(r"[^\w-]+", "_", word) for word in (prefix, kind) if word]
        path = f"assets/{'_'.join(words)}.png"
        plot(table, Path(folder) / path)
        drawn.append({"kind": kind, "path": path, "column": None})
    return drawn


def plot_loss_by_position(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Bits per token in each bin of positions, for each way of reading, with the segment's length marked."""
    rows = table["by_position"]
    figure, (axes,) = new_figure(1, (6.4, 3.8))
    # the middle of a bin on a logarithmic axis
    places = [(row["first"] * row["last"]) ** 0.5 for row in rows]
    for carry in rows[0]["bits_per_token"]:
        colour, marker, line = LOOKS[carry]
        bits = [row["bits_per_token"][carry] for row in rows]
        axes.plot(places, bits, color=colour, marker=marker, linestyle=line, label=NAMES[carry])
    axes.axvline(table["segment_length"], color=GREY, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"tokens of the document before (line: a segment of {table['segment_length']:,})")
    axes.set_ylabel("bits per token")
    axes.legend(frameon=False)
    axes.set_title("Loss by position in the document", loc="left")
    return save(figure, path)


def plot_gate_openness(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Share of state units by what share of them an update forgets."""
    gates = table["gates"]
    if gates is None:
        raise ValueError("a model without gated state vectors has no gates to draw")
    counts, units = gates["histogram"], gates["units"]
    figure, (axes,) = new_figure(1, (6.4, 3.4))
    width = 1 / len(counts)
    axes.bar(
        [(i + 0.5) * width for i in range(len(counts))], [n / units for n in counts], color=BLUE, width=0.9 * width
    )
    axes.axvline(gates["mean"], color=ORANGE, linewidth=1.5, label=f"mean {gates['mean']:.2f}")
    axes.legend(frameon=False)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share that an update forgets")
    share_axis(axes, "share of state units", HEADROOM * max(counts) / units)
    axes.set_title(f"Gate openness of {units:,} state units", loc="left")
    return save(figure, path)
