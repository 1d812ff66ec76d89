"""`hf-recurrent evaluate` of a causal language model on own texts: bits and steps, by position and column."""

from typing import Any

from ..templating import NOTHING, bits, percent, steps
from .console import table
from .evaluate_documents import perplexity, place

MEASURES = [("bits/byte", True), ("bits/token", True), ("accuracy", True), ("mean steps", True)]


def drawings(tables: dict[str, dict[str, Any]]) -> list[Any]:
    """A table of the splits, and for each split its losses and steps by position and by each column of difficulty."""
    rows = (
        [name, f"{result['documents']:,}", f"{result['tokens']:,}", *measures(result)]
        for name, result in tables.items()
    )
    drawn = [table("texts", [("split", False), ("texts", True), ("tokens", True), *MEASURES], rows)]
    for name, result in tables.items():
        (carry,) = (row["carry"] for row in result["carries"])
        positions = (
            [
                place(row),
                f"{row['tokens']:,}",
                bits(row["bits_per_token"][carry]),
                depth(row["mean_steps"]),
            ]
            for row in result["by_position"]
        )
        columns = [("tokens before", False), ("tokens", True), ("bits/token", True), ("mean steps", True)]
        drawn.append(table(f"{name} by position in the text", columns, positions))
        for column, found in result["by_column"].items():
            by_value = ([row["value"], f"{row['n']:,}", *measures(row)] for row in found["rows"])
            drawn.append(table(f"{name} by {column}", [(column, False), ("texts", True), *MEASURES], by_value))
    return drawn


def measures(row: dict[str, Any]) -> list[str]:
    """Bits, accuracy and steps of a split or of the texts with a value of a column."""
    by_byte = row["bits_per_byte"]
    return [
        NOTHING if by_byte is None else bits(by_byte),
        bits(row["bits_per_token"]),
        percent(row["token_accuracy"]),
        depth(row["mean_steps"]),
    ]


def depth(mean: float | None) -> str:
    """Mean steps of a token, nothing of a fixed depth."""
    return NOTHING if mean is None else steps(mean)


def legend(tables: dict[str, dict[str, Any]]) -> list[str]:
    """Perplexities beside the best constant prediction, meanings of the headings, and how texts were read."""
    beside = [
        f"{name}: perplexity {perplexity(result['perplexity'])}; knowing only how frequent each of these tokens is "
        f"takes {bits(result['constant_bits_per_token'])} bits/token."
        for name, result in tables.items()
    ]
    result = next(iter(tables.values()))
    most, kind = result["segment_length"], result["texts"]
    return [
        *beside,
        f"texts: {kind} of at most {most:,} tokens, each read by itself; accuracy: of the likeliest next token.",
        f"mean steps: of a token, at most {result['max_depth']}; nothing where depth is fixed.",
    ]
