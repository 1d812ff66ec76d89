"""Where the time of a forward pass or of a decoded token goes, by cause.

    python -m perf profile
    python -m perf profile --architectures ndr --widths 128 --batch-sizes 8 --exit
    python -m perf profile --decode --architectures ut gut --batch-sizes 1

The cause of an operator, or of a moment of the processor's time, is the innermost function of this package that is
running: `CAUSES` maps files, and functions of them, to causes. `calls` are operators, views included, since the host
pays for those, too. Time is sampled: at regular intervals of the processor's time it is noted who runs, which costs the
pass nothing; `us` is the share of the samples times the time of a pass.
"""

import argparse
import copy
import itertools
import math
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hf_recurrent

from .core import Table, measure
from .models import add_size_options, build, infer, mixed_batch, never_halt, random_tokens, tune_depth

ON_DEVICES = False
INTERVAL = 0.001
TOKENS = 64
ROOT = str(Path(hf_recurrent.__file__).parent / "models") + "/"
# by function, file and folder; the most exact one counts
CAUSES = {
    "depth/loop.py:summarize": "outputs",
    "depth/loop.py:assemble": "outputs",
    "depth/loop.py:by_unit": "outputs",
    "depth/loop.py:check_halting_probabilities": "checks",
    "depth/loop.py": "compaction",
    "depth/layouts.py:finish": "outputs",
    "depth/layouts.py:answers": "readout and criterion",
    "depth/layouts.py:of_live": "readout and criterion",
    "depth/layouts.py:of_rows": "readout and criterion",
    "depth/layouts.py:masked_mean": "readout and criterion",
    "depth/layouts.py:features": "readout and criterion",
    "depth/layouts.py:running_sums": "halting",
    "depth/layouts.py": "compaction",
    "depth/halting.py": "compaction",
    "depth/early_exit.py": "readout and criterion",
    "depth/exit_criteria.py": "readout and criterion",
    "depth/depth_cache.py": "cache",
    "depth/cache.py": "cache",
    "depth": "halting",
    "base/base_model.py:pool": "readout and criterion",
    "base/base_model.py:cached_rotations": "positions",
    "base/base_model.py:embedded": "embedding",
    "base": "masks and inputs",
    "heads": "readout and criterion",
    "ops/attention.py:attend_packed": "compaction",
    "ops/attention.py:with_frozen": "compaction",
    "ops/attention.py": "attention",
    "ops/row_groups.py": "compaction",
    "ops/positions.py": "positions",
    "ops/masks.py": "masks and inputs",
    "ops/checks.py": "checks",
    "ops/halting_heads.py": "halting",
    "ops/exit_probe.py": "readout and criterion",
    "ops": "feed-forward and norms",
    "ndr": "attention",
    "sut/halting.py": "halting",
    "sut": "feed-forward and norms",
}


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
    """Samples by cause, of calls for about so many seconds."""
    found = Counter()
    before = signal.signal(signal.SIGPROF, lambda _, frame: found.update((cause_of(frame),)))
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        for _ in range(math.ceil(seconds / seconds_of_call)):
            call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return found


def profiled(call: Callable[[], object], args: argparse.Namespace) -> Iterator[dict]:
    seconds = measure({"call": call}, args)["call"].median
    with Operators() as operators:
        call()
    samples = sampled(call, args.seconds, seconds)
    for cause, number in samples.most_common():
        share = number / samples.total()
        yield {"cause": cause, "calls": operators.calls[cause], "us": 1e6 * share * seconds, "%": 100 * share}
    yield {"cause": "all", "calls": operators.calls.total(), "us": 1e6 * seconds, "%": 100.0}


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
    parser.add_argument("--decode", action="store_true", help="a token after `--context` ones, instead of a pass")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=4, help="of the processor that are sampled")


def call_of(architecture: str, batch_size: int, args: argparse.Namespace) -> Callable[[], object]:
    own = {} if args.exit is None else {"halting": "none", "depth_objective": "final", "exit_criterion": args.exit}
    if args.exit == "none":
        own["exit_criterion"] = "learned"
    own |= {"exit_threshold": 0.5} if args.exit not in (None, "none") else {}
    model = build(architecture, args, causal=args.decode, **own)
    batch = mixed_batch(args, batch_size, args.length, shortest=3 * args.length // 4)
    if args.exit == "none":
        pass
    elif args.share < 1:
        tune_depth(model, batch, args.share)
    else:
        never_halt(model)
    if not args.decode:
        return partial(infer, model, batch)
    text, cache = random_tokens((batch_size, args.context), args.seed + 2), model.model.new_cache()
    with torch.no_grad():
        model.model(text[:, :-1], past_key_values=cache, pooling=False)
    # a copy of the cache serves so many tokens, as in generation, where it has room for more
    states = itertools.chain.from_iterable(itertools.repeat(copy.deepcopy(cache), TOKENS) for _ in itertools.count())

    def decode() -> None:
        with torch.no_grad():
            model(text[:, -1:], past_key_values=next(states), use_cache=True)

    return decode


def tables(args: argparse.Namespace) -> Iterator[Table]:
    for architecture in args.architectures:
        for width, batch_size in itertools.product(args.widths, args.batch_sizes):
            args.hidden_size = width
            what = f"a token after {args.context:,}" if args.decode else f"up to {args.length} tokens"
            title = f"{architecture}, width {args.hidden_size}, batch {batch_size}, {what}, {args.num_steps} steps"
            yield Table(title, list(profiled(call_of(architecture, batch_size, args), args)))
