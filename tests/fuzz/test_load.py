"""A few trials of load, and planted faults that they find."""

import random

import pytest
import torch

from fuzz.load import campaign, trial
from hf_recurrent import GUTForSequenceClassification
from hf_recurrent.models.heads import generation

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "head", [("gut", "ForSequenceClassification"), ("gut", "ForCausalLM"), ("sut", "ForConditionalGeneration")]
)
def test_threads_get_what_each_gets_alone(head):
    assert trial(random.Random(0), threads=8, heads=[head])[1] == []


def test_calls_that_share_a_record_are_found(monkeypatch):
    shared = []

    class Shared:
        def set(self, calls):
            shared.append(calls)

        def get(self, default):
            return shared[-1]

        def reset(self, token):
            pass

    monkeypatch.setattr(generation, "step_calls", Shared())
    # whether two calls meet is up to the machine: one of many trials finds them
    trials = (trial(random.Random(seed), threads=8, heads=[("gut", "ForCausalLM")])[1] for seed in range(50))
    assert any(fault.startswith("generate") and "ponder_steps" in fault for faults in trials for fault in faults)


def test_a_model_that_a_call_changes_is_found(monkeypatch):
    forward = GUTForSequenceClassification.forward

    def changed(self, *args, **kwargs):
        self.classifier.output.bias.data.add_(torch.rand(()))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(GUTForSequenceClassification, "forward", changed)
    assert trial(random.Random(0), threads=4, heads=[("gut", "ForSequenceClassification")])[1]


def test_the_campaign_counts_its_trials():
    counts = campaign(count=1, seed=1)
    assert counts.total == 1
    assert str(counts).endswith("1 cases, 0 faults")
