"""Halting as an accelerator sees it: counts that arrive a step late, however late, and work on two streams."""

import threading
from collections.abc import Callable, Iterator
from unittest import mock

import torch

from hf_recurrent.models.depth import loop as depth_loop
from perf.core import Table

from .checks import Check, NotHereError, Setting
from .correct import TOLERANCE, Batch, back, on, placed

from support.compare import assert_same, compute  # isort: skip - found by the import above
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text  # isort: skip

BATCHES, AT_ONCE = 10_000, 1_000
NAMES = ("ut", "gut", "gutlb", "sut", "ndr_act", "gut_token")
# clock cycles of a GPU, for which a stream is kept busy
MOST_CYCLES = 400_000


class CountAtOnce(depth_loop.LateValues):
    """Waits for each count."""

    def poll(self, live: torch.Tensor) -> int:
        return int(live.sum())


class LateCount(depth_loop.LateValues):
    """Knows each count a step after it was taken: what a device may do, on one that does all at once."""

    def __init__(self):
        super().__init__()
        self.arriving: int | None = None

    def poll(self, live: torch.Tensor) -> int | None:
        arrived, self.arriving = self.arriving, int(live.sum())
        return arrived


def delays(model: torch.nn.Module, generator: torch.Generator) -> Callable[[], None]:
    """Keep the stream busy before some applications of the block, for random times -> what ends it."""

    def wait(*_) -> None:
        if torch.rand((), generator=generator) < 0.2:
            torch.cuda._sleep(int(torch.randint(MOST_CYCLES, (), generator=generator)))

    blocks = [module for name, module in model.named_modules() if name.endswith(".block")]
    handles = [block.register_forward_pre_hook(wait) for block in blocks]
    return lambda: [handle.remove() for handle in handles] and None


def random_batches(number: int, seed: int, toy: bool) -> Iterator[tuple[str, Batch]]:
    generator = torch.Generator().manual_seed(seed)
    for index in range(number):
        name = NAMES[index % len(NAMES)]
        rows = int(torch.randint(1, 24, (), generator=generator))
        length = int(torch.randint(2, 8 if toy else 24, (), generator=generator))
        yield name, make_batch(BY_NAME[name], rows, length, seed=seed * number + index)


def late_counting(setting: Setting, seed: int, number: int) -> list[Table]:
    """Random batches: what a late count makes of them is what one makes that is waited for."""
    with placed(setting) as device:
        models = {name: make_model(BY_NAME[name]).to(device) for name in NAMES}
        generator = torch.Generator().manual_seed(seed)
        ends = [] if setting.device == "cpu" else [delays(model, generator) for model in models.values()]
        count = LateCount if setting.device == "cpu" else depth_loop.LateValues
        for name, batch in random_batches(number, seed, setting.toy):
            variant, there = BY_NAME[name], on(device, batch)
            # chances of every kind of depth: few steps, many, and such as the tests are about
            threshold = {"halting_threshold": (1e-6, 0.5, 0.95)[seed % 3]}
            with mock.patch.object(depth_loop, "LateValues", count):
                late = compute(models[name], variant, there, **threshold)
            with mock.patch.object(depth_loop, "LateValues", CountAtOnce):
                expected = compute(models[name], variant, there, **threshold)
            assert_same(back(late), back(expected), TOLERANCE)
        for end in ends:
            end()
    return []


def two_streams(setting: Setting) -> list[Table]:
    """Two threads with a stream each: what they compute together is what each computes alone."""
    if setting.device == "cpu":
        raise NotHereError("a CPU has no streams")
    names, rounds = ("ut", "gut"), 50
    models = {name: make_model(BY_NAME[name]).cuda() for name in names}
    batches = {name: on("cuda", make_batch(BY_NAME[name], 20, 20)) for name in names}
    expected = {name: compute(models[name], BY_NAME[name], batches[name]) for name in names}
    torch.cuda.synchronize()
    problems: list[str] = []

    def work(name: str) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(rounds):
                    found = compute(models[name], BY_NAME[name], batches[name])
                    torch.cuda.current_stream().synchronize()
                    assert_same(found, expected[name], TOLERANCE)
        # of a thread, which would tell nobody
        except Exception as error:
            problems.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    return []


def generation(setting: Setting, name: str) -> list[Table]:
    """Greedy texts with a cache: those of the CPU."""
    variant = LANGUAGE_BY_NAME[name]
    prompt = {key: value for key, value in make_text(variant).items() if key != "labels"}

    def texts(model: torch.nn.Module, inputs: Batch) -> torch.Tensor:
        return model.generate(**inputs, max_new_tokens=8, do_sample=False)

    expected = texts(make_language_model(variant), prompt)
    with placed(setting) as device:
        found = texts(make_language_model(variant).to(device), on(device, prompt)).cpu()
    assert torch.equal(found, expected), f"{found.tolist()} instead of {expected.tolist()}"
    return []


def checks(setting: Setting) -> Iterator[Check]:
    total, at_once = (70, 35) if setting.toy else (BATCHES, AT_ONCE)
    yield Check("two streams", lambda: two_streams(setting))
    names = [variant.name for variant in LANGUAGE_BY_NAME.values() if variant.core]
    for name in names[:: 3 if setting.toy else 1]:
        yield Check(f"greedy texts of {name}", lambda name=name: generation(setting, name))
    for seed in range(total // at_once):
        title = f"random batches {seed * at_once:,} to {(seed + 1) * at_once:,}"
        yield Check(title, lambda seed=seed: late_counting(setting, seed, at_once))
