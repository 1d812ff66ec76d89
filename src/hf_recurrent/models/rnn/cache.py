"""The cache of recurrent networks, of constant size."""

from typing import NamedTuple

import torch

from ..depth.cache import CacheLayer, RecurrentCache
from .lstm import where_sequences


class StateCache(RecurrentCache):
    """The states after the last token of each sequence, under their fields' names; of constant size."""

    def __init__(self, depth: int, signature: str):
        super().__init__([CacheLayer() for _ in range(depth)], depth, signature)

    def forget(self, number: int) -> None:
        raise ValueError(
            f"crop({-number}): a recurrent state holds no single tokens to take back; copy.deepcopy the cache before "
            "reading on, or read the shorter context again"
        )

    def states(self, kind: type[tuple], start: torch.Tensor | None = None) -> list[tuple | None]:
        """The state of each layer, None before the first token; zeros for the sequences of `start` (B,)."""
        states = [kind(**layer.tensors) if layer.tensors else None for layer in self.layers]
        if start is None or self.num_rows is None:
            return states
        return [
            kind(*(where_sequences(start, torch.zeros_like(tensor), tensor) for tensor in state)) for state in states
        ]

    def update_states(self, states: list[NamedTuple], before: list[tuple | None], mask: torch.Tensor) -> None:
        """Replace the states by those after the new columns, whose tokens are True in `mask` (B, S), if any."""
        has_tokens, tensors = mask.any(-1), []
        for state, old in zip(states, before, strict=True):
            pairs = zip(state._asdict().items(), old or [torch.zeros_like(new) for new in state], strict=True)
            tensors.append({name: where_sequences(has_tokens, new, previous) for (name, new), previous in pairs})
        self.write(tensors, mask.shape[1])
