"""The cost of length: training steps of the recipes of LRA Text against the length of the text, side by side.

    python -m perf lra
    python -m perf lra --hidden-size 256 --rows 32 --device cuda --dtype bfloat16

Each row of the table is the model of one recipe (`lra_text_*.yaml`) at a reduced width, with its heads, chunks, memory
and depth, trained on random sequences of equal length: forward, backward and optimiser (with bfloat16 by autocast).
`peak MiB` is what tensors add in a step, optimiser states included, and `depth` the mean number of depth steps. `x
short` is the ratio to the same model at the shortest length, `x Transformer` that to the Transformer at the same
length; both stand after what they are of, time and memory. `checkpoint` is gradient checkpointing, which recomputes
activations in the backward pass instead of keeping them. Attention dropout is off by default: with it, torch has no
fused attention on the processor and keeps all attention weights, which grow with the square of the length.
"""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hf_recurrent.recipes import find_recipe
from hf_recurrent.registry import ARCHITECTURES
from hf_recurrent.training.recipes import read_mapping

from .core import MEBIBYTE, Table, Timing, measure, peak_bytes

MODELS = ("xpos_transformer", "ut", "gut", "tlb", "gutlb")
CHECKPOINT = "+checkpoint"
BASE, VOCABULARY = "xpos_transformer", 260


def add_options(parser: argparse.ArgumentParser) -> None:
    variants = [name for model in MODELS for name in (model, model + CHECKPOINT)]
    shown = [name for name in variants if CHECKPOINT not in name or name.startswith(("ut", "gut+"))]
    parser.add_argument("--models", nargs="+", default=shown, choices=variants)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--hidden-size", type=int, default=64, help="a multiple of 64, the recipes' width of a head")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--attention-dropout", type=float, default=0.0, help="the recipes' is 0.1")
    parser.set_defaults(repeats=3)


def make_model(name: str, args: argparse.Namespace) -> torch.nn.Module:
    """The recipe's model at another width."""
    torch.manual_seed(args.seed)
    model_type = name.removesuffix(CHECKPOINT)
    fields = read_mapping(find_recipe(f"lra_text_{model_type}"))["config"]
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


def training_step(name: str, length: int, args: argparse.Namespace) -> Callable[[], Any]:
    """A training step on random sequences, which returns the model's output."""
    model = make_model(name, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    half = args.dtype != "float32"

    def step() -> Any:
        ids = torch.randint(4, VOCABULARY, (args.rows, length), device=args.device)
        labels = torch.randint(0, 2, (args.rows,), device=args.device)
        kind = torch.device(args.device).type
        with torch.autocast(kind, getattr(torch, args.dtype)) if half else contextlib.nullcontext():
            output = model(ids, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return output

    return step


def depth_of(output: Any, name: str, args: argparse.Namespace) -> float:
    steps = output.ponder_steps
    fixed = make_model(name, args).config.num_hidden_layers
    return float(fixed) if steps is None else steps[steps >= 0].float().mean().item()


def tables(args: argparse.Namespace) -> Iterator[Table]:
    timings: dict[tuple[str, int], Timing] = {}
    peaks: dict[tuple[str, int], int] = {}
    rows = []
    for length in args.lengths:
        # the first step, with the optimiser's states
        ways = {(name, length): training_step(name, length, args) for name in args.models}
        peaks |= {key: peak_bytes(way, args.device) for key, way in ways.items()}
        timings |= measure(ways, args)
        depths = {name: depth_of(way(), name, args) for (name, _), way in ways.items()}
        for name in args.models:
            here, short, base = (name, length), (name, args.lengths[0]), (BASE, length)
            rows.append(
                {
                    "model": name,
                    "tokens": length,
                    "depth": depths[name],
                    "ms": 1e3 * timings[here].median,
                    "x short": timings[here].median / timings[short].median,
                    "x Transformer": timings[here].ratio(timings[base])[0] if base in timings else None,
                    "peak MiB": peaks[here] / MEBIBYTE,
                    "memory x short": peaks[here] / peaks[short],
                    "memory x Transformer": peaks[here] / peaks[base] if base in peaks else None,
                    "KiB a token": peaks[here] / 1024 / length / args.rows,
                }
            )
    rows.sort(key=lambda row: args.models.index(row["model"]))
    yield Table(f"Training step of {args.rows} sequences, width {args.hidden_size}", rows)
