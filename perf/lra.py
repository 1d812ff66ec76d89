"""The cost of length: training steps of the recipes of LRA Text against the length of the text, side by side.

    OMP_NUM_THREADS=1 python perf/lra.py
    python perf/lra.py --hidden-size 256 --rows 32 --device cuda --dtype bf16

Each row of the table is a process of its own, which makes the model of one recipe (`lra_text_*.yaml`) at a reduced
width, with its heads, chunks, memory and depth, and trains it on random sequences of equal length: forward, backward
and optimiser. `ms` is the minimum over the steps after the first, which other programs disturb least, `peak MiB` the
growth of the process in the first (on cuda, of the allocated memory), optimiser states included, and `depth` the mean
number of depth steps. Columns with x are ratios: to the same model at the shortest length, where tokens grow as the
head of the table says, and to the Transformer at the same length. `checkpoint` is gradient checkpointing, which
recomputes activations in the backward pass instead of keeping them. Attention dropout is off by default: with it,
torch has no fused attention on the processor and keeps all attention weights, which grow with the square of the
length.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from block_recurrent import peak_bytes, wait
from hf_recurrent.recipes import find_recipe
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.arguments import ARGUMENT_TYPES
from hf_recurrent.training.recipes import defaults_of, read_recipe

MODELS = ("xpos_transformer", "ut", "gut", "tlb", "gutlb")
CHECKPOINT = "+checkpoint"
BASE, VOCABULARY = "xpos_transformer", 260


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    variants = [name for model in MODELS for name in (model, model + CHECKPOINT)]
    shown = [name for name in variants if CHECKPOINT not in name or name.startswith(("ut", "gut+"))]
    parser.add_argument("--models", nargs="+", default=shown, choices=variants)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--hidden-size", type=int, default=64, help="a multiple of 64, the recipes' width of a head")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3, help="that are timed")
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="the recipes' is 0.1")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--dtype", choices=("float32", "bf16"), default="float32", help="bf16: autocast, as in training"
    )
    parser.add_argument("--json", help="write the rows to this file too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_model(name: str, args: argparse.Namespace) -> torch.nn.Module:
    """The recipe's model at another width."""
    torch.manual_seed(0)
    model_type = name.removesuffix(CHECKPOINT)
    fields = read_recipe(find_recipe(f"lra_text_{model_type}"), defaults_of(ARGUMENT_TYPES))["config"]
    ratio = fields["intermediate_size"] // fields["hidden_size"]
    fields |= {
        "hidden_size": args.hidden_size,
        "num_attention_heads": args.hidden_size // fields["head_dim"],
        "intermediate_size": ratio * args.hidden_size,
        "attention_dropout": args.attention_dropout,
    }
    architecture = ARCHITECTURES[model_type]
    config = architecture.config_class(vocab_size=VOCABULARY, **fields)
    model = architecture.model_class("AutoModelForSequenceClassification")(config).to(args.device).train()
    if name.endswith(CHECKPOINT):
        # the name before transformers 5.23
        enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
        enable({"use_reentrant": False})
    return model


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, length: int, args: argparse.Namespace) -> Any:
    """The model's output in one training step on random sequences."""
    ids = torch.randint(4, VOCABULARY, (args.rows, length), device=args.device)
    labels = torch.randint(0, 2, (args.rows,), device=args.device)
    half = torch.autocast(torch.device(args.device).type, torch.bfloat16)
    with half if args.dtype == "bf16" else contextlib.nullcontext():
        output = model(ids, labels=labels)
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    wait(args.device)
    return output


def measure(name: str, length: int, args: argparse.Namespace) -> dict[str, float]:
    model = make_model(name, args)
    # the first step includes the setup of libraries
    train_step(model, torch.optim.SGD(model.parameters(), lr=0.0), 16, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    peak = peak_bytes(lambda: train_step(model, optimizer, length, args), args.device)
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        output = train_step(model, optimizer, length, args)
        seconds.append(time.perf_counter() - begin)
    steps = output.ponder_steps
    depth = model.config.num_hidden_layers if steps is None else steps[steps >= 0].float().mean().item()
    return {"ms": 1000 * min(seconds), "bytes": peak, "depth": depth}


def measure_in_process(name: str, length: int) -> dict[str, float]:
    command = [sys.executable, *sys.argv, "--measure", f"{name}@{length}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def ratio(value: float, base: float | None) -> str:
    return "-" if base is None else f"{value / base:.1f}"


def table(args: argparse.Namespace) -> list[dict[str, Any]]:
    columns = (
        f"{'ms':>9}{'x short':>9}{'x Transf.':>11}{'peak MiB':>10}{'x short':>9}{'x Transf.':>11}{'KiB/token':>11}"
    )
    print(f"{'model':<28}{'tokens':>7}{'depth':>7}{columns}")
    rows: list[dict[str, Any]] = []
    for name in args.models:
        for length in args.lengths:
            rows.append({"model": name, "length": length, **measure_in_process(name, length)})
            found = {(row["model"], row["length"]): row for row in rows}
            row, short, base = rows[-1], found.get((name, args.lengths[0])), found.get((BASE, length))
            cells = [f"{name:<28}{length:>7}{row['depth']:>7.1f}"]
            for key, shown in (("ms", f"{row['ms']:.0f}"), ("bytes", f"{row['bytes'] / 2**20:.0f}")):
                cells.append(f"{shown:>{9 if key == 'ms' else 10}}{ratio(row[key], short and short[key]):>9}")
                cells.append(f"{ratio(row[key], base and base[key]):>11}")
            print("".join(cells) + f"{row['bytes'] / 1024 / length / args.rows:>11.1f}", flush=True)
    return rows


def main() -> None:
    args = parse_arguments()
    if args.measure:
        name, length = args.measure.split("@")
        sys.stdout.write(json.dumps(measure(name, int(length), args)))
        return
    threads = f"{torch.get_num_threads()} threads" if args.device == "cpu" else torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {threads}, {args.dtype}: width {args.hidden_size}, {args.rows} sequences a step")
    growth = ", ".join(f"{length / args.lengths[0]:g}" for length in args.lengths)
    print(f"tokens of a sequence grow as {growth}")
    rows = table(args)
    if args.json:
        Path(args.json).write_text(json.dumps({**vars(args), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
