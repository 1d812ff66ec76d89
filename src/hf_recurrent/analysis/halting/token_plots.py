"""Figures of language models: depth by position and kind of token, depth along one string, and the memory slots."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .drawing import BLUE, GREY, ORANGE, new_figure, save, shorten, steps_axis

MAX_TOKENS = 64
MAX_CHUNK_LABELS = 24
# inches
TOKEN_WIDTH, CHUNK_WIDTH, SLOT_HEIGHT = 0.15, 0.3, 0.16


def plot_token_steps(table: Mapping[str, Any], path: str | os.PathLike, column: str) -> Path:
    """Ponder steps of tokens by `column` of the table's `tokens`: "position" or "kind"."""
    if not table.get("tokens"):
        raise ValueError("a classifier, or a model of fixed depth, has no steps by token to draw")
    if column not in table["tokens"]:
        raise ValueError(f"no tokens by '{column}'; the table has {sorted(table['tokens'])}")
    rows = table["tokens"][column]["rows"]
    figure, (axes,) = new_figure(1, (6.4, 3.6))
    places = range(len(rows))
    means, tops = ([row["steps"][name] for row in rows] for name in ("mean", "p95"))
    axes.bar(places, means, color=BLUE, width=0.7, label="mean")
    axes.plot(places, tops, color=ORANGE, marker="^", linestyle="", label="95th percentile")
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    names = [f"{row['value']}\nn={row['n']:,}" for row in rows]
    axes.set_xticks(places, names, fontsize=8, parse_math=False)
    axes.set_xlabel(column if column == "position" else "token")
    steps_axis(axes, "executed depth steps", max(tops))
    axes.set_title(f"Steps by {column}", loc="left")
    return save(figure, path)


def plot_depth_along(heat_map: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Executed steps of each token of one string, its last `MAX_TOKENS` if it has more.

    The tokens from which a labelled token is predicted, as `answers` says, stand out.
    """
    if not heat_map["steps"]:
        raise ValueError("a model of fixed depth goes equally deep along the string")
    shown = slice(-MAX_TOKENS, None)
    steps, answers = heat_map["steps"][shown], heat_map["answers"][shown]
    tokens = [shorten(token) for token in heat_map["rows"][shown]]
    figure, (axes,) = new_figure(1, (max(6.4, 1.2 + TOKEN_WIDTH * len(steps)), 2.8))
    for wanted, colour, label in ((False, GREY, "other tokens"), (True, ORANGE, "the next token is to be predicted")):
        places = [place for place, answer in enumerate(answers) if answer == wanted]
        if places:
            axes.bar(places, [steps[place] for place in places], color=colour, width=0.8, label=label)
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_xticks(range(len(tokens)), tokens, fontsize=7, parse_math=False)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.8, len(tokens) - 0.2)
    steps_axis(axes, "executed depth steps", max(steps))
    total = len(heat_map["steps"])
    part = "" if len(steps) == total else f" (the last {len(steps)} of {total} tokens)"
    axes.set_title(f"Depth along one string{part}", loc="left")
    return save(figure, path)


def plot_memory_map(memory: Mapping[str, Any], path: str | os.PathLike) -> Path:
    """Which slots each chunk reads, and which it changes: `reads` and `writes` of `memory_map`, (chunks, slots)."""
    reads, writes = memory["reads"], memory["writes"]
    if not len(reads) or len(reads) != len(writes):
        raise ValueError(f"expected as many chunks in reads as in writes, at least 1: got {len(reads)}, {len(writes)}")
    chunks, slots = len(reads), len(reads[0])
    height = 1.8 + 2 * max(SLOT_HEIGHT * slots, 1.0)
    figure, panels = new_figure(2, (min(max(6.4, 1.8 + CHUNK_WIDTH * chunks), 14.0), height))
    titles = (
        "Reads: mean attention of a chunk's tokens to each slot",
        "Writes: how far a chunk moves each slot",
    )
    for axes, values, colours, title in zip(panels, (reads, writes), ("Blues", "Oranges"), titles, strict=True):
        by_slot = [list(row) for row in zip(*values, strict=True)]
        image = axes.imshow(by_slot, aspect="auto", cmap=colours, vmin=0, interpolation="nearest")
        axes.set_ylabel("memory slot")
        axes.grid(False)
        axes.set_title(title, loc="left", fontsize=10)
        figure.colorbar(image, ax=axes)
    if chunks <= MAX_CHUNK_LABELS:
        names = [shorten(name) for name in memory["chunks"]]
        panels[-1].set_xticks(range(chunks), names, fontsize=8, rotation=60, ha="right", parse_math=False)
    panels[-1].set_xlabel("chunk")
    return save(figure, path)
