"""Keys and values of the distant past, and their retrieval: the Memorizing Transformer's layer (Wu et al. 2022) as the
Block-Recurrent Transformer's authors run it.

A memory is a ring buffer of a layer's earlier blocks, in which a new block overwrites the oldest one: keys (B, H, M, D)
and values (B, H, M, D), zeros in empty slots, and the number (B,) of tokens written, more than M once the first ones
are overwritten.

Shapes: B sequences, Q queries, W tokens of a block, M slots, H heads, D head dim, k neighbours.
"""

import torch

from ..ops.layers import at_least_float32

EMPTY_SLOT_SCORE = -1e6
MEMORY_NAMES = ("memory_key", "memory_value", "memory_count")


def write_block(
    memory: list[torch.Tensor], key: torch.Tensor, value: torch.Tensor, completing: torch.Tensor | None
) -> list[torch.Tensor]:
    """Add a block (B, W, H, D) of the sequences that are `completing` (B,) it, all if None, without gradient."""
    *buffers, count = memory
    width, num_slots = key.shape[1], buffers[0].shape[2]
    place = (count // width) % (num_slots // width)
    index = place[:, None, None, None, None].expand(-1, key.shape[2], 1, width, key.shape[3])
    written = []
    for buffer, states in zip(buffers, (key, value), strict=True):
        blocks = buffer.unflatten(2, (-1, width))
        new = states.detach().transpose(1, 2).unsqueeze(2).to(buffer.dtype)
        if completing is not None:
            new = torch.where(completing[:, None, None, None, None], new, blocks.gather(2, index))
        written.append(blocks.scatter(2, index, new).flatten(2, 3))
    return [*written, count + width * (1 if completing is None else completing.long())]


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


def with_retrieved(
    attended: torch.Tensor,
    query: torch.Tensor,
    scales: torch.Tensor,
    share: torch.Tensor,
    memory: list[torch.Tensor],
    config,
) -> torch.Tensor:
    """Attended window (B, Q, H, D), mixed with attention to retrieved slots: unit queries (B, Q, H, D) -> (B, Q, H, D).

    Args:
        scales: (H,) factors of scores.
        share: (H,) share of what is retrieved, before a sigmoid.
    """
    key, value, count = memory
    query = query.transpose(1, 2)
    scores = query @ key.to(query.dtype).transpose(-1, -2)
    # of each sequence (B, M)
    occupied = torch.arange(key.shape[2], device=count.device) < count[:, None]
    best, index = nearest_slots(scores, occupied, config.num_neighbors, config.memory_retrieval == "exact")
    best = at_least_float32(best)
    weights = (best * scales[:, None, None].to(best.dtype)).softmax(-1).to(query.dtype)
    retrieved = torch.zeros_like(scores).scatter_add(-1, index, weights) @ value.to(query.dtype)
    retrieved, share = retrieved.transpose(1, 2).to(attended.dtype), share.sigmoid()[:, None].to(attended.dtype)
    return torch.lerp(attended, retrieved, share)
