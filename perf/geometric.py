"""Time and memory of geometric attention, forward and backward: differences of sums by autograd, ours, and the kernel.

    python perf/geometric.py
    python perf/geometric.py --shapes 32,16,50,32 --normalize
    python perf/geometric.py --device cuda --shapes 1,16,512,64 1,16,1024,64 1,16,2048,64 1,16,4096,64 --dtype bfloat16

`cumulative` is the usual way in log space: sums along the columns, differences of them, gradients by autograd. `eager`
is `geometric_attention`, and `kernel` the fused one, with CUDA. All three run in turns on the same tensors; times are
the minimum over the repeats. Memory is that kept for the backward pass, and on CUDA also the peak over both passes.
"""

import argparse
import functools
import time
from collections.abc import Callable

import torch
from torch.nn.functional import logsigmoid, pad

from hf_recurrent.models.ndr.geometric import SMALLEST_SUM, geometric_attention, geometric_scores
from hf_recurrent.models.ndr.kernels import geometric_attention_triton, kernel_available

MEBIBYTE = 2**20


def parse_shape(text: str) -> tuple[int, ...]:
    shape = tuple(int(part) for part in text.split(","))
    if len(shape) != 4 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not four positive numbers: batch,heads,length,head_dim")
    return shape


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # compositional table lookup and ListOps in the paper's sizes, and longer sequences
    shapes = [(512, 1, 13, 256), (32, 16, 50, 32), (4, 4, 256, 64), (1, 2, 1024, 64)]
    parser.add_argument("--shapes", type=parse_shape, nargs="+", default=shapes, help="batch,heads,length,head_dim")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--normalize", action="store_true")
    parser.add_argument("--bias", type=float, default=0.0, help="added to scores: below 0, queries look farther")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def cumulative_attention(query, key, value, left, right, key_mask=None, causal=False, normalize=False) -> torch.Tensor:
    """Geometric attention by differences of sums along the columns, as in the authors' code."""
    scores = geometric_scores(query @ key.mT, left, right, key_mask, causal)
    length = scores.shape[-1]
    column = torch.arange(length, device=scores.device)
    offset = column - column[:, None]
    distance = offset.abs()
    stop = torch.where(offset > 0, distance, distance + 1) + column[:, None]
    start = (column[:, None] - distance + 1).clamp(min=0)
    sums = pad(logsigmoid(-scores).cumsum(-1), (1, 0))
    window = (sums.gather(-1, table.expand_as(scores)) for table in (stop.clamp(max=length), start))
    weights = (logsigmoid(scores) + next(window) - next(window)).exp()
    if normalize:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=SMALLEST_SUM)
    return weights.to(value.dtype) @ value


def eager_attention(*arguments, **options) -> torch.Tensor:
    return geometric_attention(*arguments, **options)[0]


def make_inputs(shape: tuple[int, ...], args: argparse.Namespace) -> list[torch.Tensor]:
    batch, heads, length, head_dim = shape
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(batch, heads, length, head_dim, generator=generator) for _ in range(3)]
    tensors[0] /= head_dim**0.5
    tensors += [torch.randn(batch, heads, length, generator=generator) + args.bias for _ in range(2)]
    return [tensor.to(args.device, getattr(torch, args.dtype)).requires_grad_() for tensor in tensors]


def synchronize(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def step(attend: Callable, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    output = attend(*inputs)
    return [
        output.detach(),
        *torch.autograd.grad(output, inputs, torch.ones_like(output), materialize_grads=True, allow_unused=True),
    ]


def seconds(attend: Callable, inputs: list[torch.Tensor], device: str) -> float:
    synchronize(device)
    # processor time on a CPU, where other programs on the machine count less
    clock = time.process_time if torch.device(device).type == "cpu" else time.perf_counter
    start = clock()
    step(attend, inputs)
    synchronize(device)
    return clock() - start


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


def peak_bytes(attend: Callable, inputs: list[torch.Tensor], device: str) -> int | None:
    """Bytes that both passes add to the allocated memory at their peak."""
    if torch.device(device).type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step(attend, inputs)
    synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def measure(shape: tuple[int, ...], args: argparse.Namespace) -> dict[str, dict]:
    functions = {"cumulative": cumulative_attention, "eager": eager_attention}
    if torch.device(args.device).type == "cuda" and kernel_available(args.device):
        functions["kernel"] = geometric_attention_triton
    options = {"causal": args.causal, "normalize": args.normalize}
    functions = {name: functools.partial(function, **options) for name, function in functions.items()}
    inputs = make_inputs(shape, args)
    exact = step(functions["eager"], [tensor.detach().double().requires_grad_() for tensor in inputs])
    rows = {}
    for name, attend in functions.items():
        results = step(attend, inputs)
        errors = [
            (got - wanted).abs().max() / wanted.abs().max().clamp(min=1)
            for got, wanted in zip(results, exact, strict=True)
        ]
        rows[name] = {
            "error": max(errors).item(),
            "kept": kept_bytes(attend, inputs),
            "peak": peak_bytes(attend, inputs, args.device),
            "seconds": torch.inf,
        }
    for _ in range(args.repeats):
        for name, attend in functions.items():
            rows[name]["seconds"] = min(rows[name]["seconds"], seconds(attend, inputs, args.device))
    return rows


def main() -> None:
    args = parse_arguments()
    threads = torch.get_num_threads()
    print(
        f"{args.dtype} on {args.device}, {threads} threads, times on a CPU are summed over them; forward and backward"
    )
    print("batch,heads,length,dim  way             ms  speed-up  kept MiB  peak MiB    error")
    for shape in args.shapes:
        rows = measure(shape, args)
        for name, row in rows.items():
            gain = rows["cumulative"]["seconds"] / row["seconds"]
            peak = "-" if row["peak"] is None else f"{row['peak'] / MEBIBYTE:.2f}"
            print(
                f"{','.join(map(str, shape)):22s}  {name:10s}{row['seconds'] * 1e3:8.2f}  {gain:7.2f}x"
                f"  {row['kept'] / MEBIBYTE:8.2f}  {peak:>8s}  {row['error']:7.0e}",
                flush=True,
            )
        if "kernel" in rows:
            print(f"{'':24s}kernel over eager: {rows['eager']['seconds'] / rows['kernel']['seconds']:.2f}x")


if __name__ == "__main__":
    main()
