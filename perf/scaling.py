"""What training on many GPUs sends between them, and how long they wait for the deepest one, from simulated processes.

    python -m perf scaling
    python -m perf scaling --world-size 8 --link 450

One process plays the first of `--world-size`: a backend of torch that answers collectives at once stands for the
others, and every collective is counted. `gathers` and `reductions` are those of the parameters of one block or layer in
a training step, and `more a step` what a further depth step adds. `kept` leaves parameters gathered from a forward pass
to the backward one. With FSDP2 all processes agree before each step whether anybody goes on: `agreements`, of 8 bytes
each. Bytes follow from the counts and the parameters of the model's size: bfloat16 to gather, float32 to reduce, by
rings, so that a GPU sends (n - 1) / n of what it gathers or reduces. `link ms` is the time of those bytes at `--link`,
`compute ms` that of the products of all depth steps at the peak and utilisation of `gpu/plan.py`; neither was measured
on several GPUs, and the two may overlap.

The last table draws batches of examples for each of n GPUs from the steps that a card has measured. Work of a GPU is
the sum of its examples' steps, as with compaction; `work of the slowest` is the largest of n over the mean, and
`deepest` the mean, over batches of all GPUs, of the most steps that any example takes.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from gpu.plan import PEAK, UTILIZATION, forward_products

from .core import Table
from .models import VOCABULARY, random_tokens

ON_DEVICES = False
ENGINES = ("DDP", "FSDP2", "FSDP2, kept")
CARDS = Path(__file__).parents[1] / "model_cards"
# bytes of what is gathered, and reduced
GATHERED, REDUCED = 2, 4
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": VOCABULARY}
EXPERTS = {"feed_forward_experts": 4, "feed_forward_experts_per_token": 2, "attention_experts": 4}
FIXED_DEPTH = {"halting": "none", "depth_objective": "final"}
WINDOW = 16
OWN: dict[str, dict[str, Any]] = {
    "UT": {"model_type": "ut", **FIXED_DEPTH},
    "UT, halting": {"model_type": "ut", "halting": "token", "halting_threshold": 1.0},
    "SUT": {"model_type": "sut", **FIXED_DEPTH, **EXPERTS, "attention_experts_per_token": 2},
    "block-recurrent": {"model_type": "block_recurrent", "window_size": WINDOW, "num_state_vectors": 8},
    "block-recurrent, feedback": {
        "model_type": "block_recurrent",
        "window_size": WINDOW,
        "num_state_vectors": 8,
        "feedback": True,
    },
}


# the papers' sizes (dynamic-halt's ListOps, Block-Recurrent's PG19), and about a billion parameters
LARGE_UT = {"hidden_size": 8192, "num_attention_heads": 64, "intermediate_size": 32768, "vocab_size": 32000}
SIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("UT", "paper"): {
        **{"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 32},
        "num_hidden_layers": 10,
    },
    ("UT", "1B"): {**LARGE_UT, "num_hidden_layers": 12},
    ("SUT", "1B"): {
        **{"hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 2048, "vocab_size": 32000},
        **{"feed_forward_experts": 64, "attention_experts": 24, "attention_experts_per_token": 4},
        **{"feed_forward_experts_per_token": 4, "num_hidden_layers": 12},
    },
    ("block-recurrent", "paper"): {
        **{"hidden_size": 1024, "num_attention_heads": 8, "head_dim": 128, "intermediate_size": 4096},
        **{"vocab_size": 32000, "num_hidden_layers": 12, "window_size": 512, "num_state_vectors": 512},
    },
    ("block-recurrent", "1B"): {
        **{"hidden_size": 2048, "num_attention_heads": 16, "head_dim": 128, "intermediate_size": 8192},
        **{"vocab_size": 32000, "num_hidden_layers": 18, "window_size": 512, "num_state_vectors": 512},
    },
}


class Counts(NamedTuple):
    """Collectives of a training step.

    Attributes:
        gathers: how often the parameters of a block or layer are gathered, on average of all of their elements.
        other_gathers: how often those of the rest are.
        reductions: how often the gradient of a parameter is reduced.
        agreements: collectives of one number.
    """

    gathers: float
    other_gathers: float
    reductions: float
    agreements: int


class Collectives(TorchDispatchMode):
    """Counts collectives by operator and number of elements, of what is gathered or reduced."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "c10d":
            name = operator.name().partition("::")[2]
            whole = args[1] if name.startswith("_reduce_scatter") else args[0]
            tensors = whole if isinstance(whole, list | tuple) else [whole]
            self.calls[name, sum(tensor.numel() for tensor in tensors)] += 1
        return operator(*args, **(kwargs or {}))


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The modules that engines shard by themselves."""
    return [module for module in model.modules() if type(module).__name__ in model._no_split_modules]


def padded_numel(parameters: list[nn.Parameter], world_size: int) -> int:
    """Elements of a gathered group, whose first dimensions are divided among all."""
    return sum(
        math.ceil(each.shape[0] / world_size) * world_size * each[0].numel() if each.dim() else world_size
        for each in parameters
    )


def build(name: str, depth: int, **sizes: Any) -> nn.Module:
    own = dict(OWN[name])
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(own.pop("model_type"), **{**SMALL, **own, **sizes, "num_hidden_layers": depth})
    )


def shard(model: nn.Module, world_size: int, kept: bool) -> None:
    """As an engine does: blocks and layers by themselves, then what is left."""
    mesh = init_device_mesh("cpu", (world_size,))
    for module in [*layers_of(model), model]:
        fully_shard(module, mesh=mesh, reshard_after_forward=not kept)


def collectives_of(name: str, engine: str, depth: int, world_size: int) -> Counter:
    """Collectives of a training step on four blocks of text: (operator, elements) -> calls."""
    torch.manual_seed(0)
    model = build(name, depth).train()
    tokens = random_tokens((2, 4 * WINDOW), 0)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    if engine == "DDP":
        counted: Counter = Counter()

        def reduce(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            counted["allreduce_", bucket.buffer().numel()] += 1
            answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            answer.set_result(bucket.buffer())
            return answer

        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(None, reduce)
        parallel(**batch).loss.backward()
        return counted
    shard(model, world_size, kept=engine != "FSDP2")
    with Collectives() as collectives:
        model(**batch).loss.backward()
    return collectives.calls


def counts(name: str, engine: str, depth: int, world_size: int) -> Counts:
    """Collectives of a training step, by the parameters that they are of.

    Raises RuntimeError for a gather that is of no group of parameters.
    """
    calls = collectives_of(name, engine, depth, world_size)
    model = build(name, depth)
    layers = [padded_numel(list(layer.parameters()), world_size) for layer in layers_of(model)]
    owned = {id(parameter) for layer in layers_of(model) for parameter in layer.parameters()}
    rest = padded_numel([each for each in model.parameters() if id(each) not in owned], world_size)
    elements: Counter = Counter()
    for (operator, numel), number in calls.items():
        if operator == "allreduce_" and numel == 1:
            elements["agreements"] += number
        elif not operator.startswith("_allgather"):
            elements["reductions"] += number * numel
        elif numel in layers or numel == rest:
            elements["gathers" if numel in layers else "other_gathers"] += number * numel
        else:
            raise RuntimeError(f"{name}, {engine}: a gather of {numel} elements is of no group of parameters")
    whole = sum(layers) + rest if engine != "DDP" else sum(parameter.numel() for parameter in model.parameters())
    return Counts(
        elements["gathers"] / sum(layers),
        elements["other_gathers"] / rest,
        elements["reductions"] / whole,
        elements["agreements"],
    )


def bytes_sent(found: Counts, engine: str, layers: int, rest: int, world_size: int) -> float:
    """What a GPU sends in a training step of a model with so many parameters in its blocks or layers, and elsewhere."""
    reduced = REDUCED * found.reductions * (layers + rest)
    gathered = GATHERED * (found.gathers * layers + found.other_gathers * rest)
    # an all-reduce by rings is a reduction and a gather
    return (world_size - 1) / world_size * (2 * reduced if engine == "DDP" else reduced + gathered)


def counted_table(args: argparse.Namespace) -> Table:
    rows = []
    for name in OWN:
        for engine in ENGINES:
            found, deeper = (counts(name, engine, depth, args.world_size) for depth in (args.depth, args.depth + 1))
            shared = len(layers_of(build(name, args.depth))) == 1
            rows.append(
                {
                    "model": name,
                    "engine": engine,
                    "gathers": found.gathers,
                    "more a step": deeper.gathers - found.gathers if shared else None,
                    "reductions": found.reductions,
                    "agreements": found.agreements,
                }
            )
    return Table(f"Collectives of a training step at {args.depth} depth steps or layers", rows)


def traffic_table(args: argparse.Namespace) -> Table:
    rows = []
    for (name, size), sizes in SIZES.items():
        depth = sizes["num_hidden_layers"]
        with torch.device("meta"):
            model = build(name, depth, **{key: value for key, value in sizes.items() if key != "num_hidden_layers"})
        layers = sum(parameter.numel() for layer in layers_of(model) for parameter in layer.parameters())
        rest = sum(parameter.numel() for parameter in model.parameters()) - layers
        compute = 3 * forward_products(model, args.rows, args.length) / (PEAK * UTILIZATION)
        for engine in ENGINES:
            sent = bytes_sent(counts(name, engine, depth, args.world_size), engine, layers, rest, args.world_size)
            rows.append(
                {
                    "model": name,
                    "size": size,
                    "parameters": layers + rest,
                    "depth": depth,
                    "engine": engine,
                    "GB a step": sent / 1e9,
                    "link ms": sent / 1e6 / args.link,
                    "compute ms": 1e3 * compute,
                }
            )
    batch = f"{args.rows} sequences of {args.length:,} tokens a GPU"
    return Table(f"Traffic of {args.world_size} GPUs, {batch}, {args.link:g} GB a second", rows)


def waiting_table(args: argparse.Namespace) -> Table:
    rows, draw = [], np.random.default_rng(args.seed)
    for name in args.cards:
        table = json.loads((CARDS / name / "results.json").read_text(encoding="utf-8"))["splits"]["test"]
        histogram = np.array(table["steps_histogram"], dtype=float)
        for number in sorted({1, 8, args.world_size}):
            shape = (args.draws, number, args.batch_size)
            steps = draw.choice(len(histogram), size=shape, p=histogram / histogram.sum())
            work = steps.sum(-1)
            rows.append(
                {
                    "card": name,
                    "GPUs": number,
                    "mean steps": steps.mean(),
                    "work of the slowest": (work.max(-1) / work.mean(-1)).mean(),
                    "deepest": steps.max((-1, -2)).mean(),
                    "most": table["max_depth"],
                }
            )
    return Table(f"Waiting for the deepest, {args.batch_size} examples a GPU", rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--world-size", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4, help="steps or layers of the counted models")
    parser.add_argument("--rows", type=int, default=8, help="sequences of a GPU's batch, of the larger models")
    parser.add_argument("--length", type=int, default=2048, help="tokens of each of them")
    parser.add_argument(
        "--link", type=float, default=50.0, help="GB that a GPU sends in a second, 400 Gbit/s by default"
    )
    parser.add_argument(
        "--cards", nargs="+", default=["ndr-ctl-forward", "ndr-arithmetic", "ut-listops", "gut-listops"]
    )
    parser.add_argument("--batch-size", type=int, default=32, help="examples of a GPU, whose steps are drawn")
    parser.add_argument("--draws", type=int, default=2000, help="batches of all GPUs")


def tables(args: argparse.Namespace) -> Iterator[Table]:
    dist.init_process_group("fake", rank=0, world_size=args.world_size, store=FakeStore())
    try:
        yield counted_table(args)
        yield traffic_table(args)
        yield waiting_table(args)
    finally:
        dist.destroy_process_group()
