"""Greedy decoding that `generate` compiles, with `cache_implementation="static"`, against eager decoding.

    python -m perf static_cache
    python -m perf static_cache --architectures ut ouro_recurrent --hidden-size 512 --device cuda

Both ways are `generate` itself, prefill included. `first s` are the seconds of the first compiled text, compilation
included, and `graphs` those that all texts have made. `ratio` is the time of a text over that of eager decoding.
"""

import argparse
from collections.abc import Iterator
from functools import partial

import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from .compiled import first_compiled
from .core import Table, device_is_cuda, measure, time_columns
from .models import add_size_options, build, random_tokens

ARCHITECTURES = (
    *("rnn", "block_recurrent", "tlb", "gutlb"),
    *("xpos_transformer", "ut", "gut", "ndr", "sut", "ouro_recurrent", "huginn_recurrent"),
)
# of few layers, whose texts rounding does not change
FIELDS = {name: {"layers_per_step": 2, "initializer_range": 0.1} for name in ("ouro_recurrent", "huginn_recurrent")}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, width=256, steps=6)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each text")


def compile_config(device: str) -> CompileConfig:
    if device_is_cuda(device):
        return CompileConfig(fullgraph=True)
    config = CompileConfig(fullgraph=True, mode="default")
    # transformers compiles on accelerators unless told so
    config._compile_all_devices = True
    return config


def row_of(architecture: str, batch_size: int, args: argparse.Namespace) -> dict:
    model = build(architecture, args, causal=True, **FIELDS.get(architecture, {}))
    ids = random_tokens((batch_size, args.prompt), seed=args.seed + 1).to(args.device)
    options = {"max_new_tokens": args.tokens, "eos_token_id": None, "do_sample": False}
    eager = partial(model.generate, ids, attention_mask=torch.ones_like(ids), **options)
    compiled = partial(eager, cache_implementation="static", compile_config=compile_config(args.device))
    text, seconds = first_compiled(compiled)
    timings = measure({"eager": eager, "compiled": compiled}, args)
    return {
        "architecture": architecture,
        "texts": batch_size,
        "equal": (text == eager()).float().mean().item(),
        "graphs": counters["stats"]["unique_graphs"],
        "first s": seconds,
        "eager ms": 1e3 * timings["eager"].median,
        **time_columns(timings["compiled"], timings["eager"]),
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    rows = [row_of(name, number, args) for name in args.architectures for number in args.batch_sizes]
    sizes = f"width {args.hidden_size}, {args.num_steps} layers or steps, {args.tokens} tokens after {args.prompt}"
    yield Table(f"Compiled decoding, {sizes}", rows)
