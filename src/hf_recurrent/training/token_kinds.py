"""The kinds of tokens that halting statistics of language models are kept for."""

from typing import Any

import numpy as np

from ..analysis.halting import TokenKinds
from ..benchmarks.flip_flop.strings import INSTRUCTIONS


def kinds_of(benchmark: str, tokenizer: Any) -> TokenKinds | None:
    """The kinds of a benchmark's tokens; None where none are told apart."""
    return flip_flop_kinds(tokenizer) if benchmark == "flip_flop" else None


def flip_flop_kinds(tokenizer: Any) -> TokenKinds:
    """The instructions of a flip-flop string, write, ignore and read, and the bits that follow them."""
    numbers = tokenizer.convert_tokens_to_ids(list(INSTRUCTIONS))

    def of(input_ids: np.ndarray) -> np.ndarray:
        kinds = np.full(input_ids.shape, -1)
        for kind, number in enumerate(numbers):
            here = input_ids == number
            kinds[here] = kind
            kinds[:, 1:][here[:, :-1]] = len(INSTRUCTIONS) + kind
        return kinds

    return TokenKinds((*INSTRUCTIONS, *(f"bit after {word}" for word in INSTRUCTIONS)), of)
