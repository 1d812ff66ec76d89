"""The cost of recurrence: training steps, peak memory and generation of Block-Recurrent Transformers, side by side.

    python -m perf block_recurrent
    python -m perf block_recurrent --hidden-size 1024 --heads 8 --window 512 --segment 4096 --device cuda

Three tables. (1) A training step (forward and backward, dropout 0.05) of each row of the paper's Table 1 at a reduced
size, relative to the first, Slide:13L as in the paper, whose column is there too. Every step has the same number of
tokens: models whose segment is one window (XL) get a larger batch. (2) Peak memory of a training step, tensors alone,
against the length of the segment. (3) Milliseconds of a generated token against the length of the context, with the
bytes of the cache.
"""

import argparse
import copy
from collections.abc import Iterator

import torch

import hf_recurrent

from .core import MEBIBYTE, Prepared, Table, compared, measure, peak_bytes

# the paper's column "step time (relative)"
PAPER = {
    "Slide:13L": 1.00,
    "XL:1w": 0.88,
    "XL:2w": 1.20,
    "XL:4w": 2.11,
    "Slide:12L": 0.93,
    "Rec:lstm:dual": 1.06,
    "Rec:lstm:single": 1.05,
    "Rec:lstm:skip": 1.00,
    "Rec:fixed:dual": 1.01,
    "Rec:fixed:single": 1.02,
    "Rec:fixed:skip": 0.99,
    "Feedback:lstm:single": 1.40,
    "Feedback:fixed:skip": 1.35,
}
SHOWN = ("Slide:13L", "Rec:fixed:skip", "Feedback:fixed:skip")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--segment", type=int, default=1024)
    parser.add_argument("--models", nargs="+", default=list(PAPER), choices=list(PAPER))
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384], help="segments of table 2")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 4096, 16384], help="of table 3")
    parser.add_argument("--new-tokens", type=int, default=64, help="read after each context")


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
    return hf_recurrent.BlockRecurrentForCausalLM(config).to(args.device, getattr(torch, args.dtype))


def batch_of(name: str, args: argparse.Namespace) -> torch.Tensor:
    """The same number of tokens for each model: one sequence of a segment, or several of one window."""
    length = args.segment
    if name.startswith("XL"):
        length = min(length, args.window * int(name.split(":")[1][:-1]))
    return torch.randint(0, 256, (args.segment // length, length), device=args.device)


def train_step(name: str, args: argparse.Namespace) -> Prepared:
    """A forward and a backward pass that continue from a cache."""
    model, ids = make_model(name, args).train(), batch_of(name, args)

    def filled_cache():
        cache = model.model.new_cache()
        with torch.no_grad():
            model(ids[:, : model.config.window_size], past_key_values=cache)
        return cache

    def step(cache) -> None:
        model(ids, labels=ids, past_key_values=cache, detach=True).loss.backward()
        model.zero_grad()

    return Prepared(filled_cache, step)


def steps(args: argparse.Namespace) -> Table:
    timings = measure({name: train_step(name, args) for name in args.models}, args)
    rows = [{**row, "paper": PAPER[row["model"]]} for row in compared(timings, args.models[0], "model")]
    return Table(f"Training step of {args.segment} tokens, windows and states of {args.window}", rows)


def memory(args: argparse.Namespace) -> Table:
    rows = []
    for name in SHOWN:
        model = make_model(name, args).train()
        for length in args.lengths:
            ids = torch.randint(0, 256, (1, length), device=args.device)
            size = peak_bytes(lambda model=model, ids=ids: model(ids, labels=ids).loss.backward(), args.device)
            model.zero_grad()
            rows.append(
                {"model": name, "tokens": length, "peak MiB": size / MEBIBYTE, "KiB a token": size / length / 1024}
            )
    return Table("Peak memory of a training step", rows)


@torch.no_grad()
def generation(args: argparse.Namespace) -> Table:
    rows = []
    for name in SHOWN:
        model, caches = make_model(name, args).eval(), {}
        ids = torch.randint(0, 256, (1, max(args.contexts)), device=args.device)
        for context in args.contexts:
            cache = None
            for piece in ids[:, :context].split(4 * args.window, dim=1):
                cache = model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values
            caches[context] = cache

        @torch.no_grad()
        def read(cache, model=model, ids=ids) -> None:
            for _ in range(args.new_tokens):
                model(ids[:, -1:], past_key_values=cache)

        ways = {context: Prepared(lambda cache=cache: copy.deepcopy(cache), read) for context, cache in caches.items()}
        for row in compared(measure(ways, args), args.contexts[0], "context"):
            size = sum(t.numel() * t.element_size() for t in caches[row["context"]].state_dict().values())
            per_token = {
                "ms a token": row["ms"] / args.new_tokens,
                "ratio": row["ratio"],
                "quartiles": row["quartiles"],
            }
            rows.append({"model": name, "context": row["context"], **per_token, "cache MiB": size / MEBIBYTE})
    return Table("Generated token", rows)


TABLES = {"steps": steps, "memory": memory, "generation": generation}


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for name in args.tables:
        yield TABLES[name](args)
