"""How often each expert served a token, by step and by token.

Shapes: B rows, S tokens, L steps, k experts of a token, E experts, V token ids.
"""

import numpy as np


class ExpertCounts:
    """Sums over batches of what one router did: `usage` (L, E) by step, and `tokens` (E, V) by token id.

    A token counts once for each of its k experts in each step that it takes.
    """

    def __init__(self, num_steps: int, num_experts: int, vocab_size: int, per_token: int):
        self.per_token = per_token
        self.usage = np.zeros((num_steps, num_experts), dtype=np.int64)
        self.tokens = np.zeros((num_experts, vocab_size), dtype=np.int64)

    def add(self, experts: np.ndarray, ids: np.ndarray) -> None:
        """Count a batch: expert ids (B, S, L, k), negative where a token was not routed, and token ids (B, S).

        Raises:
            ValueError: the two do not fit, or an id is out of range.
        """
        if experts.ndim != 4 or experts.shape[:2] != ids.shape or experts.shape[2] > len(self.usage):
            raise ValueError(
                f"experts have shape {experts.shape} and token ids {ids.shape}: expected (rows, tokens, at most "
                f"{len(self.usage)} steps, experts of a token) and (rows, tokens)"
            )
        routed = experts >= 0
        steps = np.broadcast_to(np.arange(experts.shape[2])[:, None], experts.shape)[routed]
        words = np.broadcast_to(ids[:, :, None, None], experts.shape)[routed]
        chosen = experts[routed]
        for name, values, most in (("expert", chosen, len(self.tokens)), ("token", words, self.tokens.shape[1])):
            if values.size and not 0 <= values.min() <= values.max() < most:
                raise ValueError(f"{name} ids go from {values.min()} to {values.max()}, but there are {most}")
        self.usage += _histogram(steps, chosen, self.usage.shape)
        self.tokens += _histogram(chosen, words, self.tokens.shape)


def _histogram(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """How often each (row, column) occurs."""
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)
