"""The cache of Block-Recurrent Transformers, of constant size."""

import torch

from ..depth.chunk_cache import ChunkCache


class BlockCache(ChunkCache):
    """Two blocks of keys and values a layer, and state vectors; of constant size, however long the context.

    Layer 0 holds `fill` and `ragged` alone, of blocks. Each further one belongs to a layer of the model.
    Shapes: B sequences, W tokens of a block, H heads, D head dim, S state vectors, E width, M slots.

    `previous_key`, `previous_value` (B, W, H, D): of the last complete block, zeros before the first.
    `key`, `value` (B, W, H, D): of the incomplete block, if there is one.
    `state` (B, S, E): of a recurrent layer, after the last complete block.
    `state_key`, `state_value` (B, S, H, D): its projection, if tokens attended to it within a block without gradients.
    `memory_key`, `memory_value` (B, H, M, D), `memory_count` (B,): external memory, see `external_memory`.
    """

    part = "block"

    def pin(self) -> None:
        """As of any cache; where no block has begun, its keys and values are zeros: a graph need not add them."""
        for layer in self.layers[1:]:
            if self.state and "key" not in layer.tensors:
                empty = {name: torch.zeros_like(layer.tensors[f"previous_{name}"]) for name in ("key", "value")}
                layer.replace(layer.tensors | empty)
        super().pin()

    def reset_states(self) -> None:
        """Start again from the learned state vectors, without forgetting the tokens."""
        for layer in self.layers[1:]:
            layer.replace({name: t for name, t in layer.tensors.items() if not name.startswith("state")})
