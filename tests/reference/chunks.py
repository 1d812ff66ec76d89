"""Sequences chunk by chunk, one sequence and one chunk at a time: n tokens, m memory slots, E width."""

import torch

from .block import attend, block, plain_score, two_layers
from .halting import halt_causally, halt_row, halt_tokens


def written(module, memory: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
    """`A = M + Attention(LN M, LN' chunk); A + FFN(LN A)`: (m, E), (n, E) -> (m, E)."""
    layer = module.attention
    queries, source = layer.query_norm(memory), layer.source_norm(chunk)
    attended = memory + attend(layer, queries, source, plain_score)
    return attended + two_layers(module.feed_forward, module.feed_forward_norm(attended))


def pieces_of(config, length: int, width: int) -> list[slice]:
    """Positions of the chunks of a sequence of `length` tokens, in a batch of `width` columns."""
    size = {
        "fixed": config.chunk_size,
        "count": -(-length // config.num_chunks),
        "balanced": -(-width // -(-width // config.chunk_size)),
    }[config.chunking]
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def depth_of_chunk(model, states: torch.Tensor, memory: torch.Tensor):
    """-> final states (n, E), ponder cost or None, steps, margin."""
    config = model.config
    if config.model_type == "tlb":
        for layer in model.layers:
            states = block(layer, states, states, memory, config.is_causal)
        return states, None, [], 1.0
    if config.halting == "none":
        for _ in range(config.num_hidden_layers):
            states = block(model.block, states, states, memory, config.is_causal)
        return states, None, [config.num_hidden_layers] * (len(states) if config.is_causal else 1), 1.0
    halt = halt_causally if config.is_causal else halt_tokens if config.halting == "token" else halt_row
    return halt(model, states, memory)


def read(model, states: torch.Tensor, width: int):
    """-> final states (n, E), mean ponder cost of chunks or None, steps, final memory (m, E), margin."""
    memory, outputs, costs, steps, margins = model.memory.weight, [], [], [], []
    for piece in pieces_of(model.config, len(states), width):
        final, cost, chunk_steps, margin = depth_of_chunk(model, states[piece], memory)
        for layer in model.memory_layers:
            memory = written(layer, memory, final)
        outputs.append(final)
        costs.append(cost)
        steps.extend(chunk_steps)
        margins.append(margin)
    cost = None if costs[0] is None else torch.stack(costs).mean()
    return torch.cat(outputs), cost, steps, memory, min(margins)
