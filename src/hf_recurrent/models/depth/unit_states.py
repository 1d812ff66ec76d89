"""States of some halting units.

Shapes: n units or rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch


def select_units(state: NamedTuple, index: torch.Tensor) -> NamedTuple:
    """The state of the units or rows at `index` (n,)."""

    def select(wrapped: NamedTuple) -> NamedTuple:
        return type(wrapped)(*(None if tensor is None else tensor.index_select(0, index) for tensor in wrapped))

    return selected(state, select, lambda tensor: tensor.index_select(0, index))


def selected(state: NamedTuple, select: Callable, select_unit: Callable) -> NamedTuple:
    """`select` of a state; of an early exit's, which holds another one, `select_unit` of its own tensors."""
    return state.selected(select, select_unit) if hasattr(state, "selected") else select(state)


def select_rows(state: NamedTuple, keep: torch.Tensor, columns: slice, token_units: bool) -> NamedTuple:
    """The state of the rows at `keep` (n,) in these columns, which are the second dimension of states and tokens."""

    def select(wrapped: NamedTuple) -> NamedTuple:
        present = (tensor for tensor in wrapped if tensor is not None)
        cut = (tensor[:, columns] if tensor.dim() > 1 else tensor for tensor in present)
        return type(wrapped)(*(tensor.index_select(0, keep) for tensor in cut))

    def select_unit(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor[:, columns] if token_units else tensor).index_select(0, keep)

    return selected(state, select, select_unit)
