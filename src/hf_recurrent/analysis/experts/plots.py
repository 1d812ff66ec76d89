"""The figure of experts: how often each serves a token, step by step."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from ..halting.drawing import new_figure, save

EXPERT_USAGE = "expert_usage"
# inches
STEP_HEIGHT, EXPERT_WIDTH = 0.13, 0.16


def draw_all(folder: str | os.PathLike, table: Mapping[str, Any], *, prefix: str = "") -> list[dict[str, Any]]:
    """Draw the figure of one split into `folder`/assets -> its `kind`, `path` and `column`, in a list."""
    words = [re.sub(r"[^\w-]+", "_", word) for word in (prefix, EXPERT_USAGE) if word]
    path = f"assets/{'_'.join(words)}.png"
    plot_usage(table, Path(folder) / path)
    return [{"kind": EXPERT_USAGE, "path": path, "column": None}]


def plot_usage(table: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Share of each expert (column) in each step (row), one panel for each module; a step without tokens is empty."""
    modules = table["modules"]
    most = max(module["num_experts"] for module in modules.values())
    steps = max(len(module["usage"]) for module in modules.values())
    height = len(modules) * (0.75 + STEP_HEIGHT * max(steps, 6)) + 0.4
    figure, panels = new_figure(len(modules), (min(max(6.4, 1.8 + EXPERT_WIDTH * most), 14.0), height))
    for axes, (name, module) in zip(panels, modules.items(), strict=True):
        image = axes.imshow(
            shares_by_step(module["usage"]), aspect="auto", cmap="Blues", vmin=0, interpolation="nearest"
        )
        axes.set_ylabel("step")
        # the first step stands at row 0
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.yaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
        axes.set_xlim(-0.5, most - 0.5)
        axes.grid(False)
        balance = "" if module["balance"] is None else f", balance {module['balance']:.2f}"
        axes.set_title(f"{name.capitalize()}: {module['num_experts']} experts{balance}", loc="left", fontsize=10)
        figure.colorbar(image, ax=axes, label="share")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[-1].set_xlabel("expert")
    return save(figure, path)


def shares_by_step(usage: Sequence[Sequence[int]]) -> list[list[float]]:
    """Each expert's share of a step; NaN in a step that no token takes."""
    return [[count / sum(step) if sum(step) else math.nan for count in step] for step in usage]
