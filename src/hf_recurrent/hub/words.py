"""Facts of a card in words: how a model halts, how it reads, what the paper reports."""

from collections.abc import Mapping
from typing import Any

from ..analysis.tables import format_percent
from .card_data import CardData
from .tasks import GENERATION

NOTHING = "\u2013"
NO_PAPER_VALUE = "paper's value not available"


def percent(value: float | None) -> str:
    return NOTHING if value is None else format_percent(value)


def halting_words(data: CardData) -> str:
    """What halts, such as "token halting"; empty for a fixed depth."""
    if data.halting == "none":
        return ""
    if data.task == GENERATION and data.halting == "global":
        return "global halting (a token stops by the mean over itself and all tokens before it)"
    return f"{data.halting} halting"


def chunk_words(chunks: Mapping[str, Any]) -> str:
    """How a model reads chunk by chunk, or window by window, as the end of a sentence about it."""
    if "window_size" in chunks:
        return _window_words(chunks)
    size, number = chunks.get("chunk_size"), chunks.get("num_chunks")
    read = {
        "fixed": f"chunks of {size} tokens",
        "balanced": f"chunks of one size, at most {size} tokens",
        "count": f"at most {number} chunks of one size",
    }[chunks["chunking"]]
    slots = chunks["num_memory_slots"]
    return f"{read}, from one to the next of which it carries {slots} memory slot{'s' if slots > 1 else ''}"


def _window_words(windows: Mapping[str, Any]) -> str:
    read = f"windows of {windows['window_size']} tokens, each of which attends to itself and the one before"
    states = windows.get("num_state_vectors")
    if not states:
        return read
    return f"{read}, and carries {states} state vector{'s' if states > 1 else ''} from each to the next"


def reading_unit(chunks: Mapping[str, Any] | None) -> str:
    """What a model reads at a time."""
    if chunks is None:
        return "input"
    return "window" if "window_size" in chunks else "chunk"


def routing_words(routing: Mapping[str, Any]) -> str:
    """What is to be seen in a figure of routing, in numbers and without brackets, which would end its text."""
    steps, tokens = routing["steps"], len(routing["tokens"])
    last, number = steps[-1], len(steps)
    parts = [f"Attention of {tokens} tokens in {number} step{'s' if number > 1 else ''}"]
    parts.append(
        f"at the last one token {last['reader']} reads most from token {last['read']}, weight {last['weight']:.2f}"
    )
    if last["gate"] is not None:
        gates = [step["gate"] for step in steps]
        widest = max(gates)
        parts.append(
            f"the mean gate goes from {gates[0]:.2f} to {gates[-1]:.2f} and is widest, {widest:.2f}, at step "
            f"{gates.index(widest) + 1}"
        )
    if routing["stops"] is not None:
        least, most = min(routing["stops"]), max(routing["stops"])
        parts.append(
            f"tokens stop after {least} steps" if least == most else f"tokens stop after {least} to {most} steps"
        )
    return "; ".join(parts)


def paper_value(value: float | None, mean: float | None = None, std: float | None = None) -> str:
    """A split's cell in the paper's column: accuracy, or median and mean, with the standard deviation if known."""
    if value is None:
        return NO_PAPER_VALUE
    spread = "" if std is None else f" \u00b1 {100 * std:.1f}"
    return f"{percent(value)}{spread}" if mean is None else f"{percent(value)} (mean {percent(mean)}{spread})"
