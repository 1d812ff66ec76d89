"""Questions about an architecture or a model that a card or a command asks, one function each."""

from collections.abc import Mapping
from typing import Any


def repeats_one_block(model_type: str) -> bool:
    """Whether the architecture applies one block repeatedly over depth."""
    return model_type in ("ut", "gut", "gutlb", "ndr", "sut")


def carries_state(model_type: str) -> bool:
    """Whether the architecture reads a sequence chunk by chunk and carries a state from one to the next."""
    return model_type in ("tlb", "gutlb", "block_recurrent")


def generates_with_cache(chunks: Mapping[str, Any] | None) -> bool:
    """Whether a model of these `CardData.chunks` can cache a prompt.

    The borders of chunks of a variable size move as the sequence grows, so that no state can be kept between tokens.
    """
    return chunks is None or chunks.get("chunking", "fixed") == "fixed"


def is_classifier(model: Any) -> bool:
    """Whether a loaded model has a classification head."""
    return hasattr(model, "classifier")
