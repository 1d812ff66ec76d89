"""What Block-Recurrent Transformers keep of the tokens they have read: a cache of constant size."""

import torch

from ..engine.chunk_cache import ChunkCache, ChunkStateLayer
from .external_memory import Slots


class BlockStateLayer(ChunkStateLayer):
    """`fill` (B,) how many tokens of the block that has begun have been read; `ragged` (B,) as of chunks."""

    part = "block"


class BlockCache(ChunkCache):
    """Two blocks of keys and values a layer, and state vectors; of constant size, however long the context.

    Layer 0 counts: `fill` (B,) tokens of the block that has begun. Each further one belongs to a layer of the model.
    Shapes: B rows, W tokens of a block, H heads, D head dim, S state vectors, E width, M slots.

    `previous_key`, `previous_value` (B, W, H, D): of the last complete block, zeros before the first.
    `key`, `value` (B, W, H, D): of the block that has begun, if one has.
    `state` (B, S, E): of a recurrent layer, after the last complete block.
    `state_key`, `state_value` (B, S, H, D): what tokens read of it, where it was read within a block without gradients.
    `memory_key`, `memory_value` (B, H, M, D), `memory_count` (B,): of a layer with external memory.
    """

    state_layer = BlockStateLayer

    def reset_states(self) -> None:
        """Forget the state vectors, but not the tokens: they begin anew, as learned."""
        for layer in self.layers[1:]:
            layer.tensors = {name: t for name, t in layer.tensors.items() if not name.startswith("state")}


def begin_again(past: dict[str, torch.Tensor], start: torch.Tensor, initial: torch.Tensor | None) -> None:
    """Let the rows of `start` (B,) forget what a layer keeps of them."""
    rows = start[:, None, None]
    for name in ("previous_key", "previous_value"):
        past[name] = past[name].masked_fill(rows[..., None], 0.0)
    if initial is not None:
        past["state"] = torch.where(rows, initial, past["state"])
        past.pop("state_key", None)
        past.pop("state_value", None)
    names = ("memory_key", "memory_value", "memory_count")
    if names[0] in past:
        past |= dict(zip(names, Slots(*(past[name] for name in names)).forget(start), strict=True))
