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

    def back(name: str, *dims: int) -> torch.Tensor | tuple[torch.Tensor, ...] | None:
        values = getattr(depth, name)
        if isinstance(values, tuple):
            return tuple(permuted(each, places, *dims) for each in values)
        # values of sequences have no columns
        return values if values is None or values.dim() == 1 else permuted(values, places, *dims)

    by_token = depth.ponder_steps is not None and depth.ponder_steps.dim() == 2
    return depth._replace(
        hidden_states=back("hidden_states", 1),
        ponder_steps=back("ponder_steps", 1),
        halting_probabilities=back("halting_probabilities", 1) if by_token else depth.halting_probabilities,
        all_hidden_states=back("all_hidden_states", 1),
        attentions=back("attentions", 2, 3),
        gates=back("gates", 1),
        read_attentions=back("read_attentions", 2),
    )
