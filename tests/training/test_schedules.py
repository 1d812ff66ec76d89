"""Schedules against traces of the authors' scheduler."""

import json
from pathlib import Path

import pytest
import torch

from hf_recurrent.training.schedules import SCHEDULES, check_schedule, make_schedule

CASE = Path(__file__).parents[1] / "parity" / "dynamic-halt" / "_extra_lr_schedules" / "case.json"
TRACES = {trace["scheduler"].lower(): trace for trace in json.loads(CASE.read_text())["traces"]}


@pytest.mark.parametrize("name", SCHEDULES)
def test_trace_of_the_authors(name):
    trace = TRACES[name]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=trace["base_lr"])
    scheduler = make_schedule(name, optimizer, trace["warmup_steps"], trace["training_steps"])
    for expected in trace["lr_used_at_step"]:
        assert scheduler.get_last_lr()[0] == pytest.approx(expected, rel=1e-9, abs=0)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_resumed_schedule_goes_on_exactly(name):
    def fresh():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return optimizer, make_schedule(name, optimizer, 5, 20)

    def run(optimizer, scheduler, steps):
        rates = []
        for _ in range(steps):
            rates.append(scheduler.get_last_lr()[0])
            optimizer.step()
            scheduler.step()
        return rates

    straight = run(*fresh(), 12)
    first, half = fresh()
    run(first, half, 6)
    second, resumed = fresh()
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(half.state_dict())
    assert run(second, resumed, 6) == straight[6:]


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_warmup(name):
    assert SCHEDULES[name](0, 0, 10) == pytest.approx(1.0)


def test_unknown_schedule_lists_and_guesses():
    with pytest.raises(ValueError, match=r"'rootwarm'.*cosine2.*linear.*did you mean rootwarmup"):
        check_schedule("rootwarm")
