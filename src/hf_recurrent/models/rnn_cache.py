"""What recurrent networks keep of the tokens they have read, as a transformers cache of constant size."""

from typing import NamedTuple

import torch

from .cache import RecurrentCache
from .chunk_cache import RowsLayer
from .lstm import keep


class StateLayer(RowsLayer):
    """The state of one layer, under its fields' names."""

    def __init__(self):
        super().__init__()
        self.length = 0  # columns read, padding included

    def get_seq_length(self) -> int:
        return self.length

    def reset(self) -> None:
        super().reset()
        self.length = 0

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

    def take(self, state: NamedTuple, read: torch.Tensor, num_columns: int) -> None:
        """Replace the state of the rows that have `read` (B,) tokens among the new columns."""
        self.tensors = {
            name: keep(read, new, self.tensors.get(name, torch.zeros_like(new)))
            for name, new in state._asdict().items()
        }
        self.length += num_columns
        self.is_initialized = True


class StateCache(RecurrentCache):
    """The states after the last token of each row; of constant size, however long the context."""

    def __init__(self, depth: int, made_for: str):
        super().__init__([StateLayer() for _ in range(depth)], made_for)

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def num_rows(self) -> int | None:
        tensors = self.layers[0].tensors
        return next(iter(tensors.values())).shape[0] if tensors else None

    def states(self, kind: type[tuple]) -> list[tuple | None]:
        """The state of each layer, None before the first token."""
        return [kind(**layer.tensors) if layer.tensors else None for layer in self.layers]

    def store(self, states: list[NamedTuple], mask: torch.Tensor) -> None:
        """Take the states after the new columns, tokens of which `mask` (B, S) tells."""
        read = mask.any(-1)
        for layer, state in zip(self.layers, states, strict=True):
            layer.take(state, read, mask.shape[1])
