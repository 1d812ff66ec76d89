"""The cache of recurrent networks, of constant size."""

from typing import NamedTuple

import torch

from ..depth.cache import CountingLayer, RecurrentCache
from .lstm import where_sequences


class StateLayer(CountingLayer):
    """The state of one layer, under its fields' names."""

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error: a recurrent state cannot forget its last tokens.

        Raises:
            ValueError: a number other than zero.
        """
        if tokens_to_remove and self.length:
            raise ValueError(
                f"crop({tokens_to_remove}): a recurrent state holds no single tokens to take back; copy.deepcopy the "
                "cache before reading on, or read the shorter context again"
            )


class StateCache(RecurrentCache):
    """The states after the last token of each sequence; of constant size, however long the context."""

    def __init__(self, depth: int, signature: str):
        super().__init__([StateLayer() for _ in range(depth)], signature)

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def num_rows(self) -> int | None:
        tensors = self.layers[0].tensors
        return next(iter(tensors.values())).shape[0] if tensors else None

    def states(self, kind: type[tuple], start: torch.Tensor | None = None) -> list[tuple | None]:
        """The state of each layer, None before the first token; zeros for the sequences of `start` (B,)."""
        states = [kind(**layer.tensors) if layer.tensors else None for layer in self.layers]
        if start is None or not self.layers[0].tensors:
            return states
        return [
            kind(*(where_sequences(start, torch.zeros_like(tensor), tensor) for tensor in state)) for state in states
        ]

    def update_states(self, states: list[NamedTuple], before: list[tuple | None], mask: torch.Tensor) -> None:
        """Replace the states by those after the new columns, whose tokens are True in `mask` (B, S), if any."""
        has_tokens = mask.any(-1)
        for layer, state, old in zip(self.layers, states, before, strict=True):
            pairs = zip(state._asdict().items(), old or [torch.zeros_like(new) for new in state], strict=True)
            layer.write({name: where_sequences(has_tokens, new, previous) for (name, new), previous in pairs})
            layer.count(mask.shape[1])
