"""Tokens that have halted among packed ones.

Shapes: R rows of W columns, whose places are R * W; n rows that stay; H heads, D head dim, E width; F frozen tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..ops.attention import KeyValue, select_memory


class Tokens(NamedTuple):
    """Tokens by their number in the batch, `b * S + s`, and by their place in a layout, `r * W + w`."""

    units: torch.Tensor
    places: torch.Tensor

    def at(self, index: torch.Tensor) -> "Tokens":
        return Tokens(*(each[index] for each in self))

    def followed_by(self, other: "Tokens") -> "Tokens":
        return Tokens(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


class FrozenTokens(NamedTuple):
    """Tensors of halted tokens, passed from layout to layout.

    Keys and values are in buffers (R * W, H, D), of live tokens too, or in pieces (m, H, D) with `places` (F,) of the
    tokens of all pieces, R * W in rows that left.
    """

    key: torch.Tensor | tuple[torch.Tensor, ...] | None = None
    value: torch.Tensor | tuple[torch.Tensor, ...] | None = None
    places: torch.Tensor | None = None
    memory: KeyValue | torch.Tensor | None = None  # of the rows present
    hidden: torch.Tensor | None = None  # (R * W, E) states of halted tokens, zeros elsewhere, for running means
    released: Tokens | None = None
    released_state: torch.Tensor | None = None

    def after_step(self, key: torch.Tensor, value: torch.Tensor, number: int) -> "FrozenTokens":
        """Those after a step, from its keys and values: buffers, or new ones, of which the first are of live tokens.

        Args:
            number: of live tokens.
        """
        places = self.places
        if places is not None:
            new = (key, value)
            key, value = self.key, self.value
            if self.released is not None:
                # a view would keep the keys of live tokens; the newest come first, so that their order stays
                key, value = ((fresh[number:].clone(), *older) for fresh, older in zip(new, (key, value), strict=True))
                places = torch.cat((self.released.places, places))
        return self._replace(key=key, value=value, places=places, released=None, released_state=None)

    def of_rows(
        self, rows: torch.Tensor, width: int, columns: slice, moved: Callable[[torch.Tensor], torch.Tensor]
    ) -> "FrozenTokens":
        """Those of the `rows` (n,) and some of the columns (R, width), to which places are `moved`."""

        def select(buffer: torch.Tensor | tuple | None) -> torch.Tensor | tuple | None:
            if buffer is None or isinstance(buffer, tuple):
                return buffer
            return buffer.unflatten(0, (-1, width))[:, columns].index_select(0, rows).flatten(0, 1)

        released = self.released
        return self._replace(
            key=select(self.key),
            value=select(self.value),
            places=None if self.places is None else moved(self.places),
            memory=select_memory(self.memory, rows),
            hidden=select(self.hidden),
            released=None if released is None else released._replace(places=moved(released.places)),
        )
