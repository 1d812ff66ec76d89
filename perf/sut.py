"""Work and time that sparsity and halting save: the Sparse Universal Transformer and a dense one, side by side.

    OMP_NUM_THREADS=1 python perf/sut.py
    python perf/sut.py --hidden-size 512 --experts 23 --per-token 4 --heads 4 --intermediate-size 512

Three tables, of an encoder's forward pass over sequences of mixed lengths. (1) SUT and a dense Universal Transformer
(one expert each) of as many parameters, nothing halting: milliseconds and multiply-accumulates a token, counted as
they are executed; "layers" leaves out the products of queries with keys and of attention weights with values, as tools
that look at layers alone do. (2) SUT against the halting threshold: work and time relative to no halting, beside the
ideal, the fraction of depth steps that tokens still take. `experts` is the work of query and output maps and
feed-forward experts; `other` is done for all tokens (keys and values) or for sequences (scores). The halting head is
random, so that tokens stop at different depths. (3) Implementations of the experts; "batched_mm" copies weights for
each token, so that it is timed for few of them only. Times are the minimum of interleaved repeats.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hf_recurrent

PARTS = {"ExpertMap": "experts", "FeedForwardExperts": "experts", "Router": "routers", "LogHaltingHead": "halting"}
IMPLEMENTATIONS = ("eager", "grouped_mm", "batched_mm")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--experts", type=int, default=7, help="odd, so that a dense model of equal size exists")
    parser.add_argument("--per-token", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2, help="of an expert")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--intermediate-size", type=int, default=256, help="of an expert")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="longest sequence; the shortest has half of it")
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.8, 0.9, 0.99, 1.0])
    parser.add_argument("--steepness", type=float, default=3.0, help="spread of the halting logits of tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    return parser.parse_args()


def make_model(args: argparse.Namespace, dense: bool = False, **fields) -> torch.nn.Module:
    """A model with E experts, or with one as large as all of them."""
    torch.manual_seed(0)
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
        **fields,
    )
    return hf_recurrent.SUTModel(config).eval().to(args.device, getattr(torch, args.dtype))


def make_batch(args: argparse.Namespace) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 1000, (args.batch_size, args.length), generator=generator)
    lengths = torch.randint(args.length // 2, args.length + 1, (args.batch_size, 1), generator=generator)
    lengths[0] = args.length
    mask = (torch.arange(args.length) < lengths).long()
    return {"input_ids": ids.to(args.device), "attention_mask": mask.to(args.device)}


class Work(TorchDispatchMode):
    """Counts multiply-accumulates of matrix products and attention as they are executed, by part of the model."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()
        self.parts = ["keys and values"]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            left, right = args[-2:]
            self.counts[self.parts[-1]] += left.numel() * right.shape[-1]
        elif name == "_grouped_mm":
            self.counts[self.parts[-1]] += args[0].numel() * args[1].shape[-1]
        elif name.startswith("_scaled_dot_product"):
            query, key = args[:2]
            self.counts["scores"] += 2 * query.numel() * key.shape[-2]
        return function(*args, **(kwargs or {}))


@contextmanager
def counted(model: torch.nn.Module):
    work, handles = Work(), []
    for module in model.modules():
        part = PARTS.get(type(module).__name__)
        if part is not None:
            handles.append(module.register_forward_pre_hook(lambda *_, part=part: work.parts.append(part)))
            handles.append(module.register_forward_hook(lambda *_: work.parts.pop() and None))
    with work:
        yield work.counts
    for handle in handles:
        handle.remove()


@torch.no_grad()
def work_of(model: torch.nn.Module, batch: dict[str, torch.Tensor], **options) -> Counter:
    with counted(model) as counts:
        model(**batch, pooling=False, **options)
    return counts


@torch.no_grad()
def seconds_of(calls: dict[object, Callable[[], object]], repeats: int) -> dict[object, float]:
    """Minimum of seconds of each call, taken in turns, which other programs disturb least."""
    seconds = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if repeat > 0:
                seconds[name].append(time.perf_counter() - begin)
    return {name: min(values) for name, values in seconds.items()}


def compare_dense(args: argparse.Namespace, batch: dict[str, torch.Tensor]) -> None:
    models = {"SUT": make_model(args, halting="none"), "dense": make_model(args, dense=True, halting="none")}
    tokens = int(batch["attention_mask"].sum())
    calls = {name: lambda model=model: model(**batch, pooling=False) for name, model in models.items()}
    seconds, layers = seconds_of(calls, args.repeats), {}
    print(f"{'':>6} {'M parameters':>13} {'ms a token':>11} {'M MACs: layers':>15} {'all':>7}  of which")
    for name, model in models.items():
        work = work_of(model, batch)
        body = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
        layers[name] = work.total() - work["scores"]
        fractions = ", ".join(f"{part} {count / work.total():.0%}" for part, count in work.most_common())
        print(
            f"{name:>6} {body / 1e6:13.3f} {1000 * seconds[name] / tokens:11.4f} "
            f"{layers[name] / tokens / 1e6:15.2f} {work.total() / tokens / 1e6:7.2f}  {fractions}"
        )
    print(
        f"dense / SUT: time {seconds['dense'] / seconds['SUT']:.2f}, layers {layers['dense'] / layers['SUT']:.2f}"
        f", kept {args.per_token} of {args.experts} experts\n"
    )


def against_threshold(args: argparse.Namespace, batch: dict[str, torch.Tensor]) -> None:
    model = make_model(args)
    torch.nn.init.normal_(model.halting_head.down_proj.weight, std=args.steepness / args.hidden_size**0.5)
    options = {threshold: {"halting_threshold": threshold} for threshold in {*args.thresholds, 1.0}}
    calls = {
        threshold: lambda option=option: model(**batch, pooling=False, **option)
        for threshold, option in options.items()
    }
    seconds, full = seconds_of(calls, args.repeats), work_of(model, batch, halting_threshold=1.0)
    columns = f"{'threshold':>9} {'steps':>6} {'ideal':>6} | {'experts':>7} {'other':>6} {'time':>6}"
    print(f"{columns} | experts/ideal  time/ideal")
    for threshold in sorted(args.thresholds):
        with torch.no_grad():
            steps = model(**batch, halting_threshold=threshold).ponder_steps
        steps = steps[steps >= 0].float().mean().item()
        work = work_of(model, batch, halting_threshold=threshold)
        experts = work["experts"] / full["experts"]
        other = (work.total() - work["experts"]) / (full.total() - full["experts"])
        elapsed, ideal = seconds[threshold] / seconds[1.0], steps / args.steps
        print(
            f"{threshold:9.2f} {steps:6.2f} {ideal:6.3f} | {experts:7.3f} {other:6.3f} {elapsed:6.3f} | "
            f"{experts / ideal:13.3f}  {elapsed / ideal:10.3f}"
        )
    print()


def implementations(args: argparse.Namespace, batch: dict[str, torch.Tensor]) -> None:
    models = {name: make_model(args, halting="none") for name in IMPLEMENTATIONS}
    for name, model in models.items():
        model.set_experts_implementation(name)
    few = {name: value[:1, : args.length // 2] for name, value in batch.items()}
    print(f"{'tokens':>7} " + " ".join(f"{name + ' ms':>14}" for name in models))
    for inputs in (batch, few):
        timed = [name for name in models if name != "batched_mm" or inputs is few]
        calls = {name: lambda model=models[name], inputs=inputs: model(**inputs, pooling=False) for name in timed}
        seconds = seconds_of(calls, args.repeats)
        tokens = int(inputs["attention_mask"].sum())
        print(f"{tokens:>7} " + " ".join(f"{1000 * seconds[name]:14.1f}" for name in timed))


def main() -> None:
    args = parse_arguments()
    batch = make_batch(args)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.dtype} on {args.device}, width "
        f"{args.hidden_size}, {args.per_token} of {args.experts} experts, {args.steps} steps\n"
    )
    compare_dense(args, batch)
    against_threshold(args, batch)
    implementations(args, batch)


if __name__ == "__main__":
    main()
