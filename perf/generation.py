"""Time per generated token against context length, for each architecture as a language model with halting on.

    python -m perf generation
    python -m perf generation --architectures tlb gutlb --contexts 1024 16384 --repeats 15
    python -m perf generation --num-steps 10 --mean-depth 4

Everything is `generate()` itself, batch 1, with a cache that was filled in pieces. Every context continues with the
same tokens, whole chunks in chunk models, so that work done once a chunk is included. The halting threshold is searched
for the wanted mean depth, on random text; `steps` is the mean of the timed tokens, and a transition-aware model applies
its block once more than it takes steps. `ratio` is the time over that at the first context, and `no cache` the time
without a cache, if the whole context is computed again for every token, over that with one.
"""

import argparse
import copy
from collections.abc import Iterator

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache

import hf_recurrent

from .core import MEBIBYTE, Prepared, Table, compared, measure
from .models import add_size_options, build, random_tokens, tune_depth

CHUNK_ARCHITECTURES = ("tlb", "gutlb")
HALTING_ARCHITECTURES = ("ut", "gut", "sut", "gutlb")
TUNING_TOKENS = 256
UNCACHED_TOKENS = 4


def add_options(parser: argparse.ArgumentParser) -> None:
    names = list(hf_recurrent.ARCHITECTURES)
    add_size_options(parser, width=256, steps=6)
    parser.add_argument("--architectures", choices=names, nargs="+", default=names)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--no-cache-contexts", type=int, nargs="*", default=[1024])
    parser.add_argument("--mean-depth", type=float, default=3.0, help="wanted block applications of those that halt")
    parser.add_argument("--chunk-size", type=int, default=20)
    parser.add_argument("--piece", type=int, default=512, help="tokens read at once while a context is filled")
    parser.add_argument("--tokens", type=int, default=8, help="tokens timed, of models without chunks")


def build_model(architecture: str, args: argparse.Namespace) -> torch.nn.Module:
    sizes = {"chunk_size": args.chunk_size, "num_memory_slots": args.chunk_size}
    chunks = sizes if architecture in CHUNK_ARCHITECTURES else {}
    model = build(architecture, args, causal=True, intermediate_size=4 * args.hidden_size, **chunks)
    if architecture in HALTING_ARCHITECTURES:
        ids = random_tokens((1, TUNING_TOKENS), seed=args.seed + 1).to(args.device)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        tune_depth(model, batch, args.mean_depth / args.num_steps)
    return model


class Continuation(LogitsProcessor):
    """Makes `generate` continue with given tokens (N,)."""

    def __init__(self, tokens: torch.Tensor):
        self.tokens = iter(tokens.tolist())

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        scores[:, next(self.tokens)] = torch.inf
        return scores


def decode(model: torch.nn.Module, context: torch.Tensor, tokens: torch.Tensor, cache: Cache | None) -> None:
    """Generate the tokens (N,) after a context (1, P)."""
    model.generate(
        context,
        attention_mask=torch.ones_like(context),
        past_key_values=cache,
        use_cache=cache is not None,
        max_new_tokens=len(tokens),
        eos_token_id=None,
        do_sample=False,
        logits_processor=LogitsProcessorList([Continuation(tokens)]),
    )


@torch.no_grad()
def fill_caches(model: torch.nn.Module, text: torch.Tensor, args: argparse.Namespace) -> dict[int, Cache]:
    """The caches of the contexts, each without its last token, from one pass over the text (1, P) in pieces."""
    cache, read, caches = model.model.new_cache(), 0, {}
    for context in sorted(args.contexts):
        while read < context - 1:
            stop = min(read + args.piece, context - 1)
            model.model(text[:, read:stop], past_key_values=cache, pooling=False)
            read = stop
        caches[context] = copy.deepcopy(cache)
    return caches


def cache_bytes(cache: Cache) -> int:
    """Bytes of memory that the cache holds, reserved memory included."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    tensors = [tensor for value in values for tensor in (value.values() if isinstance(value, dict) else [value])]
    storages = [tensor.untyped_storage() for tensor in tensors if isinstance(tensor, torch.Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def steps_taken(model: torch.nn.Module, context: torch.Tensor, tokens: torch.Tensor, cache: Cache) -> float | None:
    """Mean ponder steps of the tokens that are generated."""
    steps = []

    def record(module: torch.nn.Module, inputs: tuple, output) -> None:
        if output.ponder_steps is not None:
            steps.append(output.ponder_steps[:, -1])

    hook = model.model.register_forward_hook(record)
    decode(model, context, tokens, cache)
    hook.remove()
    return torch.cat(steps).float().mean().item() if steps else None


def rows_of(architecture: str, args: argparse.Namespace) -> Iterator[dict]:
    model = build_model(architecture, args)
    text = random_tokens((1, max(args.contexts)), seed=args.seed + 2).to(args.device)
    count = args.chunk_size if architecture in CHUNK_ARCHITECTURES else args.tokens
    tokens, caches = random_tokens((count,), seed=args.seed + 3), fill_caches(model, text, args)

    def way(context: int) -> Prepared:
        return Prepared(
            lambda: copy.deepcopy(caches[context]), lambda cache: decode(model, text[:, :context], tokens, cache)
        )

    timings = measure({context: way(context) for context in args.contexts}, args)
    alone = {
        context: lambda context=context: decode(model, text[:, :context], tokens[:UNCACHED_TOKENS], None)
        for context in args.no_cache_contexts
        if context in args.contexts
    }
    uncached = measure(alone, args)
    for row in compared(timings, args.contexts[0], "context"):
        context, per_token = row["context"], row["ms"] / count
        again = 1e3 * uncached[context].median / UNCACHED_TOKENS / per_token if context in uncached else None
        yield {
            "architecture": architecture,
            "context": context,
            "ms a token": per_token,
            "ratio": row["ratio"],
            "quartiles": row["quartiles"],
            "steps": steps_taken(model, text[:, :context], tokens, copy.deepcopy(caches[context])),
            "cache MiB": cache_bytes(caches[context]) / MEBIBYTE,
            "no cache": again,
        }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for architecture in args.architectures:
        sizes = f"width {args.hidden_size}, at most {args.num_steps} steps"
        yield Table(f"Generated token of {architecture}, {sizes}", list(rows_of(architecture, args)))
