"""Geometric attention by its definition, one pair of a query and a key at a time: n queries and keys, D head dim."""

import torch


def visiting_order(query: int, num_keys: int) -> list[int]:
    """Columns of the keys from the nearest to the query's column to the farthest, the right one first of two."""
    others = [key for key in range(num_keys) if key != query]
    return sorted(others, key=lambda key: (abs(key - query), key < query))


def weights_of(scores: torch.Tensor, normalize: bool = False) -> torch.Tensor:
    """Of scores (..., Q, K), the queries being the last columns: every weight as the literal product, O(Q * K^2)."""
    num_queries, num_keys = scores.shape[-2:]
    match = scores.sigmoid()
    weights = [[0 * match[..., 0, 0] for _ in range(num_keys)] for _ in range(num_queries)]
    for row in range(num_queries):
        visited = visiting_order(row + num_keys - num_queries, num_keys)
        for place, key in enumerate(visited):
            weight = match[..., row, key]
            for nearer in visited[:place]:
                weight = weight * (1 - match[..., row, nearer])
            weights[row][key] = weight
    product = torch.stack([torch.stack(row, dim=-1) for row in weights], dim=-2)
    return product / product.sum(-1, keepdim=True).clamp(min=1e-12) if normalize else product


def scores_of(content: torch.Tensor, left: torch.Tensor, right: torch.Tensor, seen, causal: bool) -> torch.Tensor:
    """(B, H, Q, K), where `seen(b, row, key)` is whether the mask leaves a key."""
    scores = torch.full_like(content, -torch.inf)
    num_queries, num_keys = content.shape[-2:]
    for b in range(len(content)):
        for row in range(num_queries):
            for key in range(num_keys):
                offset = key - (row + num_keys - num_queries)
                if offset == 0 or (causal and offset > 0) or not seen(b, row, key):
                    continue
                scores[b, :, row, key] = content[b, :, row, key] + (right if offset > 0 else left)[b, :, row]
    return scores
