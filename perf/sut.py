"""Work and time that sparsity saves: the Sparse Universal Transformer and a dense one, side by side.

    python -m perf sut
    python -m perf sut --hidden-size 512 --experts 23 --per-token 4 --heads 4 --intermediate-size 512

Two tables, of an encoder's forward pass over sequences of mixed lengths; nothing halts, which `python -m perf halting`
measures. (1) SUT and a dense Universal Transformer (one expert each) of as many parameters: milliseconds and million
multiply-accumulates a token, counted as they are executed; "layers" leaves out the products of queries with keys and of
attention weights with values, as tools that look at layers alone do. (2) Implementations of the experts; "batched_mm"
copies weights for each token, so that it is timed for few of them only.
"""

import argparse
from collections.abc import Callable, Iterator

import torch

import hf_recurrent

from .core import Table, compared, measure
from .models import Batch, mixed_batch
from .work import counted

IMPLEMENTATIONS = ("eager", "grouped_mm", "batched_mm")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--experts", type=int, default=7, help="odd, so that a dense model of equal size exists")
    parser.add_argument("--per-token", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2, help="of an expert")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--intermediate-size", type=int, default=256, help="of an expert")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="longest sequence; the shortest has half of it")


def make_model(args: argparse.Namespace, dense: bool = False) -> torch.nn.Module:
    """A model with E experts, or with one as large as all of them."""
    torch.manual_seed(args.seed)
    experts, per_token = (1, 1) if dense else (args.experts, args.per_token)
    config = hf_recurrent.SUTConfig(
        vocab_size=1000,
        hidden_size=args.hidden_size,
        num_hidden_layers=args.steps,
        head_dim=args.head_dim,
        # E query and output maps, and one of keys and of values
        num_attention_heads=args.heads * (args.experts + 1) // 2 if dense else args.heads,
        intermediate_size=args.intermediate_size * args.experts if dense else args.intermediate_size,
        attention_experts=experts,
        feed_forward_experts=experts,
        attention_experts_per_token=per_token,
        feed_forward_experts_per_token=per_token,
        halting="none",
    )
    return hf_recurrent.SUTModel(config).eval().to(args.device, getattr(torch, args.dtype))


def forward(model: torch.nn.Module, batch: Batch) -> Callable[[], object]:
    return torch.no_grad()(lambda: model(**batch, pooling=False))


def compare_dense(args: argparse.Namespace, batch: Batch) -> Iterator[dict]:
    models = {"SUT": make_model(args), "dense": make_model(args, dense=True)}
    ways = {name: forward(model, batch) for name, model in models.items()}
    tokens = int(batch["attention_mask"].sum())
    for row, (name, model) in zip(compared(measure(ways, args), "SUT", "model"), models.items(), strict=True):
        work = counted(model, ways[name])
        body = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
        yield {
            **row,
            "M parameters": body / 1e6,
            "ms a token": row["ms"] / tokens,
            "M products: layers": (work.products - work.parts["scores"]) / tokens / 1e6,
            "all": work.products / tokens / 1e6,
            "experts": work.parts["experts"] / work.products,
        }


def implementations(args: argparse.Namespace, batch: Batch) -> Iterator[dict]:
    models = {name: make_model(args) for name in IMPLEMENTATIONS}
    for name, model in models.items():
        model.set_experts_implementation(name)
    few = {name: value[:1, : args.length // 2] for name, value in batch.items()}
    for inputs in (batch, few):
        timed = [name for name in models if name != "batched_mm" or inputs is few]
        timings = measure({name: forward(models[name], inputs) for name in timed}, args)
        tokens = int(inputs["attention_mask"].sum())
        yield {"tokens": tokens, **{f"{name} ms": 1e3 * timing.median for name, timing in timings.items()}}


def tables(args: argparse.Namespace) -> Iterator[Table]:
    batch = mixed_batch(args, args.batch_size, args.length, shortest=args.length // 2)
    sizes = f"width {args.hidden_size}, {args.per_token} of {args.experts} experts, {args.steps} steps"
    yield Table(f"SUT and a dense model of equal size: {sizes}", list(compare_dense(args, batch)))
    yield Table("Implementations of experts", list(implementations(args, batch)))
