"""Schedules against traces of the authors' scheduler."""

import json
from pathlib import Path

import pytest
import torch

from hf_recurrent.training.optimization import SCHEDULES, make_schedule

CASE = Path(__file__).parents[1] / "parity" / "dynamic-halt" / "_extra_lr_schedules" / "case.json"
TRACES = {trace["scheduler"].lower(): trace for trace in json.loads(CASE.read_text())["traces"]}
# those of one paper; another's is in test_adafactor
NAMES = [name for name in SCHEDULES if name not in ("rsqrt_std", "inverse_sqrt_fairseq")]


def made(name, *steps, rate=0.1, **options):
    """An optimiser and its schedule."""
    betas = options.pop("betas", (0.9, 0.999))
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate, betas=betas)
    return optimizer, make_schedule(name, optimizer, *steps, **options)


def run(optimizer, schedule, steps):
    """The rate and betas of each step."""
    for _ in range(steps):
        yield schedule.get_last_lr()[0], *optimizer.param_groups[0]["betas"]
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(("name", "cycle"), [*((name, False) for name in NAMES), ("linearwarmup", True)])
def test_trace_of_the_authors(name, cycle):
    trace = TRACES[name]
    rates, betas = trace["lr_used_at_step"], tuple(trace.get("betas") or (0.9, 0.999))
    steps, options = (trace["warmup_steps"], trace["training_steps"]), {"rate": trace["base_lr"], "betas": betas}
    found = list(run(*made(name, *steps, **options, cycle_adam_beta1=cycle), len(rates)))
    assert [rate for rate, *_ in found] == pytest.approx(rates, rel=1e-9, abs=0)
    first = trace["beta1_used_at_step"] if cycle else [betas[0]] * len(rates)
    assert [beta for _, beta, _ in found] == pytest.approx(first, rel=1e-12)
    assert {beta for *_, beta in found} == {betas[1]}
    assert SCHEDULES[name](0, 0, 10) == pytest.approx(1.0), "no warm-up"


@pytest.mark.parametrize(("name", "cycle"), [*((name, False) for name in SCHEDULES), ("linearwarmup", True)])
def test_resumed_schedule_goes_on_exactly(name, cycle):
    first, second, straight = (made(name, 5, 20, cycle_adam_beta1=cycle) for _ in range(3))
    list(run(*first, 6))
    # a checkpoint must hold numbers only
    assert all(type(value) in (int, float, bool, list, type(None)) for value in first[1].state_dict().values())
    for restored, saved in zip(second, first, strict=True):
        restored.load_state_dict(saved.state_dict())
    assert list(run(*second, 6)) == list(run(*straight, 12))[6:]


@pytest.mark.parametrize("base", [7e-4, 1e-2])
def test_inverse_square_root_begins_at_the_same_rate_whatever_its_peak(base):
    rates = [rate for rate, *_ in run(*made("inverse_sqrt_fairseq", 4, 100, rate=base), 17)]
    expected = [1e-7, 1e-7 + (base - 1e-7) / 4, base, base / 2]
    assert [rates[step] for step in (0, 1, 4, 16)] == pytest.approx(expected, rel=1e-9)
