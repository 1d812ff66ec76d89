"""How far the gates of a recurrent state are open: what share of each unit an update forgets.

Shapes: B rows, K blocks a segment, S state vectors, E width, U = S x E units of a state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

# a share of 1 forgets all at once; its logarithm is taken of what a float32 can tell from that
LEAST_KEPT = 1e-7


@dataclass(frozen=True)
class GateRecord:
    """Means over all updates of the rows that were read.

    Fields:
        openness: `(U,)` share of each unit that an update forgets, from 0 to 1.
        log_kept: `(U,)` logarithm of the share that it keeps; over k updates exp(k log_kept) is left.
        updates: how many updates the means are over.
    """

    openness: np.ndarray
    log_kept: np.ndarray
    updates: int

    @property
    def half_life(self) -> np.ndarray:
        """`(U,)` updates after which half of a unit is forgotten: ln 2 / -ln(1 - share), infinite where nothing is."""
        with np.errstate(divide="ignore"):
            return np.log(2) / np.abs(self.log_kept)


class GateSums:
    """Adds up the gates of segments in constant memory."""

    def __init__(self):
        self.openness: torch.Tensor | None = None
        self.log_kept: torch.Tensor | None = None
        self.updates = 0

    def add(self, gates: Sequence[torch.Tensor], complete: torch.Tensor) -> None:
        """Add the gates of a segment: (B, S, E) for each block that a row completes, the share that its update forgets.

        Args:
            complete: (B, K) bool, which blocks of a row hold nothing but tokens; others do not count.

        Raises:
            ValueError: another number of gates than blocks that a row completes, or a share that is none.
        """
        completed = int(complete.any(0).sum())
        if len(gates) != completed:
            raise ValueError(f"there are gates of {len(gates)} blocks, but rows complete {completed}")
        for gate, counted in zip(gates, complete[:, :completed].T, strict=True):
            shares = gate[counted].double().flatten(1)
            if not len(shares):
                continue
            if not bool(((shares >= 0) & (shares <= 1)).all()):
                raise ValueError(f"a gate is a share from 0 to 1, got {shares.min():g} to {shares.max():g}")
            opened, kept = shares.sum(0), (1 - shares).clamp_min(LEAST_KEPT).log().sum(0)
            self.openness = opened if self.openness is None else self.openness + opened
            self.log_kept = kept if self.log_kept is None else self.log_kept + kept
            self.updates += len(shares)

    def total(self) -> GateRecord | None:
        """None where no block was read as a whole."""
        if self.openness is None:
            return None
        means = (total.cpu().numpy() / self.updates for total in (self.openness, self.log_kept))
        return GateRecord(*means, updates=self.updates)


def complete_blocks(attention_mask: torch.Tensor, position: torch.Tensor, window_size: int) -> torch.Tensor:
    """Which blocks of a segment a row fills with tokens: (B, N) and (B,) -> (B, N / W) bool.

    Args:
        position: tokens of the document read before the segment, in whole blocks.
    """
    blocks = attention_mask.unfold(1, window_size, window_size).bool().all(-1)
    return blocks & (position % window_size == 0)[:, None]
