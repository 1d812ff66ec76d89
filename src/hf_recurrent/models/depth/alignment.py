"""Alignment of every sequence's tokens to the first columns, and of results to the original ones.

Attention by distance or by nearest match needs tokens without padding between them, and sinusoids count from a
sequence's first token. Shapes: B sequences, S columns.
"""

from typing import NamedTuple

import torch

from ..ops.graphs import in_graph
from ..ops.positions import tokens_first
from .loop import DepthOutput


class Alignment(NamedTuple):
    """A permutation of each sequence's columns, tokens first and in order."""

    order: torch.Tensor  # (B, S) column of each place
    inverse: torch.Tensor  # (B, S) place of each column

    @classmethod
    def from_mask(cls, mask: torch.Tensor) -> "Alignment | None":
        """The alignment of (B, S) bool, None if all tokens are aligned."""
        if not in_graph() and not bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            return None
        return cls(*tokens_first(mask))

    def align(self, states: torch.Tensor) -> torch.Tensor:
        """(B, S, ...)"""
        return permuted(states, self.order, 1)

    def restore(self, depth: DepthOutput) -> DepthOutput:
        """Permute every tensor that has a dimension for the columns back."""

        def tokens(values: torch.Tensor | None) -> torch.Tensor | None:
            return None if values is None else permuted(values, self.inverse, 1)

        def reads(weights: torch.Tensor) -> torch.Tensor:
            return permuted(weights, self.inverse, 2)

        def pairs(weights: torch.Tensor) -> torch.Tensor:
            return permuted(permuted(weights, self.inverse, 2), self.inverse, 3)

        def each(values: tuple[torch.Tensor, ...] | None, restored) -> tuple[torch.Tensor, ...] | None:
            return None if values is None else tuple(restored(value) for value in values)

        steps, probabilities = depth.ponder_steps, depth.halting_probabilities
        by_token = steps is not None and steps.dim() == 2
        return depth._replace(
            hidden_states=tokens(depth.hidden_states),
            ponder_steps=tokens(steps) if by_token else steps,
            halting_probabilities=tokens(probabilities) if by_token else probabilities,
            all_hidden_states=each(depth.all_hidden_states, tokens),
            attentions=each(depth.attentions, pairs),
            gates=each(depth.gates, tokens),
            read_attentions=each(depth.read_attentions, reads),
        )


def permuted(states: torch.Tensor, order: torch.Tensor, dim: int) -> torch.Tensor:
    """Permute dimension `dim` of (B, ...), for each sequence by its row of (B, S)."""
    shape = [1] * states.dim()
    shape[0], shape[dim] = order.shape
    return states.gather(dim, order.reshape(shape).expand(*states.shape[:dim], -1, *states.shape[dim + 1 :]))
