"""Figures of models with two stacks: when the tokens of each stop."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .figures import BLUE, GREY, new_figure, save, steps_axis
from .model_facts import DECODER, ENCODER
from .plots import draw_accuracy, save_halting_figures


def plot_pairs(folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str) -> list[dict[str, str | None]]:
    """Draw every figure that a split's `pair_table` allows into `folder`/assets, and list them for the card.

    `column` of an entry is the slice column, or the stack that the figure is about.
    """
    drawn = []
    for stack in (ENCODER, DECODER) if not table["fixed_depth"] else ():
        own = {**table, **(table["decoder"] if stack == "decoder" else {}), "slices": {}}
        for plot in save_halting_figures(folder, own, prefix=f"{prefix}_{stack}"):
            drawn.append({**plot, "column": stack})
    for column, data in table["slices"].items():
        # a column that is the same everywhere compares nothing
        if len(data["rows"]) > 1:
            name = re.sub(r"[^\w-]+", "_", f"{prefix}_stacks_{column}")
            plot_stacks(table, Path(folder) / "assets" / f"{name}.png", column)
            drawn.append({"kind": "stacks", "path": f"assets/{name}.png", "column": column})
    return drawn


def plot_stacks(table: Mapping[str, Any], path: str | os.PathLike, column: str) -> Path:
    """Mean steps of the tokens of both stacks and, aligned below them, exact match for each bucket of a slice column.

    By operators it is Figure 4 of "Sparse Universal Transformer".
    """
    rows = table["slices"][column]["rows"]
    places = range(len(rows))
    figure, panels = new_figure(1 if table["fixed_depth"] else 2, (6.4, 3.4 if table["fixed_depth"] else 5.2))
    if not table["fixed_depth"]:
        for stack, key, color, marker in (("encoder", "steps", BLUE, "o"), ("decoder", "decoder_steps", GREY, "s")):
            panels[0].plot(places, [row[key]["mean"] for row in rows], color=color, marker=marker, label=stack)
        maximum = max(row[key]["mean"] for row in rows for key in ("steps", "decoder_steps"))
        steps_axis(panels[0], "mean depth steps of a token", maximum)
        panels[0].legend(frameon=False, ncols=2)
    draw_accuracy(panels[-1], rows, column, "exact match", "most frequent target")
    panels[0].set_title(f"Exact match by {column}, fixed depth" if table["fixed_depth"] else f"Steps by {column}")
    return save(figure, path)
