"""Keys and values of the distant past, and their retrieval: the Memorizing Transformer's layer (Wu et al. 2022) as the
Block-Recurrent Transformer's authors run it.

Shapes: B rows, Q queries, W tokens of a block, M slots, H heads, D head dim, k neighbours.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..common.initialization import LearnedTensor

# the score of a slot that holds nothing yet
UNWRITTEN = -1e6


class Slots(NamedTuple):
    """What a layer remembers of each row: a ring that the newest block overwrites the oldest of."""

    key: torch.Tensor  # (B, H, M, D), zeros where nothing has been written
    value: torch.Tensor  # (B, H, M, D)
    count: torch.Tensor  # (B,) tokens written, more than M once it has gone round

    @classmethod
    def empty(cls, like: torch.Tensor, num_slots: int) -> "Slots":
        """Of rows with keys (B, W, H, D)."""
        rows, _, heads, width = like.shape
        room = like.new_zeros(rows, heads, num_slots, width)
        return cls(room, room, torch.zeros(rows, dtype=torch.long, device=like.device))

    @property
    def written(self) -> torch.Tensor:
        """(B, M) bool."""
        return torch.arange(self.key.shape[2], device=self.count.device) < self.count[:, None]

    def write(self, key: torch.Tensor, value: torch.Tensor, rows: torch.Tensor) -> "Slots":
        """With the block (B, W, H, D) of the `rows` (B,) where it is complete; without gradient."""
        width = key.shape[1]
        place = (self.count // width) % (self.key.shape[2] // width)
        index = place[:, None, None, None, None].expand(-1, key.shape[2], 1, width, key.shape[3])
        keep = rows[:, None, None, None, None]

        def put(room: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
            blocks = room.unflatten(2, (-1, width))
            new = block.detach().transpose(1, 2).unsqueeze(2).to(room.dtype)
            return blocks.scatter(2, index, torch.where(keep, new, blocks.gather(2, index))).flatten(2, 3)

        return Slots(put(self.key, key), put(self.value, value), self.count + width * rows.long())

    def forget(self, rows: torch.Tensor) -> "Slots":
        """Without what the `rows` (B,) hold."""
        gone = rows[:, None, None, None]
        return Slots(
            self.key.masked_fill(gone, 0.0), self.value.masked_fill(gone, 0.0), self.count.masked_fill(rows, 0)
        )


def neighbours(
    scores: torch.Tensor, written: torch.Tensor, count: int, exact: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which slots are retrieved: scores (B, H, Q, M) -> scores and slots (B, H, Q, k).

    A slot that holds nothing is taken only where others are lacking, with the score 0 that its key of zeros has.
    """
    known = torch.where(written[:, None, None], scores, UNWRITTEN)
    if exact:
        best, index = known.topk(count, dim=-1)
    else:
        best, row = known.unflatten(-1, (-1, count)).max(-2)
        index = row * count + torch.arange(count, device=scores.device)
    return torch.where(best <= UNWRITTEN, 0.0, best), index


class ExternalMemory(nn.Module):
    """Mixes what a head's window gives with what it retrieves, by a learned share of each head, a half at first."""

    def __init__(self, config):
        super().__init__()
        self.num_slots = config.memory_size
        self.num_neighbors = config.num_neighbors
        self.exact = config.memory_retrieval == "exact"
        self.share = LearnedTensor(config.num_attention_heads, value=0.0)

    def forward(self, attended: torch.Tensor, query: torch.Tensor, scales: torch.Tensor, slots: Slots) -> torch.Tensor:
        """(B, Q, H, D) of the window, unit queries (B, Q, H, D), scales (H,) -> (B, Q, H, D)."""
        query = query.transpose(1, 2)
        scores = query @ slots.key.to(query.dtype).transpose(-1, -2)
        best, index = neighbours(scores, slots.written, self.num_neighbors, self.exact)
        wide = torch.promote_types(best.dtype, torch.float32)
        weights = (best.to(wide) * scales[:, None, None].to(wide)).softmax(-1).to(query.dtype)
        retrieved = torch.zeros_like(scores).scatter_add(-1, index, weights) @ slots.value.to(query.dtype)
        share = self.share().sigmoid()[:, None].to(attended.dtype)
        return torch.lerp(attended, retrieved.transpose(1, 2).to(attended.dtype), share)
