"""What recurrent networks keep of the tokens they have read, as a transformers cache of constant size."""

from typing import NamedTuple

import torch

from ..common.cache import CountingLayer, RecurrentCache
from .lstm import keep


class StateLayer(CountingLayer):
    """The state of one layer, under its fields' names."""

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens, which is possible for none.

        Raises:
            ValueError: a number other than zero.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): pass how many tokens to remove, as a negative number")
        if tokens_to_remove and self.length:
            raise ValueError(
                f"crop({tokens_to_remove}): a recurrent state holds no single tokens to take back; copy.deepcopy the "
                "cache before reading on, or read the shorter context again"
            )

    def take(self, state: NamedTuple, read: torch.Tensor, before: tuple | None, num_columns: int) -> None:
        """Replace the state `before` of the rows that have `read` (B,) tokens among the new columns."""
        old = before or [torch.zeros_like(new) for new in state]
        self.tensors = {
            name: keep(read, new, kept) for (name, new), kept in zip(state._asdict().items(), old, strict=True)
        }
        self.length += num_columns
        self.is_initialized = True


class StateCache(RecurrentCache):
    """The states after the last token of each row; of constant size, however long the context."""

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
        """The state of each layer, None before the first token; zeros, as then, for the rows of `start` (B,)."""
        states = [kind(**layer.tensors) if layer.tensors else None for layer in self.layers]
        if start is None or not self.layers[0].tensors:
            return states
        return [kind(*(keep(start, torch.zeros_like(tensor), tensor) for tensor in state)) for state in states]

    def store(self, states: list[NamedTuple], before: list[tuple | None], mask: torch.Tensor) -> None:
        """Take the states after the new columns, tokens of which `mask` (B, S) tells."""
        read = mask.any(-1)
        for layer, state, old in zip(self.layers, states, before, strict=True):
            layer.take(state, read, old, mask.shape[1])
