"""Alignment of every sequence's tokens to the first columns, and of results to the original ones.

Attention by distance or by nearest match needs tokens without padding between them, and sinusoids count from a
sequence's first token. Shapes: B sequences, S columns.
"""

import torch

from ..ops.graphs import in_graph
from ..ops.positions import tokens_first
from .loop import DepthOutput


def alignment(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The column (B, S) of each place, tokens first and in order, and the place (B, S) of each column.

    None if all tokens of the mask (B, S) are at the first columns already.
    """
    if not in_graph() and not bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        return None
    return tokens_first(mask)


def permuted(states: torch.Tensor, order: torch.Tensor, *dims: int) -> torch.Tensor:
    """Permute the dimensions `dims` of (B, ...), for each sequence by its row of (B, S)."""
    for dim in dims:
        shape = [1] * states.dim()
        shape[0], shape[dim] = order.shape
        states = states.gather(dim, order.reshape(shape).expand(*states.shape[:dim], -1, *states.shape[dim + 1 :]))
    return states


def restored(depth: DepthOutput, places: torch.Tensor) -> DepthOutput:
    """Permute every tensor that has a dimension for the columns back, by the places (B, S) of the columns."""
    dims = {"hidden_states": [1], "all_hidden_states": [1], "gates": [1], "attentions": [2, 3], "read_attentions": [2]}
    if depth.ponder_steps is not None and depth.ponder_steps.dim() == 2:
        dims |= {"ponder_steps": [1], "halting_probabilities": [1]}

    def back(name: str) -> torch.Tensor | tuple[torch.Tensor, ...] | None:
        values = getattr(depth, name)
        if isinstance(values, tuple):
            return tuple(permuted(each, places, *dims[name]) for each in values)
        return None if values is None else permuted(values, places, *dims[name])

    return depth._replace(**{name: back(name) for name in dims})
