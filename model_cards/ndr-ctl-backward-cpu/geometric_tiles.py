"""What the fused kernels of geometric attention do with one tile of BLOCK_M queries and BLOCK_N keys."""

# annotations stay text, so that the kernels can be defined where there is no Triton
from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@jit
def load_rows(base, index, num_rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of a matrix (num_rows, HEAD_DIM), zeros outside of it."""
    dims = tl.arange(0, BLOCK_D)
    inside = ((index >= 0) & (index < num_rows))[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(base + index[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)


@jit
def add_rows(base, index, num_rows, rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    dims = tl.arange(0, BLOCK_D)
    inside = ((index >= 0) & (index < num_rows))[:, None] & (dims < HEAD_DIM)[None, :]
    tl.atomic_add(base + index[:, None] * HEAD_DIM + dims[None, :], rows, mask=inside, sem="relaxed")


@jit
def match(
    row, term, columns, SIDE: tl.constexpr, HEAD_DIM: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr
):
    """Probabilities that keys of columns on one side match, and logs of those that they do not; 0 at hidden keys.

    SIDE is -1 on the left and 1 on the right; `row` is what `start` says of the program's queries.
    """
    queries, key, mask, first, num_keys = row
    keys = load_rows(key, columns, num_keys, HEAD_DIM, queries.shape[1])
    scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) + term[:, None]
    distance = SIDE * (columns[None, :] - first - tl.arange(0, queries.shape[0])[:, None])
    seen = (distance > 0) & ((columns >= 0) & (columns < num_keys))[None, :]
    if HAS_MASK:
        seen = seen & (tl.load(mask + columns[None, :], mask=seen, other=0) != 0)
    scores = tl.where(seen, scores, float("-inf"))
    small = tl.exp(-tl.abs(scores))
    # log(1 + small) is 2 atanh(ratio), whose series needs no logarithm that is exact near 1; ratio <= 1/3
    ratio = small / (2.0 + small)
    square = ratio * ratio
    series = 1.0 / 7 + square * (1.0 / 9 + square * (1.0 / 11 + square * (1.0 / 13)))
    series = 1.0 + square * (1.0 / 3 + square * (1.0 / 5 + square * series))
    log_miss = tl.minimum(-scores, 0.0) - 2.0 * ratio * series
    return tl.where(scores >= 0, 1.0, small) / (1.0 + small), log_miss


@jit
def of_left(before, current):
    """Sums of left tiles t - 1 and t at the keys of right tile t: over all that is nearer than each of them."""
    rows, cols = tl.arange(0, current.shape[0])[:, None], tl.arange(0, current.shape[1])[None, :]
    joined = tl.where(cols + 2 * rows + 1 < current.shape[1], current, before)
    return tl.gather(joined, (cols - 2 * rows - 1 + current.shape[1]) & (current.shape[1] - 1), 1)


@jit
def of_right(current, after):
    """Sums of right tiles t and t + 1 at the keys of left tile t: over all that is nearer, or as near."""
    rows, cols = tl.arange(0, current.shape[0])[:, None], tl.arange(0, current.shape[1])[None, :]
    joined = tl.where(cols >= 2 * rows, current, after)
    return tl.gather(joined, (cols + 2 * rows) & (current.shape[1] - 1), 1)


@jit
def num_steps(first, num_keys, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """To the last tile with a key in it, and one more for what comes one step late."""
    reach = first if CAUSAL else tl.maximum(first, num_keys - 1 - first)
    return reach // BLOCK_N + 2


@jit
def running(carry, values):
    """Sums along the keys through each and up to it, (BLOCK_M, BLOCK_N), and in all, after those of tiles before."""
    through = carry[:, None] + tl.cumsum(values, 1)
    return through, through - values, carry + tl.sum(values, 1)


@jit
def start(inputs, sizes, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr):
    """What a program's queries are and where: their rows, which of them there are, and what to add on either side."""
    query, key, value, left, right, mask = inputs
    num_heads, num_queries, num_keys, mask_batch, mask_query = sizes
    head = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    present, rows = index < num_queries, head * num_queries + index
    queries = load_rows(query + head * num_queries * HEAD_DIM, index, num_queries, HEAD_DIM, BLOCK_D)
    key += head * num_keys * HEAD_DIM
    value += head * num_keys * HEAD_DIM
    mask += head // num_heads * mask_batch + tl.minimum(index, num_queries - 1)[:, None] * mask_query
    on_left = tl.load(left + rows, mask=present, other=0.0).to(tl.float32)
    on_right = tl.load(right + rows, mask=present, other=0.0).to(tl.float32)
    first = tl.program_id(1) * BLOCK_M + num_keys - num_queries
    return (queries, key, mask, first, num_keys), rows, present, on_left, on_right, value


@jit
def store_rows(base, rows, present, values, HEAD_DIM: tl.constexpr):
    dims = tl.arange(0, values.shape[1])
    inside = present[:, None] & (dims < HEAD_DIM)[None, :]
    tl.store(base + rows[:, None] * HEAD_DIM + dims[None, :], values, mask=inside)


@jit
def take(attended, total, weights, value, columns, num_keys, HEAD_DIM: tl.constexpr, PRECISION: tl.constexpr):
    """Add what the keys of a tile give, and the weights."""
    values = load_rows(value, columns, num_keys, HEAD_DIM, attended.shape[1])
    weights = weights.to(values.dtype)
    return tl.dot(weights, values, attended, input_precision=PRECISION), total + tl.sum(weights.to(tl.float32), 1)


@jit
def pull(weights, grads, value, grad_value, columns, num_keys, HEAD_DIM: tl.constexpr, PRECISION: tl.constexpr):
    """Send the gradient of a tile's values, and return that of the logs of its weights."""
    grad, shift = grads
    values = load_rows(value, columns, num_keys, HEAD_DIM, grad.shape[1])
    # as the forward pass rounded them, or the sum over all would not be that of the parts
    weights = weights.to(values.dtype)
    sent = tl.dot(tl.trans(weights), grad, input_precision=PRECISION)
    add_rows(grad_value, columns, num_keys, sent, HEAD_DIM, grad.shape[1])
    return weights.to(tl.float32) * (tl.dot(grad, tl.trans(values), input_precision=PRECISION) - shift[:, None])


@jit
def push(change, row, grad_query, grad_key, columns, HEAD_DIM: tl.constexpr, PRECISION: tl.constexpr):
    """Send a tile's gradient of scores to its keys, and add what its queries get."""
    queries, key, num_keys = row[0], row[1], row[4]
    keys = load_rows(key, columns, num_keys, HEAD_DIM, queries.shape[1])
    change = change.to(keys.dtype)
    sent = tl.dot(tl.trans(change), queries, input_precision=PRECISION)
    add_rows(grad_key, columns, num_keys, sent, HEAD_DIM, queries.shape[1])
    return tl.dot(change, keys, grad_query, input_precision=PRECISION)


@jit
def start_back(outputs, sizes, grads, rows, present, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Gradients that come in, the sum of them all, and where those of this head's keys and values go."""
    head = tl.program_id(0).to(tl.int64)
    first_row = head * sizes[1]
    grad = load_rows(grads[0] + first_row * HEAD_DIM, (rows - first_row).to(tl.int32), sizes[1], HEAD_DIM, BLOCK_D)
    shift = tl.load(grads[1] + rows, mask=present, other=0.0)
    everything = tl.load(grads[2] + rows, mask=present, other=0.0)[:, None]
    offset = head * sizes[2] * HEAD_DIM
    return (grad, shift), everything, outputs[1] + offset, outputs[2] + offset
