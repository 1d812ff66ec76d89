"""Schedules against traces of the authors' scheduler."""

import json
from pathlib import Path

import pytest
import torch

from hf_recurrent.training.optimization import SCHEDULES, check_schedule, make_schedule

CASE = Path(__file__).parents[1] / "parity" / "dynamic-halt" / "_extra_lr_schedules" / "case.json"
TRACES = {trace["scheduler"].lower(): trace for trace in json.loads(CASE.read_text())["traces"]}


# those of one paper; another's is in test_adafactor
NAMES = [name for name in SCHEDULES if name not in ("rsqrt_std", "inverse_sqrt_fairseq")]


@pytest.mark.parametrize("name", NAMES)
def test_trace_of_the_authors(name):
    trace = TRACES[name]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=trace["base_lr"])
    scheduler = make_schedule(name, optimizer, trace["warmup_steps"], trace["training_steps"])
    for expected in trace["lr_used_at_step"]:
        assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9, abs=0)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("cycle", [True, False])
def test_beta1_is_cycled_only_if_asked_for(cycle):
    trace = TRACES["linearwarmup"]
    assert trace["beta1_used_at_step"][0] == 0.95
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=trace["base_lr"], betas=trace["betas"])
    warmup, total = trace["warmup_steps"], trace["training_steps"]
    scheduler = make_schedule("linearwarmup", optimizer, warmup, total, cycle_adam_beta1=cycle)
    for rate, beta1 in zip(trace["lr_used_at_step"], trace["beta1_used_at_step"], strict=True):
        assert scheduler.get_last_lr()[0] == pytest.approx(rate, rel=1e-9, abs=0)
        expected = (beta1 if cycle else trace["betas"][0], trace["betas"][1])
        assert optimizer.param_groups[0]["betas"] == pytest.approx(expected, rel=1e-12)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(("name", "cycle"), [*((name, False) for name in SCHEDULES), ("linearwarmup", True)])
def test_resumed_schedule_goes_on_exactly(name, cycle):
    def fresh():
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return optimizer, make_schedule(name, optimizer, 5, 20, cycle_adam_beta1=cycle)

    def run(optimizer, scheduler, steps):
        rates = []
        for _ in range(steps):
            rates.append((scheduler.get_last_lr()[0], *optimizer.param_groups[0]["betas"]))
            optimizer.step()
            scheduler.step()
        return rates

    straight = run(*fresh(), 12)
    first, half = fresh()
    run(first, half, 6)
    second, resumed = fresh()
    # a checkpoint must hold numbers only
    assert all(type(value) in (int, float, bool, list, type(None)) for value in half.state_dict().values())
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(half.state_dict())
    assert run(second, resumed, 6) == straight[6:]


@pytest.mark.parametrize("name", NAMES)
def test_no_warmup(name):
    assert SCHEDULES[name](0, 0, 10) == pytest.approx(1.0)


def test_unknown_schedule_lists_and_guesses():
    with pytest.raises(ValueError, match=r"'rootwarm'.*cosine2.*linear.*did you mean rootwarmup"):
        check_schedule("rootwarm")


def test_inverse_square_root_begins_at_the_same_rate_whatever_its_peak():
    for base in (7e-4, 1e-2):
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=base)
        scheduler = make_schedule("inverse_sqrt_fairseq", optimizer, 4, 100)
        rates = []
        for _ in range(17):
            rates.append(scheduler.get_last_lr()[0])
            optimizer.step()
            scheduler.step()
        assert rates[0] == pytest.approx(1e-7, rel=1e-9)
        assert rates[1] == pytest.approx(1e-7 + (base - 1e-7) / 4, rel=1e-9)
        assert rates[4] == pytest.approx(base, rel=1e-9)
        assert rates[16] == pytest.approx(base / 2, rel=1e-9)
