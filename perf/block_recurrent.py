"""The cost of recurrence: training steps, peak memory and generation of Block-Recurrent Transformers, side by side.

    OMP_NUM_THREADS=1 python perf/block_recurrent.py
    python perf/block_recurrent.py --hidden-size 1024 --heads 8 --window 512 --segment 4096 --device cuda

Three tables. (1) Milliseconds of a training step (forward and backward, dropout 0.05) of each row of the paper's Table
1 at a reduced size, medians of interleaved repeats, relative to Slide:13L as in the paper, whose column is there too.
Every step has the same number of tokens: models whose segment is one window (XL) get a larger batch. (2) Peak memory
of a training step against the length of the segment. (3) Milliseconds of a generated token against the length of the
context, with the bytes of the cache.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import hf_recurrent

# the paper's column "step time (relative)"
PAPER = {
    "XL:1w": 0.88,
    "XL:2w": 1.20,
    "XL:4w": 2.11,
    "Slide:12L": 0.93,
    "Slide:13L": 1.00,
    "Rec:lstm:dual": 1.06,
    "Rec:lstm:single": 1.05,
    "Rec:lstm:skip": 1.00,
    "Rec:fixed:dual": 1.01,
    "Rec:fixed:single": 1.02,
    "Rec:fixed:skip": 0.99,
    "Feedback:lstm:single": 1.40,
    "Feedback:fixed:skip": 1.35,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--segment", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(PAPER), choices=list(PAPER))
    tables = ("steps", "memory", "generation")
    parser.add_argument("--tables", nargs="+", default=tables, choices=tables)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384], help="segments of table 2")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 4096, 16384], help="of table 3")
    parser.add_argument("--new-tokens", type=int, default=64, help="generated after each context")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_model(name: str, args: argparse.Namespace):
    kind, *rest = name.split(":")
    window = args.window * (int(rest[0][:-1]) if kind == "XL" else 1)
    fields = {"num_hidden_layers": 13 if name == "Slide:13L" else 12, "recurrent_layers": []}
    if kind in ("Rec", "Feedback"):
        fields |= {
            "recurrent_layers": [-3],
            "state_gate": rest[0],
            "state_update": rest[1],
            "feedback": kind == "Feedback",
        }
    torch.manual_seed(0)
    config = hf_recurrent.BlockRecurrentConfig(
        vocab_size=256,
        hidden_size=args.hidden_size,
        num_attention_heads=args.heads,
        intermediate_size=4 * args.hidden_size,
        window_size=window,
        num_state_vectors=args.window,
        **fields,
    )
    return hf_recurrent.BlockRecurrentForCausalLM(config).to(args.device)


def batch_of(name: str, args: argparse.Namespace) -> torch.Tensor:
    """The same number of tokens for each model: one sequence of a segment, or several of one window."""
    length = args.segment
    if name.startswith("XL"):
        length = min(length, args.window * int(name.split(":")[1][:-1]))
    return torch.randint(0, 256, (args.segment // length, length), device=args.device)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def train_step(model, ids: torch.Tensor, device: str) -> float:
    """Seconds of a forward and a backward pass that continue from a cache."""
    cache = model.model.new_cache()
    with torch.no_grad():
        model(ids[:, : model.config.window_size], past_key_values=cache)
    wait(device)
    begin = time.perf_counter()
    model(ids, labels=ids, past_key_values=cache, detach=True).loss.backward()
    wait(device)
    seconds = time.perf_counter() - begin
    model.zero_grad()
    return seconds


def step_times(args: argparse.Namespace) -> None:
    models = {name: make_model(name, args).train() for name in args.models}
    batches = {name: batch_of(name, args) for name in args.models}
    seconds: dict[str, list[float]] = {name: [] for name in args.models}
    for _ in range(args.repeats + 1):
        for name, model in models.items():
            seconds[name].append(train_step(model, batches[name], args.device))
    # the first of each is a warm-up
    medians = {name: 1000 * statistics.median(values[1:]) for name, values in seconds.items()}
    base = medians.get("Slide:13L")
    print(f"{'model':<22}{'ms a step':>10}{'relative':>10}{'paper':>8}")
    for name, value in medians.items():
        relative = f"{value / base:.2f}" if base else "-"
        print(f"{name:<22}{value:>10.0f}{relative:>10}{PAPER[name]:>8.2f}")


def peak_bytes(step: Callable[[], object], device: str) -> int:
    """Peak memory of a call; on the processor, under Linux, the growth of the process."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    # resets the peak that Linux keeps
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def resident(kind: str) -> int:
    """Bytes of this process in memory, now (VmRSS) or at the peak (VmHWM)."""
    return 1024 * int(re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def memory_table(args: argparse.Namespace) -> None:
    print(f"\n{'model':<22}{'tokens':>8}{'peak MiB':>10}{'KiB a token':>13}")
    for name in ("Slide:13L", "Rec:fixed:skip", "Feedback:fixed:skip"):
        for length in args.lengths:
            command = [sys.executable, *sys.argv, "--peak-of", f"{name}@{length}"]
            size = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"{name:<22}{length:>8}{size / 2**20:>10.0f}{size / 1024 / length:>13.0f}")


@torch.no_grad()
def generation_table(args: argparse.Namespace) -> None:
    print(f"\n{'model':<22}{'context':>8}{'ms a token':>12}{'cache MiB':>11}")
    for name in ("Slide:13L", "Rec:fixed:skip", "Feedback:fixed:skip"):
        model = make_model(name, args).eval()
        for context in args.contexts:
            ids = torch.randint(0, 256, (1, context), device=args.device)
            cache = None
            for piece in ids.split(4 * args.window, dim=1):
                cache = model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values
            seconds = []
            for _ in range(args.new_tokens):
                wait(args.device)
                begin = time.perf_counter()
                model(ids[:, -1:], past_key_values=cache)
                wait(args.device)
                seconds.append(time.perf_counter() - begin)
            size = sum(t.numel() * t.element_size() for t in cache.state_dict().values())
            print(f"{name:<22}{context:>8}{1000 * statistics.median(seconds):>12.2f}{size / 2**20:>11.2f}")


def main() -> None:
    args = parse_arguments()
    if args.peak_of:
        name, length = args.peak_of.split("@")
        model = make_model(name, args).train()
        ids = torch.randint(0, 256, (1, int(length)), device=args.device)
        sys.stdout.write(str(peak_bytes(lambda: model(ids, labels=ids).loss.backward(), args.device)))
        return
    threads = f"{torch.get_num_threads()} threads" if args.device == "cpu" else torch.cuda.get_device_name()
    print(
        f"torch {torch.__version__}, {threads}, float32: width {args.hidden_size}, windows and states of "
        f"{args.window}, {args.segment} tokens a step"
    )
    for name, table in {"steps": step_times, "memory": memory_table, "generation": generation_table}.items():
        if name in args.tables:
            table(args)


if __name__ == "__main__":
    main()
