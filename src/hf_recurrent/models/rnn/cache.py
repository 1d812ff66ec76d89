"""The cache of recurrent networks, of constant size."""

import torch

from ..depth.cache import CacheLayer, RecurrentCache, Tensors
from ..ops.layers import where_rows


class StateCache(RecurrentCache):
    """The states after the last token of each sequence, under their names; of constant size."""

    def __init__(self, depth: int, signature: str):
        super().__init__([CacheLayer() for _ in range(depth)], depth, signature)

    def forget(self, number: int) -> None:
        raise ValueError(
            f"crop({-number}): a recurrent state holds no single tokens to take back; copy.deepcopy the cache before "
            "reading on, or read the shorter context again"
        )

    def states(self, start: torch.Tensor | None) -> list[Tensors]:
        """The state of each layer, nothing before the first token; zeros for the sequences of `start` (B,)."""
        states = [layer.tensors for layer in self.layers]
        if start is None:
            return states
        return [
            {name: where_rows(start, torch.zeros_like(tensor), tensor) for name, tensor in state.items()}
            for state in states
        ]

    def update_states(self, states: list[Tensors], before: list[Tensors], mask: torch.Tensor) -> None:
        """Replace the states by those after the new columns, whose tokens are True in `mask` (B, S), if any."""
        has_tokens, tensors = mask.any(-1), []
        for state, old in zip(states, before, strict=True):
            pairs = {name: (new, old[name] if old else torch.zeros_like(new)) for name, new in state.items()}
            tensors.append({name: where_rows(has_tokens, *pair) for name, pair in pairs.items()})
        self.write(tensors, mask.shape[1])
