"""The card's section on experts: how evenly they are used, and which tokens each of them serves."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# kinds of plots, as `analysis.plots.save_expert_figures` names them
EXPERTS = ("expert_usage",)
EVEN, UNEVEN = 0.95, 0.75


def add_experts(
    folder: str | os.PathLike, tables: Mapping[str, Any], drawn: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Path:
    """Show expert statistics in the card of `folder`, in the place of earlier ones -> the card's path.

    Args:
        tables: split -> `expert_table`.
        drawn: split -> what `draw_all` drew of it in `folder`.

    Raises:
        ValueError: the folder has no card data, or the card could not be published; nothing is written then.
    """
    from .sections import replace_section

    return replace_section(folder, EXPERTS, drawn, experts=dict(tables))


def tokens_words(tokens: Sequence[Mapping[str, Any]]) -> str:
    """Tokens as code, in a cell of a table."""
    return " ".join(code(item["token"]) for item in tokens) or "\u2013"


def code(text: str) -> str:
    """A text as inline code that cannot end its table cell, break its line or be taken for markup."""
    text = text.replace("|", "\\|").replace("\n", "\\n")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def balance_words(module: Mapping[str, Any]) -> str:
    """How evenly experts are used, as the end of a sentence about a module."""
    if module["balance"] is None:
        return "has one expert, so that there is nothing to balance."
    used, experts = len(module["experts"]), module["num_experts"]
    how = "evenly" if module["balance"] >= EVEN else "fairly evenly" if module["balance"] >= UNEVEN else "**unevenly**"
    largest = max(module["shares"])
    return (
        f"uses {used} of {experts} experts, {how} (entropy {module['balance']:.2f} of log {experts}); the busiest does "
        f"{largest:.1%} of the work, where an even share is {1 / experts:.1%}."
    )


def usage_words(table: Mapping[str, Any]) -> str:
    """What is to be seen in the figure, in numbers."""
    parts = [
        f"{name} {module['balance']:.2f}" for name, module in table["modules"].items() if module["balance"] is not None
    ]
    return "Share of each expert in each step; balance " + (", ".join(parts) or "of single experts")


def by_use(module: Mapping[str, Any]) -> bool:
    """Whether there is more than one expert to tell apart."""
    return module["num_experts"] > 1


def has_decoder(tables: Mapping[str, Any]) -> bool:
    """Whether there are modules of a decoder that reads an encoder."""
    return any("decoder" in name for table in tables.values() for name in table["modules"])


FILTERS = {
    "balance_words": balance_words,
    "by_use": by_use,
    "has_decoder": has_decoder,
    "tokens_words": tokens_words,
    "usage_words": usage_words,
}
