"""Time and memory of geometric attention, forward and backward: differences of sums by autograd, ours, and the kernel.

    python -m perf geometric
    python -m perf geometric --shapes 32,16,50,32 --normalize
    python -m perf geometric --device cuda --shapes 1,16,512,64 1,16,2048,64 1,16,4096,64 --dtype bfloat16

`cumulative` is the usual way in log space: sums along the columns, differences of them, gradients by autograd. `eager`
is `attend_nearest`, and `kernel` the fused one, with CUDA. `kept` is the memory kept for the backward pass, `peak`
what both passes add at their peak, and `error` the largest difference to float64.
"""

import argparse
import functools
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import logsigmoid, pad

from hf_recurrent.models.ndr.geometric import SMALLEST_SUM, attend_nearest, geometric_scores
from hf_recurrent.models.ndr.kernels import geometric_attention_triton, kernel_available

from .core import MEBIBYTE, Table, compared, device_is_cuda, measure, peak_bytes


def parse_shape(text: str) -> tuple[int, ...]:
    shape = tuple(int(part) for part in text.split(","))
    if len(shape) != 4 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not four positive numbers: batch,heads,length,head_dim")
    return shape


def add_options(parser: argparse.ArgumentParser) -> None:
    # compositional table lookup and ListOps in the paper's sizes, and longer sequences
    shapes = [(512, 1, 13, 256), (32, 16, 50, 32), (4, 4, 256, 64), (1, 2, 1024, 64)]
    parser.add_argument("--shapes", type=parse_shape, nargs="+", default=shapes, help="batch,heads,length,head_dim")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--normalize", action="store_true")
    parser.add_argument("--bias", type=float, default=0.0, help="added to scores: below 0, queries look farther")


def window_columns(length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ends (N, N) of the columns nearer to a query than each column, as places in sums along the columns from 0."""
    column = torch.arange(length, device=device)
    offset = column - column[:, None]
    distance = offset.abs()
    stop = torch.where(offset > 0, distance, distance + 1) + column[:, None]
    return stop.clamp(max=length), (column[:, None] - distance + 1).clamp(min=0)


def window_sum(cumulative: torch.Tensor) -> torch.Tensor:
    """Sums over the columns nearer to the query than each column, from sums along the columns (..., N, N)."""
    stop, start = window_columns(cumulative.shape[-1], cumulative.device)
    sums = pad(cumulative, (1, 0))
    return sums.gather(-1, stop.expand_as(cumulative)) - sums.gather(-1, start.expand_as(cumulative))


def cumulative_attention(query, key, value, left, right, key_mask=None, causal=False, normalize=False) -> torch.Tensor:
    """Geometric attention by differences of sums along the columns, as in the authors' code."""
    scores = geometric_scores(query @ key.mT, left, right, key_mask, causal)
    weights = (logsigmoid(scores) + window_sum(logsigmoid(-scores).cumsum(-1))).exp()
    if normalize:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=SMALLEST_SUM)
    return weights.to(value.dtype) @ value


def eager_attention(query, key, value, *sides, **options) -> torch.Tensor:
    return attend_nearest(query @ key.transpose(-1, -2), value, *sides, **options)[0]


def make_inputs(shape: tuple[int, ...], args: argparse.Namespace) -> list[torch.Tensor]:
    batch, heads, length, head_dim = shape
    generator = torch.Generator().manual_seed(args.seed)
    tensors = [torch.randn(batch, heads, length, head_dim, generator=generator) for _ in range(3)]
    tensors[0] /= head_dim**0.5
    tensors += [torch.randn(batch, heads, length, generator=generator) + args.bias for _ in range(2)]
    return [tensor.to(args.device, getattr(torch, args.dtype)).requires_grad_() for tensor in tensors]


def step(attend: Callable, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    output = attend(*inputs)
    return [
        output.detach(),
        *torch.autograd.grad(output, inputs, torch.ones_like(output), materialize_grads=True, allow_unused=True),
    ]


def kept_bytes(attend: Callable, inputs: list[torch.Tensor]) -> int:
    """Bytes of memory kept for the backward pass beside the inputs."""
    storages = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        output = attend(*inputs)
    # the output lives as long as its graph, so that no storage is counted under another's address
    del output
    of_inputs = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return sum(size for address, size in storages.items() if address not in of_inputs)


def largest_error(results: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    pairs = zip(results, exact, strict=True)
    return max((got - wanted).abs().max() / wanted.abs().max().clamp(min=1) for got, wanted in pairs).item()


def rows_of(shape: tuple[int, ...], args: argparse.Namespace) -> Iterator[dict]:
    functions = {"cumulative": cumulative_attention, "eager": eager_attention}
    if device_is_cuda(args.device) and kernel_available(args.device):
        functions["kernel"] = geometric_attention_triton
    options = {"causal": args.causal, "normalize": args.normalize}
    functions = {name: functools.partial(function, **options) for name, function in functions.items()}
    inputs = make_inputs(shape, args)
    exact = step(functions["eager"], [tensor.detach().double().requires_grad_() for tensor in inputs])
    ways = {name: functools.partial(step, attend, inputs) for name, attend in functions.items()}
    for row, (name, way) in zip(compared(measure(ways, args), "cumulative"), ways.items(), strict=True):
        yield {
            **row,
            "kept MiB": kept_bytes(functions[name], inputs) / MEBIBYTE,
            "peak MiB": peak_bytes(way, args.device) / MEBIBYTE,
            "error": largest_error(way(), exact),
        }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for shape in args.shapes:
        yield Table(f"batch,heads,length,dim = {','.join(map(str, shape))}", list(rows_of(shape, args)))
