"""Where the time of a forward pass and of a decoded token goes, by cause.

    python -m perf profile
    python -m perf profile --architectures ndr --widths 128 --batch-sizes 8 --exit confidence --contexts

The cause of an operator, or of a moment of the processor's time, is the innermost function of this package that is
running: `CAUSES` maps files, and functions of them, to causes. The first table of an architecture counts operators,
views included, since the host pays for those, too. The second has the time of a call and the share of each cause. Time
is sampled: at regular intervals of the processor's time it is noted who runs, which costs the call nothing.
"""

import argparse
import copy
import itertools
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hf_recurrent

from .core import Table, measure
from .models import Batch, add_size_options, build, infer, mixed_batch, never_halt, random_tokens, tune_depth

ON_DEVICES = False
INTERVAL = 0.001
TOKENS, MOST_TEXTS = 64, 8
ROOT = str(Path(hf_recurrent.__file__).parent / "models") + "/"
# by function, file and folder; the most exact one counts
CAUSES = {
    "depth/loop.py:summarize": "outputs",
    "depth/loop.py:assemble": "outputs",
    "depth/loop.py:by_unit": "outputs",
    "depth/loop.py:check_halting_probabilities": "checks",
    "depth/loop.py": "compaction",
    "depth/layouts.py:finish": "outputs",
    "depth/layouts.py:answers": "readout",
    "depth/layouts.py:of_live": "readout",
    "depth/layouts.py:of_rows": "readout",
    "depth/layouts.py:masked_mean": "readout",
    "depth/layouts.py:features": "readout",
    "depth/layouts.py:running_sums": "halting",
    "depth/layouts.py": "compaction",
    "depth/halting.py": "halting",
    "depth/early_exit.py": "readout",
    "depth/exit_criteria.py": "readout",
    "depth/depth_cache.py": "cache",
    "depth/cache.py": "cache",
    "depth": "halting",
    "base/base_model.py:pool": "readout",
    "base/base_model.py:cached_rotations": "positions",
    "base/base_model.py:embedded": "embedding",
    "base": "masks",
    "heads": "readout",
    "ops/attention.py:attend_packed": "compaction",
    "ops/attention.py:with_frozen": "compaction",
    "ops/attention.py": "attention",
    "ops/row_groups.py": "compaction",
    "ops/positions.py": "positions",
    "ops/masks.py": "masks",
    "ops/checks.py": "checks",
    "ops/halting_heads.py": "halting",
    "ops/exit_probe.py": "readout",
    "ops": "feed-forward",
    "ndr": "attention",
    "sut/halting.py": "halting",
    "sut": "feed-forward",
}


SHOWN = sorted({*CAUSES.values(), "block", "other"})


def cause_of(frame: FrameType | None) -> str:
    """The cause of what the innermost function of the package among these frames does."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(ROOT):
            path = code.co_filename.removeprefix(ROOT)
            names = (f"{path}:{code.co_name}", path, path.partition("/")[0])
            return next((CAUSES[name] for name in names if name in CAUSES), "block")
        frame = frame.f_back
    return "other"


class Operators(TorchDispatchMode):
    """Counts operators by cause."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[cause_of(sys._getframe(1))] += 1
        return function(*args, **(kwargs or {}))


def sampled(call: Callable[[], object], seconds: float, seconds_of_call: float) -> Counter:
    """Seconds by cause, of calls for about so many seconds."""
    found, latest = Counter(), time.process_time()

    def sample(_: int, frame: FrameType | None) -> None:
        # an operator of several intervals is noted once, at its end
        nonlocal latest
        latest, before = time.process_time(), latest
        found[cause_of(frame)] += latest - before

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        for _ in range(math.ceil(seconds / seconds_of_call)):
            call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return found


def profiled(call: Callable[[], object], args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operators of a call by cause; and its milliseconds, with the share of each cause in percent."""
    seconds = measure({"call": call}, args)["call"].median
    with Operators() as operators:
        call()
    samples = sampled(call, args.seconds, seconds)
    whole = sum(samples.values())
    shares = {cause: 100 * taken / whole for cause, taken in samples.items()}
    calls = {"all": operators.calls.total(), **{cause: operators.calls[cause] for cause in SHOWN}}
    return calls, {"ms": 1e3 * seconds, **{cause: shares.get(cause, 0.0) for cause in SHOWN}}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, steps=8)
    parser.add_argument("--architectures", nargs="+", default=["ut", "gut", "ndr", "sut"])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument(
        "--length", type=int, default=32, help="longest sequence; the shortest has three quarters of it"
    )
    parser.add_argument("--exit", help="criterion instead of the model's own halting; none for a fixed depth")
    parser.add_argument("--share", type=float, default=0.45, help="of the steps that halting or the exit leave")
    parser.add_argument("--contexts", type=int, nargs="*", default=[1024], help="tokens before one that is decoded")
    parser.add_argument("--seconds", type=float, default=4, help="of the processor that are sampled")


def model_of(architecture: str, causal: bool, args: argparse.Namespace) -> torch.nn.Module:
    if args.exit is None:
        return build(architecture, args, causal=causal)
    fixed = {"halting": "none", "depth_objective": "final"}
    if args.exit == "none":
        return build(architecture, args, causal=causal, **fixed, exit_criterion="learned")
    return build(architecture, args, causal=causal, **fixed, exit_criterion=args.exit, exit_threshold=0.5)


def set_depth(model: torch.nn.Module, batch: Batch, args: argparse.Namespace) -> None:
    if args.exit != "none" and args.share < 1:
        tune_depth(model, batch, args.share)
    elif args.exit != "none":
        never_halt(model)


def forward(architecture: str, batch_size: int, args: argparse.Namespace) -> Callable[[], object]:
    model = model_of(architecture, causal=False, args=args)
    batch = mixed_batch(args, batch_size, args.length, shortest=3 * args.length // 4)
    set_depth(model, batch, args)
    return partial(infer, model, batch)


def decoding(architecture: str, batch_size: int, context: int, args: argparse.Namespace) -> Callable[[], object]:
    model, ids = model_of(architecture, causal=True, args=args), random_tokens((batch_size, context), args.seed + 2)
    set_depth(model, {"input_ids": ids[:1, :256], "attention_mask": torch.ones_like(ids[:1, :256])}, args)
    cache = model.model.new_cache()
    with torch.no_grad():
        model.model(ids[:, :-1], past_key_values=cache, pooling=False)
    # a copy of the cache serves so many tokens, as in generation, where it has room for more
    states = itertools.chain.from_iterable(itertools.repeat(copy.deepcopy(cache), TOKENS) for _ in itertools.count())

    def decode() -> None:
        with torch.no_grad():
            model(ids[:, -1:], past_key_values=next(states), use_cache=True)

    return decode


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for architecture in args.architectures:
        found = []
        for width, batch_size in itertools.product(args.widths, args.batch_sizes):
            args.hidden_size, setting = width, {"width": width, "batch": batch_size}
            found.append(({**setting, "context": 0}, profiled(forward(architecture, batch_size, args), args)))
            # caches of more texts take gigabytes
            for context in args.contexts if batch_size <= MOST_TEXTS else ():
                call = decoding(architecture, batch_size, context, args)
                found.append(({**setting, "context": context}, profiled(call, args)))
        rows = [({**setting, **calls}, {**setting, **shares}) for setting, (calls, shares) in found]
        what = f"{architecture}: passes over up to {args.length} tokens, or of a token after a context"
        yield Table(f"Operators of {what}", [calls for calls, _ in rows])
        yield Table(f"Time of {what}, % by cause", [shares for _, shares in rows])
