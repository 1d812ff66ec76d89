"""`hf-recurrent evaluate` on long documents: bits, by position and with less carried from segment to segment."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..templating import NOTHING, bits
from .console import table

if TYPE_CHECKING:
    from ..training.evaluate import Checkpoint, Request

MAX_IN_FULL = 1e6
# headings of the carries, narrow enough for three in a terminal
HEADINGS = {"document": "carried", "segment": "all reset", "state": "states reset"}


def evaluate(
    checkpoint: "Checkpoint",
    request: "Request",
    segment_length: int | None,
    batch_size: int,
    carries: Sequence[str] | None,
) -> dict[str, dict[str, Any]]:
    """Split name -> table of losses (see `recurrence_table`).

    Raises:
        ValueError: a checkpoint that cannot read documents, or a segment that does not fit it.
    """
    from ..analysis.recurrence import PROSE, default_segment_length, evaluate_split
    from ..training.document_loop import check_segment_length
    from ..training.evaluate import data_arguments, load_examples
    from ..training.objectives import CLASSIFICATION

    arguments = data_arguments(request)
    if checkpoint.objective is CLASSIFICATION:
        raise ValueError(
            f"{checkpoint.name} is a sequence classifier, but {arguments.benchmark} has no labels: evaluate an "
            "AutoModelForCausalLM on it"
        )
    length = default_segment_length(checkpoint.model.config) if segment_length is None else segment_length
    check_segment_length(checkpoint.model.config, length)
    return {
        split: evaluate_split(
            checkpoint.model,
            checkpoint.tokenizer,
            rows,
            segment_length=length,
            batch_size=batch_size,
            carries=carries,
            by_words=arguments.benchmark_config in PROSE,
            progress=True,
        )
        for split, rows in load_examples(request, arguments).items()
    }


def drawings(tables: dict[str, dict[str, Any]]) -> list[Any]:
    """A table of the splits, and for each split the cost of resetting, and its loss by position."""
    from ..hub.phrases import phrase

    heads = ("docs", "tokens", "bits/byte", "bits/token", "constant", "per word")
    rows = (
        [
            name,
            f"{result['documents']:,}",
            f"{result['tokens']:,}",
            bits(result["bits_per_byte"]),
            bits(result["bits_per_token"]),
            bits(result["constant_bits_per_token"]),
            perplexity(result["word_perplexity"]),
        ]
        for name, result in tables.items()
    )
    drawn = [table("long documents", [("split", False), *((head, True) for head in heads)], rows)]
    for name, result in tables.items():
        resets = (
            [phrase("reset_name", row["carry"]), bits(row["bits_per_token"]), phrase("more_bits", row)]
            for row in result["carries"]
        )
        columns = [("reset", False), ("bits/token", True), ("more bits/token", True)]
        drawn.append(table(f"{name}, read in segments of {result['segment_length']:,} tokens", columns, resets))
        carries = [row["carry"] for row in result["carries"]]
        positions = (
            [
                place(row),
                f"{row['tokens']:,}",
                *(bits(row["bits_per_token"][carry]) for carry in carries),
            ]
            for row in result["by_position"]
        )
        columns = [
            ("tokens before", False),
            ("tokens", True),
            *((HEADINGS[carry], True) for carry in carries),
        ]
        drawn.append(table(f"{name}, bits per token by position in the document", columns, positions))
    return drawn


def place(row: dict[str, Any]) -> str:
    """The numbers of tokens before those of a row."""
    return f"{row['first']:,}" if row["first"] == row["last"] else f"{row['first']:,}\u2013{row['last']:,}"


def perplexity(value: float | None) -> str:
    """A perplexity by word; that of an untrained model has too many digits for a table."""
    if value is None:
        return NOTHING
    return f"{value:,.2f}" if value < MAX_IN_FULL else f"{value:.2e}"


def legend(tables: dict[str, dict[str, Any]]) -> list[str]:
    """Openness of the gates, mean depth, and meanings of the headings."""
    from ..hub.phrases import phrase

    gates = [f"{name}: {phrase('gates', result['gates'])}" for name, result in tables.items() if result["gates"]]
    steps = [
        f"{name}: a token takes {result['mean_steps']:.2f} of at most {result['max_depth']} depth steps on average."
        for name, result in tables.items()
        if result["mean_steps"] is not None
    ]
    return [
        *gates,
        *steps,
        "constant: bits/token of the best prediction that knows only how frequent each token is among the same tokens; "
        "per word: perplexity.",
        "more bits/token: than with nothing reset, with the standard error over documents.",
    ]
