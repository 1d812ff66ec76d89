"""Time that halting saves, against the work that it leaves.

    python -m perf halting
    python -m perf halting --architectures ut --train
    python -m perf halting --device cuda --dtype bfloat16 --hidden-sizes 512 --num-heads 8 --length 100

Each row times the same model on the same batch in three ways: halted units gathered out (compaction), halted units
masked until the whole batch has stopped, and every step taken. The halting threshold is searched for the wanted depth;
the model itself decides when to halt, by its own halting, and a Neural Data Router by an exit criterion, a probe with
random weights. r is the share of token-steps that halting leaves, padding left out; a transition-aware model applies
its block once more than it takes steps, to find that the step is not worth taking. `compaction` and `masking` are times
over that of every step. `over ideal` is the time of compaction over r * every step, with its quartiles over the rounds:
1 if time followed depth exactly. `products` are multiply-accumulates over those of every step, and `products over
ideal` the same over r. On a GPU, `launches` are kernels of compaction, and `GPU ms` the time for which it computes;
what a pass takes beyond that, it waits for the host.
"""

import argparse
from collections.abc import Callable, Iterator

import torch

from .core import Table, device_is_cuda, measure
from .models import Batch, add_size_options, build, executed_fraction, mixed_batch, never_halt, train_step, tune_depth
from .work import counted, device_work

ARCHITECTURES = ("ut", "gut", "ndr", "sut")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_size_options(parser, steps=20)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--depths", type=float, nargs="+", default=[0.15, 0.3, 0.5], help="fractions of --num-steps")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="longest sequence; the shortest has a quarter of it")
    parser.add_argument("--train", action="store_true", help="time forward and backward instead of forward")


def ways_of(model: torch.nn.Module, batch: Batch, train: bool) -> dict[str, Callable[[], None]]:
    config = model.config
    name = "halting_threshold" if config.exit_criterion == "learned" else "exit_threshold"
    threshold = getattr(config, name)

    def way(compaction: bool, threshold: float, **options) -> Callable[[], None]:
        def call() -> None:
            config.compaction = compaction
            setattr(config, name, threshold)
            if train:
                train_step(model, {**batch, **options})
            else:
                with torch.no_grad():
                    model(**batch, **options)

        return call

    return {
        "compaction": way(True, threshold),
        "masking": way(False, threshold),
        "every step": way(True, 1.0),
    }


def row_of(model: torch.nn.Module, batch: Batch, args: argparse.Namespace) -> dict:
    share = executed_fraction(model, batch)
    ways = ways_of(model, batch, args.train)
    timings = measure(ways, args)
    products = {name: counted(model, ways[name]).products for name in ("compaction", "every step")}
    left = products["compaction"] / products["every step"]
    ways["compaction"]()
    on_gpu = device_is_cuda(args.device)
    launches, busy = device_work(ways["compaction"]) if on_gpu else (None, None)
    whole = timings["every step"]
    middle, low, high = timings["compaction"].ratio(whole)
    return {
        "r": share,
        "compaction": middle,
        "masking": timings["masking"].ratio(whole)[0],
        "over ideal": middle / share,
        "quartiles": (low / share, high / share),
        "every step ms": 1e3 * whole.median,
        "products": left,
        "products over ideal": left / share,
        **({"launches": launches, "GPU ms": busy} if on_gpu else {}),
    }


def tables(args: argparse.Namespace) -> Iterator[Table]:
    what = "training step" if args.train else "forward"
    sizes = f"{args.batch_size} sequences of up to {args.length} tokens, at most {args.num_steps} steps"
    for architecture in args.architectures:
        rows = []
        for width in args.hidden_sizes:
            args.hidden_size = width
            model, batch = build(architecture, args), mixed_batch(args, args.batch_size, args.length)
            for depth in args.depths:
                if depth < 1:
                    tune_depth(model, batch, depth)
                else:
                    never_halt(model)
                rows.append({"width": width, **row_of(model.train(args.train), batch, args)})
                model.eval()
        yield Table(f"Halting of {architecture}, {what}, {sizes}", rows)
