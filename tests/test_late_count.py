"""On an accelerator the count of living units is read a step late. Here it is made late on the CPU."""

import pytest

from hf_recurrent.models.depth import loop as depth_loop
from hf_recurrent.models.sut import depth
from support.compare import assert_same, compute, gradients


class LateCount(depth_loop.LateValues):
    """Knows each count one step after it was taken, as `LateValues` does on CUDA.

    Attributes:
        polls: how often any of them was asked.
    """

    polls = 0

    def __init__(self):
        super().__init__()
        self.arriving: int | None = None

    def poll(self, live):
        LateCount.polls += 1
        arrived, self.arriving = self.arriving, int(live.sum())
        return arrived


def decides(model, variant) -> bool:
    """Whether units that halt are left out."""
    return variant.halts and getattr(model.config, "hard_stop", True)


@pytest.fixture
def late(monkeypatch):
    def make_late():
        for module in (depth_loop, depth):
            monkeypatch.setattr(module, "LateValues", LateCount)
        monkeypatch.setattr(LateCount, "polls", 0)

    return make_late


def test_deciding_late_changes_nothing(model, variant, batch, late):
    if variant.fixed_layers:
        pytest.skip("decides nothing")
    expected, expected_gradients = compute(model, variant, batch), gradients(model, batch)
    late()
    assert_same(compute(model, variant, batch), expected)
    assert_same(gradients(model, batch), expected_gradients)
    assert bool(LateCount.polls) == decides(model, variant)


def test_all_units_may_be_gone_when_the_count_arrives(model, variant, batch, late):
    if variant.fixed_layers:
        pytest.skip("decides nothing")
    options = {"halting_threshold": 1e-6} if variant.halts else {}
    expected = compute(model, variant, batch, **options)
    late()
    assert_same(compute(model, variant, batch, **options), expected)
    assert bool(LateCount.polls) == decides(model, variant)
