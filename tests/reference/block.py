"""The Transformer block for one sequence without padding: n tokens, E width, H heads, D head dim."""

import torch
from torch.nn.functional import gelu


def xpos_score(query: torch.Tensor, key: torch.Tensor, distance: int) -> torch.Tensor:
    """Score of a query for a key that stands `distance` tokens before it: (D,), (D,) -> scalar."""
    half = len(query) // 2
    plane = torch.arange(half)
    zeta = (2 * plane + 0.8 * half) / (2.8 * half)
    angle = distance * 10_000 ** (-plane / half)
    x, y, u, v = query[0::2], query[1::2], key[0::2], key[1::2]
    turned = (x * u + y * v) * angle.cos() - (y * u - x * v) * angle.sin()
    return (zeta ** (distance / 512) * turned).sum() / (2 * half) ** 0.5


def attend(layer, queries: torch.Tensor, source: torch.Tensor, score, causal: bool = False) -> torch.Tensor:
    """Queries (n, E) attend to a source (m, E), to its first tokens up to their own place if causal -> (n, E)."""
    query, key, value = (
        (states @ projection.weight.T).view(len(states), -1, layer.config.head_dim)
        for states, projection in ((queries, layer.q_proj), (source, layer.k_proj), (source, layer.v_proj))
    )
    mixed = []
    for p in range(len(query)):
        seen = p + 1 if causal else len(key)
        for head in range(query.shape[1]):
            scores = torch.stack([score(query[p, head], key[r, head], p - r) for r in range(seen)])
            mixed.append(scores.softmax(0) @ value[:seen, head])
    return torch.cat(mixed).view(len(query), -1) @ layer.o_proj.weight.T


def two_layers(module, states: torch.Tensor) -> torch.Tensor:
    return module.down_proj(gelu(module.up_proj(states)))


def plain_score(query: torch.Tensor, key: torch.Tensor, distance: int) -> torch.Tensor:
    """Score without positions."""
    return query @ key / len(query) ** 0.5


def block(
    module, hidden: torch.Tensor, source: torch.Tensor, memory: torch.Tensor | None = None, causal: bool = False
) -> torch.Tensor:
    """Pre-norm block, gated if the module is; reads memory slots (m, E) if there are any: (n, E), (n, E) -> (n, E)."""
    norm = module.attention_norm
    attended = hidden + attend(module.attention, norm(hidden), norm(source), xpos_score, causal)
    if memory is not None:
        reader = module.memory_read
        attended = attended + attend(reader, reader.query_norm(attended), reader.source_norm(memory), plain_score)
    normed = module.feed_forward_norm(attended)
    updated = attended + two_layers(module.feed_forward, normed)
    if module.gate is None:
        return updated
    gate = two_layers(module.gate, normed).sigmoid()
    return gate * updated + (1 - gate) * hidden
