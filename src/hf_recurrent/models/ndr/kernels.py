"""Geometric attention fused on a GPU: no N x N tensor is written, and memory grows linearly with the length.

A program takes BLOCK_M neighbouring queries outward, in tiles of BLOCK_N keys on either side. For each query it carries
the logs of not having matched yet, summed over the keys visited on the left and on the right. A weight needs the sum of
its own side and that of the other side up to the same distance, whose column moves two further with each query: each
row of the other side's sums is turned by as much.

Left tile t holds the columns `first - t * BLOCK_N - c` and right tile t the columns `first + t * BLOCK_N + c`, where c
counts from 0. With `BLOCK_N >= 2 * BLOCK_M`, right tile t needs left tiles t - 1 and t, and left tile t - 1 needs right
tiles t - 1 and t; so weights of the left come one step after its sums.

The backward pass walks in the same way. With `G = A * dA` it needs, for each key, the sum of G over that key and all
farther ones: the sum over all, which is known beforehand, less that over the nearer ones.

Shapes: B sequences, H heads, Q queries, K keys, D head dim.
"""

# annotations stay text, so that the kernels can be defined where there is no Triton
from __future__ import annotations

import torch

from .geometric import SMALLEST_SUM

try:
    # before 3.4 Triton has no `knobs`, and no kernel here
    import triton.knobs
    import triton.language as tl
except ImportError:
    triton = None

LARGEST_HEAD_DIM = 256


def jit(kernel):
    return kernel if triton is None else triton.jit(kernel)


@jit
def load_rows(base, index, num_rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of a matrix (num_rows, HEAD_DIM), zeros outside of it."""
    dims = tl.arange(0, BLOCK_D)
    inside = ((index >= 0) & (index < num_rows))[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(base + index[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)


@jit
def add_rows(base, index, num_rows, rows, HEAD_DIM: tl.constexpr):
    dims = tl.arange(0, rows.shape[1])
    inside = ((index >= 0) & (index < num_rows))[:, None] & (dims < HEAD_DIM)[None, :]
    tl.atomic_add(base + index[:, None] * HEAD_DIM + dims[None, :], rows, mask=inside, sem="relaxed")


@jit
def match(
    row, term, columns, SIDE: tl.constexpr, HEAD_DIM: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr
):
    """Probabilities that keys of columns on one side match, and logs of those that they do not; 0 at hidden keys.

    SIDE is -1 on the left and 1 on the right; `row` is the first result of `start`.
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
    """Number of tiles up to the last one with a key, and one more for the sums that are one step late."""
    reach = first if CAUSAL else tl.maximum(first, num_keys - 1 - first)
    return reach // BLOCK_N + 2


@jit
def running(carry, values):
    """Running sums along the keys, inclusive and exclusive (BLOCK_M, BLOCK_N), and their total, from `carry` on."""
    through = carry[:, None] + tl.cumsum(values, 1)
    return through, through - values, carry + tl.sum(values, 1)


@jit
def start(inputs, sizes, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr):
    """Load a program's queries, their row numbers, which of them exist, and their terms for either side."""
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
    """Accumulate the weighted values of a tile, and the weights."""
    values = load_rows(value, columns, num_keys, HEAD_DIM, attended.shape[1])
    weights = weights.to(values.dtype)
    return tl.dot(weights, values, attended, input_precision=PRECISION), total + tl.sum(weights.to(tl.float32), 1)


@jit
def pull(weights, grads, value, grad_value, columns, num_keys, HEAD_DIM: tl.constexpr, PRECISION: tl.constexpr):
    """Add the gradient of a tile's values, and return that of the logs of its weights."""
    grad, shift = grads
    values = load_rows(value, columns, num_keys, HEAD_DIM, grad.shape[1])
    # as the forward pass rounded them, or the sum over all would not be that of the parts
    weights = weights.to(values.dtype)
    sent = tl.dot(tl.trans(weights), grad, input_precision=PRECISION)
    add_rows(grad_value, columns, num_keys, sent, HEAD_DIM)
    return weights.to(tl.float32) * (tl.dot(grad, tl.trans(values), input_precision=PRECISION) - shift[:, None])


@jit
def push(change, row, grad_query, grad_key, columns, HEAD_DIM: tl.constexpr, PRECISION: tl.constexpr):
    """Add a tile's gradient of scores to the gradients of its keys and queries."""
    queries, key, num_keys = row[0], row[1], row[4]
    keys = load_rows(key, columns, num_keys, HEAD_DIM, queries.shape[1])
    change = change.to(keys.dtype)
    sent = tl.dot(tl.trans(change), queries, input_precision=PRECISION)
    add_rows(grad_key, columns, num_keys, sent, HEAD_DIM)
    return tl.dot(change, keys, grad_query, input_precision=PRECISION)


@jit
def forward_kernel(
    inputs,
    outputs,
    sizes,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Sums of weighted values (B, H, Q, D) and of weights (B, H, Q), in float32."""
    row, rows, present, on_left, on_right, value = start(inputs, sizes, HEAD_DIM, BLOCK_D, BLOCK_M)
    first, num_keys, cols = row[3], row[4], tl.arange(0, BLOCK_N)
    attended, total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    # queries after the last one have no mass
    carry_left, carry_right = tl.where(present, 0.0, -1e30), tl.zeros((BLOCK_M,), tl.float32)
    right_before = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    match_before, miss = match(row, on_left, first + BLOCK_N - cols, -1, HEAD_DIM, HAS_MASK, PRECISION)
    left_before, nearer_before, carry_left = running(carry_left, miss)
    step, steps, most_left = 0, num_steps(first, num_keys, BLOCK_N, CAUSAL), 0.0
    # less than exp(-104) is 0 in float32
    while (step < steps) & (most_left > -104.0):
        most_left = tl.max(carry_left + carry_right)
        columns = first - step * BLOCK_N - cols
        left_match, miss = match(row, on_left, columns, -1, HEAD_DIM, HAS_MASK, PRECISION)
        left_sum, left_nearer, carry_left = running(carry_left, miss)
        if not CAUSAL:
            ahead = first + step * BLOCK_N + cols
            right_match, miss = match(row, on_right, ahead, 1, HEAD_DIM, HAS_MASK, PRECISION)
            right_sum, right_nearer, carry_right = running(carry_right, miss)
            weights = right_match * tl.exp(right_nearer + of_left(left_before, left_sum))
            attended, total = take(attended, total, weights, value, ahead, num_keys, HEAD_DIM, PRECISION)
            nearer_before += of_right(right_before, right_sum)
            right_before = right_sum
        weights = match_before * tl.exp(nearer_before)
        attended, total = take(attended, total, weights, value, columns + BLOCK_N, num_keys, HEAD_DIM, PRECISION)
        match_before, left_before, nearer_before = left_match, left_sum, left_nearer
        step += 1
    store_rows(outputs[0], rows, present, attended, HEAD_DIM)
    tl.store(outputs[1] + rows, total, mask=present)


@jit
def backward_kernel(
    inputs,
    outputs,
    sizes,
    grads,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of all inputs, those of keys and values by atomic additions in float32."""
    row, rows, present, on_left, on_right, value = start(inputs, sizes, HEAD_DIM, BLOCK_D, BLOCK_M)
    head = tl.program_id(0).to(tl.int64)
    first_row, first_key = head * sizes[1], head * sizes[2]
    grad = load_rows(grads[0] + first_row * HEAD_DIM, (rows - first_row).to(tl.int32), sizes[1], HEAD_DIM, BLOCK_D)
    grads_here = grad, tl.load(grads[1] + rows, mask=present, other=0.0)
    everything = tl.load(grads[2] + rows, mask=present, other=0.0)[:, None]
    grad_key, grad_value = outputs[1] + first_key * HEAD_DIM, outputs[2] + first_key * HEAD_DIM
    first, num_keys, cols = row[3], row[4], tl.arange(0, BLOCK_N)
    grad_query, grad_left = tl.zeros((BLOCK_M, BLOCK_D), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    grad_right, carry_left, carry_right = grad_left, tl.where(present, 0.0, -1e30), grad_left
    total_left, total_right, none = grad_left, grad_left, tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    right_before, pulled_left, pulled_right, inner_before, right_match_before = none, none, none, none, none
    match_before, miss = match(row, on_left, first + BLOCK_N - cols, -1, HEAD_DIM, HAS_MASK, PRECISION)
    left_before, nearer_before, carry_left = running(carry_left, miss)
    step, steps, most_left, most_before = 0, num_steps(first, num_keys, BLOCK_N, CAUSAL), 0.0, 0.0
    # below a remaining mass of exp(-16) the difference of sums would be mostly rounding error, and is set to 0;
    # one step more than forward: scores on the right get their gradient a step late
    while (step < steps) & (most_before > -104.0):
        most_before, most_left = most_left, tl.max(carry_left + carry_right)
        columns, ahead = first - step * BLOCK_N - cols, first + step * BLOCK_N + cols
        left_match, miss = match(row, on_left, columns, -1, HEAD_DIM, HAS_MASK, PRECISION)
        left_sum, left_nearer, carry_left = running(carry_left, miss)
        if not CAUSAL:
            right_match, miss = match(row, on_right, ahead, 1, HEAD_DIM, HAS_MASK, PRECISION)
            right_sum, right_nearer, carry_right = running(carry_right, miss)
            right_nearer += of_left(left_before, left_sum)
            weights = right_match * tl.exp(right_nearer)
            right_match = tl.where(right_nearer > -16.0, right_match, 0.0)
            inner_right = pull(weights, grads_here, value, grad_value, ahead, num_keys, HEAD_DIM, PRECISION)
            pulled, _, total_right = running(total_right, inner_right)
            nearer_before += of_right(right_before, right_sum)
            right_before = right_sum
        weights = match_before * tl.exp(nearer_before)
        inner = pull(weights, grads_here, value, grad_value, columns + BLOCK_N, num_keys, HEAD_DIM, PRECISION)
        left_pulled, nearer, total_left = running(total_left, inner)
        if not CAUSAL:
            nearer += of_right(pulled_right, pulled)
        change = inner - tl.where(nearer_before > -16.0, match_before, 0.0) * (everything - nearer)
        grad_left += tl.sum(change, 1)
        grad_query = push(change, row, grad_query, grad_key, columns + BLOCK_N, HEAD_DIM, PRECISION)
        if not CAUSAL:
            nearer = pulled_right - inner_before + of_left(pulled_left, left_pulled)
            change = inner_before - right_match_before * (everything - nearer)
            grad_right += tl.sum(change, 1)
            grad_query = push(change, row, grad_query, grad_key, ahead - BLOCK_N, HEAD_DIM, PRECISION)
            pulled_right, pulled_left, inner_before, right_match_before = pulled, left_pulled, inner_right, right_match
        match_before, left_before, nearer_before = left_match, left_sum, left_nearer
        step += 1
    store_rows(outputs[0], rows, present, grad_query, HEAD_DIM)
    tl.store(outputs[3] + rows, grad_left, mask=present)
    tl.store(outputs[4] + rows, grad_right, mask=present)


def launch_options(head_dim: int, dtype: torch.dtype, backward: bool, causal: bool, has_mask: bool) -> dict:
    """Tile sizes for a head dim, the rounding of its products, and what a kernel has to compute."""
    matmul = torch.backends.cuda.matmul
    # torch refuses the old question once the new answer is set
    allows_tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    # tf32x3 is as exact as float32, and runs on tensor cores
    precision = "tf32x3" if dtype == torch.float32 and not allows_tf32 else "tf32"
    # the largest head dim whose larger tiles fit into registers
    max_head_dim = {(False, False): 128, (False, True): 64, (True, False): 64, (True, True): 0}
    large = head_dim <= max_head_dim[dtype == torch.float32, backward]
    block_m = 32 if large else 16
    return {
        "HEAD_DIM": head_dim,
        "BLOCK_D": max(16, 1 << (head_dim - 1).bit_length()),
        "BLOCK_M": block_m,
        # required by of_left and of_right
        "BLOCK_N": 2 * block_m,
        "CAUSAL": causal,
        "HAS_MASK": has_mask,
        "PRECISION": precision,
        "num_warps": 8 if large or head_dim > 128 else 4,
        "num_stages": 1,
    }


def kernel_available(device: torch.device | str) -> bool:
    """Whether the kernels run on a device: an NVIDIA GPU with Triton, or any with Triton's interpreter on."""
    if triton is None:
        return False
    if triton.knobs.runtime.interpret:
        return True
    if torch.device(device).type != "cuda" or torch.version.hip is not None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def run(kernel, inputs: tuple, outputs: tuple, sizes: tuple, switches: tuple[bool, bool], *grads: tuple) -> None:
    """Launch a kernel over all heads of all sequences, with BLOCK_M queries for each program.

    Args:
        switches: whether attention is causal, and whether there is a mask.
        grads: those that the backward pass reads.
    """
    query = inputs[0]
    options = launch_options(query.shape[-1], query.dtype, len(grads) > 0, *switches)
    grid = (query.shape[0] * query.shape[1], -(-query.shape[2] // options["BLOCK_M"]))
    if 0 in grid:
        return
    with torch.cuda.device_of(query):
        kernel[grid](inputs, outputs, sizes, *grads, **options)


class FusedGeometricAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, left, right, seen, causal: bool, normalize: bool) -> torch.Tensor:
        strides = (0, 0) if seen is None else (seen.stride(0), seen.stride(2))
        ctx.sizes = (*query.shape[1:3], key.shape[2], *strides)
        ctx.switches, ctx.normalize = (causal, seen is not None), normalize
        mask = query.new_ones(1, dtype=torch.bool) if seen is None else seen
        inputs = (*(states.contiguous() for states in (query, key, value, left, right)), mask)
        attended = query.new_zeros(query.shape, dtype=torch.float32)
        total = query.new_zeros(query.shape[:-1], dtype=torch.float32)
        run(forward_kernel, inputs, (attended, total), ctx.sizes, ctx.switches)
        ctx.save_for_backward(*inputs, attended, total)
        output = attended / total.clamp(min=SMALLEST_SUM)[..., None] if normalize else attended
        return output.to(query.dtype, copy=output is attended)

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the kernel of geometric attention is differentiated once, but create_graph=True asks for more: set "
                "attn_implementation='eager'"
            )
        *inputs, attended, total = ctx.saved_tensors
        query = inputs[0]
        if ctx.normalize:
            # a query that sees nothing has no gradient, and would make NaN of others' where this overflows
            blind = (total == 0)[..., None]
            grad = (grad / total.clamp(min=SMALLEST_SUM)[..., None]).masked_fill(blind, 0.0)
        if query.dtype is torch.float16:
            largest = torch.finfo(query.dtype).max
            grad = grad.clamp(-largest, largest)
        # rounded before any use, so that the sum over all keys equals that of the parts
        grad = grad.to(query.dtype).contiguous()
        everything, shift = (grad.float() * attended).sum(-1), torch.zeros_like(total)
        if ctx.normalize:
            # a clamped sum has no gradient
            divides = total > SMALLEST_SUM
            shift = torch.where(divides, everything / total.clamp(min=SMALLEST_SUM), shift)
            everything = everything.masked_fill(divides, 0.0)
        outputs = tuple(states.new_zeros(states.shape, dtype=torch.float32) for states in inputs[:5])
        run(backward_kernel, tuple(inputs), outputs, ctx.sizes, ctx.switches, (grad, shift, everything))
        return *(made.to(states.dtype) for made, states in zip(outputs, inputs[:5], strict=True)), None, None, None


def geometric_attention_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    key_mask: torch.Tensor | None = None,
    causal: bool = False,
    normalize: bool = False,
) -> torch.Tensor:
    """Attended values as of `attend_nearest`, of scaled queries (B, H, Q, D) and keys (B, H, K, D), in linear memory.

    Differences from it are those of rounding; gradients of keys and values are added up in no fixed order, so they are
    not the same to the last bit from run to run. May be differentiated once. On other devices than GPUs it runs in
    Triton's interpreter, slowly.

    Raises:
        ValueError: other dtypes than float32, bfloat16 and float16, and head dims above 256.
    """
    if query.dtype not in (torch.float32, torch.bfloat16, torch.float16) or query.shape[-1] > LARGEST_HEAD_DIM:
        raise ValueError(
            f"query is {query.dtype} with head dim {query.shape[-1]}: give float32, bfloat16 or float16 and at most "
            f"{LARGEST_HEAD_DIM}, or set attn_implementation='eager'"
        )
    batch, _, num_queries, _ = query.shape
    seen = None
    if key_mask is not None:
        seen = (key_mask[:, None, None] if key_mask.dim() == 2 else key_mask).contiguous()
        seen = seen.expand(batch, 1, num_queries, -1)
    return FusedGeometricAttention.apply(query, key, value, left, right, seen, causal, normalize)
