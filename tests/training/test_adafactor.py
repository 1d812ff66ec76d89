"""The optimiser and learning rates of "Block-Recurrent Transformers" against traces of the authors' code."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hf_recurrent.training.optimization import SCHEDULES, MomentumAdafactor, make_schedule

PARITY = Path(__file__).parents[1] / "parity" / "block-recurrent"


def test_trace():
    trace = load_file(PARITY / "unit_adafactor" / "io.safetensors")
    names = [name.removeprefix("param0.") for name in trace if name.startswith("param0.")]
    assert sorted(names) == ["factored", "matrix", "tall", "vector", "zero_vector"]
    parameters = {name: nn.Parameter(trace[f"param0.{name}"].clone()) for name in names}
    optimizer = MomentumAdafactor(parameters.values())
    for step, lr in enumerate(trace["lr"].tolist(), start=1):
        optimizer.param_groups[0]["lr"] = lr
        for name, parameter in parameters.items():
            parameter.grad = trace[f"grad{step}.{name}"]
        optimizer.step()
        for name, parameter in parameters.items():
            # the trace keeps the large one at its ends only
            if f"param{step}.{name}" in trace:
                torch.testing.assert_close(parameter.detach(), trace[f"param{step}.{name}"], rtol=1e-5, atol=1e-7)
    kept = {name: optimizer.state[parameter].keys() for name, parameter in parameters.items()}
    assert [name for name in names if "exp_avg_sq_row" in kept[name]] == ["factored"]


@pytest.mark.parametrize(
    ("name", "multiplier"), [("rsqrt_std", 1.0), ("rsqrt_std_x0.5", 0.5), ("rsqrt_std_x0.25", 0.25)]
)
def test_learning_rates(name, multiplier):
    trace = load_file(PARITY / "unit_lr" / "io.safetensors")
    config = json.loads((PARITY / "unit_lr" / "case.json").read_text())["config"]
    rates = [
        multiplier * SCHEDULES["rsqrt_std"](step, config["warmup_steps"], config["num_steps"])
        for step in trace["step"].tolist()
    ]
    torch.testing.assert_close(torch.tensor(rates), trace[f"lr.{name}"], rtol=1e-6, atol=0)


def test_schedule_moves_the_optimiser():
    trace = load_file(PARITY / "unit_lr" / "io.safetensors")
    optimizer = MomentumAdafactor([nn.Parameter(torch.ones(2))], lr=0.25)
    schedule = make_schedule("rsqrt_std", optimizer, 1000, 500_000)
    for step in range(101):
        if step in (0, 1, 10, 99, 100):
            place = trace["step"].tolist().index(step)
            assert schedule.get_last_lr() == pytest.approx([trace["lr.rsqrt_std_x0.25"][place].item()])
        optimizer.step()
        schedule.step()


def test_no_warmup():
    assert [SCHEDULES["rsqrt_std"](step, 0, 10) for step in (0, 1, 4)] == [0.0, 1.0, 0.5]
