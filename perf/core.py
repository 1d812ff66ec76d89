"""Common options; times and peak memory of several ways to do the same, taken in turns; tables."""

import argparse
import concurrent.futures
import importlib
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

DTYPES = ("float32", "bfloat16", "float16")
MEBIBYTE = 2**20


def add_common_options(parser: argparse.ArgumentParser, on_devices: bool) -> None:
    parser.add_argument("--threads", type=int, default=1, help="of the processor")
    parser.add_argument("--repeats", type=int, default=5, help="rounds in which the ways take turns")
    parser.set_defaults(device="cpu", dtype="float32")
    if on_devices:
        parser.add_argument("--device", help="cpu or cuda")
        parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the tables to this file")
    parser.add_argument(
        "--store", action="store_true", help="write the tables to perf/results, for docs/performance.md"
    )


def parse(script: str, arguments: list[str]) -> argparse.Namespace:
    """The options of a script."""
    module = importlib.import_module(f"perf.{script}")
    parser = argparse.ArgumentParser(
        prog=f"python -m perf {script}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common_options(parser, getattr(module, "ON_DEVICES", True))
    module.add_options(parser)
    return parser.parse_args(arguments)


def quartiles(values: list[float]) -> list[float]:
    """The three quartiles of at least one value."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * values


class Timing(NamedTuple):
    """Seconds of a way in each round: of the processor, summed over its threads, and of the clock on the wall."""

    processor: list[float]
    wall: list[float]
    by_wall: bool

    @property
    def seconds(self) -> list[float]:
        """Processor time of one thread, which other programs disturb least; of several, or a GPU, until it is done."""
        return self.wall if self.by_wall else self.processor

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def ratio(self, base: "Timing") -> tuple[float, float, float]:
        """Median of the ratios to another way in the same round, and their quartiles."""
        ratios = [mine / its for mine, its in zip(self.seconds, base.seconds, strict=True)]
        low, middle, high = quartiles(ratios)
        return middle, low, high


class Prepared(NamedTuple):
    """A way whose preparation is not timed: `call(prepare())`."""

    prepare: Callable[[], Any]
    call: Callable[[Any], object]


def device_is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"


def synchronize(device: str) -> None:
    if device_is_cuda(device):
        torch.cuda.synchronize()


def measure(ways: dict[Any, Callable[[], object] | Prepared], args: argparse.Namespace) -> dict[Any, Timing]:
    """Times of the ways, after one round to warm up, in `args.repeats` rounds of changing order."""
    by_wall = device_is_cuda(args.device) or args.threads > 1
    timings = {name: Timing([], [], by_wall) for name in ways}
    order = random.Random(args.seed)
    for repeat in range(1 + args.repeats):
        for name in order.sample(list(ways), len(ways)):
            way = ways[name]
            call = way
            if isinstance(way, Prepared):
                prepared = way.prepare()
                call = lambda way=way, prepared=prepared: way.call(prepared)  # noqa: E731
            synchronize(args.device)
            wall, processor = time.perf_counter(), time.process_time()
            call()
            synchronize(args.device)
            if repeat > 0:
                timings[name].processor.append(time.process_time() - processor)
                timings[name].wall.append(time.perf_counter() - wall)
    return timings


def compared(timings: dict[Any, Timing], base: Any, label: str = "way") -> list[dict[str, Any]]:
    """A row for each way: milliseconds, and the ratio to the base with its quartiles."""
    return [{label: name, **time_columns(timing, timings[base])} for name, timing in timings.items()]


def time_columns(timing: Timing, base: Timing) -> dict[str, Any]:
    middle, low, high = timing.ratio(base)
    return {
        "ms": 1e3 * timing.median,
        "wall ms": 1e3 * statistics.median(timing.wall),
        "ratio": middle,
        "quartiles": (low, high),
    }


def peak_bytes(call: Callable[[], object], device: str) -> int:
    """Bytes of memory for tensors that a call adds at its peak."""
    if device_is_cuda(device):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        synchronize(device)
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def in_new_process(function: Callable, *arguments: Any) -> Any:
    """The result of a function of a module in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


class Table(NamedTuple):
    """Rows with the same columns: numbers, pairs of numbers, texts, or None for what was not measured."""

    title: str
    rows: list[dict[str, Any]]
    note: str = ""


def shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        return " to ".join(map(shown, value))
    if isinstance(value, float):
        places = ",.0f" if abs(value) >= 999.5 else ".3g" if abs(value) < 0.1 else "#.3g"
        return format(value, places).rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)


def cells(table: Table) -> tuple[list[list[str]], list[bool]]:
    """The table's head and lines as text, and which columns hold numbers."""
    head = list(dict.fromkeys(name for row in table.rows for name in row))
    lines = [[shown(row.get(name)) for name in head] for row in table.rows]
    numeric = [all(not isinstance(row.get(name), str) for row in table.rows) for name in head]
    return [head, *lines], numeric


def as_text(table: Table) -> str:
    lines, numeric = cells(table)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        [
            table.title,
            *("  ".join(pad(*each) for each in zip(line, widths, numeric, strict=True)).rstrip() for line in lines),
            *([table.note] if table.note else []),
        ]
    )


def pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def as_markdown(table: Table) -> str:
    (head, *lines), numeric = cells(table)
    rule = ["---:" if right else "---" for right in numeric]
    body = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))
    return f"### {table.title}\n\n{body}\n" + (f"\n{table.note}\n" if table.note else "")
