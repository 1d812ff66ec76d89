"""Keys and values of the distant past, and their retrieval: the Memorizing Transformer's layer (Wu et al. 2022) as the
Block-Recurrent Transformer's authors run it.

Shapes: B sequences, Q queries, W tokens of a block, M slots, H heads, D head dim, k neighbours.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.initialization import LearnedTensor

EMPTY_SLOT_SCORE = -1e6


class KNNMemory(NamedTuple):
    """Keys and values of a layer's earlier blocks: a ring buffer, in which a new block overwrites the oldest one."""

    key: torch.Tensor  # (B, H, M, D), zeros in empty slots
    value: torch.Tensor  # (B, H, M, D)
    count: torch.Tensor  # (B,) tokens written, more than M once the first ones are overwritten

    @classmethod
    def empty(cls, like: torch.Tensor, num_slots: int) -> "KNNMemory":
        """An empty memory for keys (B, W, H, D)."""
        batch_size, _, num_heads, head_dim = like.shape
        states = like.new_zeros(batch_size, num_heads, num_slots, head_dim)
        return cls(states, states, torch.zeros(batch_size, dtype=torch.long, device=like.device))

    @property
    def occupied(self) -> torch.Tensor:
        """(B, M) bool."""
        return torch.arange(self.key.shape[2], device=self.count.device) < self.count[:, None]

    def of(self, rows: slice | torch.Tensor) -> "KNNMemory":
        """The memory of some sequences."""
        return KNNMemory(*(tensor[rows] for tensor in self))

    def write(self, key: torch.Tensor, value: torch.Tensor, completing: torch.Tensor) -> "KNNMemory":
        """Add the block (B, W, H, D) of the sequences that are `completing` (B,) it, without gradient."""
        width = key.shape[1]
        place = (self.count // width) % (self.key.shape[2] // width)
        index = place[:, None, None, None, None].expand(-1, key.shape[2], 1, width, key.shape[3])
        completes = completing[:, None, None, None, None]

        def overwrite(buffer: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
            blocks = buffer.unflatten(2, (-1, width))
            new = block.detach().transpose(1, 2).unsqueeze(2).to(buffer.dtype)
            return blocks.scatter(2, index, torch.where(completes, new, blocks.gather(2, index))).flatten(2, 3)

        count = self.count + width * completing.long()
        return KNNMemory(overwrite(self.key, key), overwrite(self.value, value), count)

    def reset(self, start: torch.Tensor) -> "KNNMemory":
        """Empty the memory of the sequences of `start` (B,)."""
        mask = start[:, None, None, None]
        return KNNMemory(
            self.key.masked_fill(mask, 0.0), self.value.masked_fill(mask, 0.0), self.count.masked_fill(start, 0)
        )


def nearest_slots(
    scores: torch.Tensor, occupied: torch.Tensor, count: int, exact: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Retrieve the best slots: scores (B, H, Q, M) -> scores and slots (B, H, Q, k).

    An empty slot is retrieved only if there are fewer than k others, with the score 0 of its key of zeros.
    """
    known = torch.where(occupied[:, None, None], scores, EMPTY_SLOT_SCORE)
    if exact:
        best, index = known.topk(count, dim=-1)
    else:
        best, row = known.unflatten(-1, (-1, count)).max(-2)
        index = row * count + torch.arange(count, device=scores.device)
    return torch.where(best <= EMPTY_SLOT_SCORE, 0.0, best), index


class KNNAttention(nn.Module):
    """Mixes window attention with attention to retrieved slots, by a learned share of each head, initially a half."""

    def __init__(self, config):
        super().__init__()
        self.num_slots = config.memory_size
        self.num_neighbors = config.num_neighbors
        self.exact = config.memory_retrieval == "exact"
        self.share = LearnedTensor(config.num_attention_heads, value=0.0)

    def forward(
        self, attended: torch.Tensor, query: torch.Tensor, scales: torch.Tensor, memory: KNNMemory
    ) -> torch.Tensor:
        """Attended window (B, Q, H, D), unit queries (B, Q, H, D), scales (H,) -> (B, Q, H, D)."""
        query = query.transpose(1, 2)
        scores = query @ memory.key.to(query.dtype).transpose(-1, -2)
        best, index = nearest_slots(scores, memory.occupied, self.num_neighbors, self.exact)
        dtype = torch.promote_types(best.dtype, torch.float32)
        weights = (best.to(dtype) * scales[:, None, None].to(dtype)).softmax(-1).to(query.dtype)
        retrieved = torch.zeros_like(scores).scatter_add(-1, index, weights) @ memory.value.to(query.dtype)
        share = self.share().sigmoid()[:, None].to(attended.dtype)
        return torch.lerp(attended, retrieved.transpose(1, 2).to(attended.dtype), share)
