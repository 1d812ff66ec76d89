"""Geometric attention: queries attend to the nearest matching key (Csordás et al. 2022, section 2.2, equations 6-10).

Key j matches query i with probability `P_ij = sigmoid(x_ij)`, and `A_ij = P_ij * prod(1 - P_ik)` over the keys k that
are nearer to i; of two at the same distance the right one is nearer. With keys on the left only this is stick-breaking
attention.

Shapes: B sequences, H heads, Q queries, K keys, D head dim. The queries are the last Q of the K columns: query i
stands in column `i + K - Q`.
"""

import functools
from collections.abc import Callable

import torch
from torch import nn

from ..ops.graphs import in_graph
from ..ops.layers import at_least_float32

# lower bound of the row sums that weights are divided by, as in the authors' code
SMALLEST_SUM = 1e-12
# tables of at most so many entries are cached; larger ones cost little compared with the operations that use them
MAX_CACHED_ENTRIES = 1 << 16
# up to so many, sums as a matrix product take a processor less time than finding their places
MAX_PRODUCTS = 1 << 18
# softplus(x) is x above it; the default causes errors in float64
SOFTPLUS_THRESHOLD = 50.0
# below exp of this, a query's remaining mass is set to zero: it would be denormal numbers, with which a processor
# multiplies a hundred times slower
MIN_LOG_REMAINING = -80.0


def cached_table(function: Callable) -> Callable:
    """A function of Q, K and further arguments, whose small tables are computed once."""
    # a later call may be differentiated
    cached = functools.lru_cache(maxsize=32)(torch.inference_mode(False)(function))

    @functools.wraps(function)
    def table(num_queries: int, num_keys: int, *others) -> tuple[torch.Tensor, ...]:
        # a traced table is part of its graph
        caches = not in_graph() and num_queries * num_keys <= MAX_CACHED_ENTRIES
        return (cached if caches else function)(num_queries, num_keys, *others)

    return table


def offsets(num_queries: int, num_keys: int, device: torch.device) -> torch.Tensor:
    """Number of columns (Q, K) by which key j is right of query i."""
    columns = torch.arange(num_keys, device=device)
    return columns - columns[num_keys - num_queries :, None]


@cached_table
def visiting_tables(
    num_queries: int, num_keys: int, device: torch.device, farthest_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices (Q * K,) of flattened rows: to the order of visits, or its reverse, and back.

    A query visits itself first, then goes outward, right before left. With the nearest first, the index back is that of
    the place before a key's own, so that sums exclude the key.
    """
    offset = offsets(num_queries, num_keys, device)
    distance, keys_on_right = offset.abs(), offset[:, -1:]
    keys_on_left = num_keys - 1 - keys_on_right
    # the nearer keys of its own side and of the other side
    rank_of_right = distance + torch.minimum(distance - 1, keys_on_left)
    rank_of_left = distance + torch.minimum(distance, keys_on_right)
    ranks = torch.where(offset > 0, rank_of_right, rank_of_left) * (offset != 0)
    back = (ranks - 1).clamp(min=0)
    if farthest_first:
        ranks = back = num_keys - 1 - ranks
    columns = torch.arange(num_keys, device=device).expand_as(ranks)
    there = torch.empty_like(ranks).scatter_(-1, ranks, columns)
    starts = torch.arange(num_queries, device=device)[:, None] * num_keys
    return (starts + there).flatten().int(), (starts + back).flatten().int()


@cached_table
def side_tables(
    num_queries: int, num_keys: int, device: torch.device, dtype: torch.dtype, causal: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where keys stand, as numbers (Q, K): 1 on the left of the query, 1 on the right, and -inf at the query itself.

    In causal models it is -inf on the right, too. They are in float32 at least. Arithmetic with numbers is much faster
    than `where`.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    offset = offsets(num_queries, num_keys, device)
    hidden = offset >= 0 if causal else offset == 0
    return (offset < 0).to(dtype), (offset > 0).to(dtype), torch.where(hidden, -torch.inf, 0.0).to(dtype)


def visiting_sums(values: torch.Tensor, farthest_first: bool) -> torch.Tensor:
    """`sums_along` one place after another, of (n, Q, K).

    With saturated scores, sums over windows of columns would be differences of large numbers; these are not.
    """
    there, back = visiting_tables(*values.shape[1:], values.device, farthest_first)
    ordered = values.flatten(1).index_select(1, there)
    sums = ordered.view(values.shape).cumsum_(-1)
    return sums.flatten(1).index_select(1, back).view(values.shape)


@functools.lru_cache(maxsize=16)
@torch.inference_mode(False)
def summing_table(shape: torch.Size, dtype: torch.dtype, farthest_first: bool) -> torch.Tensor:
    """(Q, K, K) of the shape (Q, K), 1 where the key of a row is in the sum at a column."""
    keys = torch.eye(shape[1], dtype=dtype, device="cpu")[:, None].expand(-1, *shape)
    return visiting_sums(keys, farthest_first).transpose(0, 1)


def sums_along(values: torch.Tensor, farthest_first: bool) -> torch.Tensor:
    """Running sums of (n, Q, K) over the keys in the order of visits or its reverse, at the columns of the keys."""
    shape = values.shape[1:]
    # autocast would round a product, and a graph keep its table for any length
    many = values.device.type != "cpu" or values.numel() * shape[1] > MAX_PRODUCTS
    if many or in_graph() or torch.is_autocast_enabled("cpu"):
        return visiting_sums(values, farthest_first)
    return torch.bmm(values.transpose(0, 1), summing_table(shape, values.dtype, farthest_first)).transpose(0, 1)


def match_nearest(scores: torch.Tensor, normalize: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Weights of (n, Q, K), how well keys match, and where weights were divided by their sum (n, Q, 1)."""
    # softplus(x) is minus the log of not matching
    log_misses = nn.functional.softplus(scores, threshold=SOFTPLUS_THRESHOLD)
    matches = scores.sigmoid()
    log_remaining = sums_along(log_misses, farthest_first=False).neg_()
    weights = nn.functional.threshold_(log_remaining, MIN_LOG_REMAINING, -torch.inf).exp_().mul_(matches)
    if not normalize:
        return weights, matches, None
    row_sums = weights.sum(-1, keepdim=True)
    weights.div_(row_sums.clamp(min=SMALLEST_SUM))
    return weights, matches, (row_sums > SMALLEST_SUM).to(weights.dtype)


class GeometricWeights(torch.autograd.Function):
    """Saves two N x N tensors for the backward pass: the weights, and how well keys match, which it returns as well.

    With `G = A * dA`, the gradient of `log P_ij` is `G_ij`, and that of `log(1 - P_ij)` the sum of G over the keys
    farther from i than j; so `dx = G - P * S`, where S sums G over the key itself and all that are farther.
    """

    @staticmethod
    def forward(ctx, scores: torch.Tensor, normalize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        weights, matches, divided_by_sum = match_nearest(scores, normalize)
        ctx.save_for_backward(weights, matches, divided_by_sum)
        ctx.set_materialize_grads(False)
        # a second derivative reaches the scores through both outputs
        return weights, matches

    @staticmethod
    def backward(ctx, grad: torch.Tensor | None, grad_of_matches: torch.Tensor | None):
        weights, matches, divided_by_sum = ctx.saved_tensors
        by_matches = None if grad_of_matches is None else grad_of_matches * matches * (1 - matches)
        if grad is None:
            return by_matches, None
        inner = weights * grad
        if divided_by_sum is not None:
            inner.addcmul_(weights, inner.sum(-1, keepdim=True) * divided_by_sum, value=-1)
        found = inner.addcmul_(matches, sums_along(inner, farthest_first=True), value=-1)
        return found if by_matches is None else found + by_matches, None


def geometric_weights(scores: torch.Tensor, normalize: bool = False) -> torch.Tensor:
    """Weights A (..., Q, K) of scores x, which are -inf at masked keys and at the query itself.

    Rows add up to at most 1, and are 0 if all keys are masked; with `normalize` each is divided by its sum.
    Half precision is computed in float32, and float64 in float64.
    """
    rows = at_least_float32(scores).reshape(-1, *scores.shape[-2:])
    weights = (GeometricWeights.apply if rows.requires_grad else match_nearest)(rows, normalize)[0]
    return weights.view(scores.shape).to(scores.dtype)


def geometric_scores(
    content: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    key_mask: torch.Tensor | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Scores x (B, H, Q, K), in float32 or float64, of the scaled products of queries with keys.

    Args:
        content: (B, H, Q, K).
        left, right: (B, H, Q), added to the scores of the keys on that side: direction and bias, scaled. Causal models
            ignore `right`.
        key_mask: (B or 1, K) or (B or 1, 1, Q, K) booleans, True at visible keys, or terms of scores; None if all are
            visible.
        causal: attend to the left side only.
    """
    on_left, on_right, own = side_tables(*content.shape[-2:], content.device, content.dtype, causal)
    # in the dtype of the tables
    scores = torch.addcmul(content, left[..., None], on_left).add_(own)
    if not causal:
        scores.addcmul_(right[..., None], on_right)
    if key_mask is not None and key_mask.dtype is torch.bool:
        key_mask = torch.where(key_mask[:, None, None] if key_mask.dim() == 2 else key_mask, 0.0, -torch.inf)
    return scores if key_mask is None else scores.add_(key_mask)


def attend_nearest(
    content: torch.Tensor,
    value: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    key_mask: torch.Tensor | None = None,
    causal: bool = False,
    normalize: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attended values (B, H, Q, D) and weights (B, H, Q, K), from scaled products (B, H, Q, K) of queries with keys.

    The other arguments are those of `geometric_scores` and `geometric_weights`. Scores and weights are computed in
    float32 at least, and the weights returned in the dtype of the values.
    """
    scores = geometric_scores(content, left, right, key_mask, causal)
    weights = geometric_weights(scores, normalize).to(value.dtype)
    return weights @ value, weights
