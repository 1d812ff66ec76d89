"""A few seconds of load, and planted faults that it finds."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from fuzz.load import MODELS, campaign, prototype, trial
from hf_recurrent.models.common import causal_lm
from support.families import BY_NAME, LANGUAGE_BY_NAME

pytestmark = pytest.mark.slow
CLASSIFIER = (AutoModelForSequenceClassification, BY_NAME["gut"])
LANGUAGE_MODEL = (AutoModelForCausalLM, LANGUAGE_BY_NAME["gut"])


@pytest.mark.parametrize("model", [CLASSIFIER, LANGUAGE_MODEL, MODELS[-1]], ids=["gut", "gut_causal", "sut_seq2seq"])
def test_threads_get_what_each_gets_alone(model):
    assert trial(random.Random(0), threads=8, models=(model,))[1] == []


def test_calls_that_share_a_record_are_found(monkeypatch):
    shared = []

    class Shared:
        def set(self, calls):
            shared.append(calls)

        def get(self, default):
            return shared[-1]

        def reset(self, token):
            pass

    monkeypatch.setattr(causal_lm, "step_calls", Shared())
    _, faults = trial(random.Random(0), threads=8, models=(LANGUAGE_MODEL,))
    assert any(fault.startswith("generate") and "ponder_steps" in fault for fault in faults)


def test_a_model_that_a_call_changes_is_found(monkeypatch):
    model_class = type(prototype(*CLASSIFIER))
    forward = model_class.forward

    def changed(self, *args, **kwargs):
        self.classifier.output.bias.data.add_(torch.rand(()))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(model_class, "forward", changed)
    assert trial(random.Random(0), threads=4, models=(CLASSIFIER,))[1]


def test_the_campaign_counts_its_trials():
    counts = campaign(count=1, seed=1)
    assert counts.total == 1
    assert str(counts).endswith("1 cases, 0 faults")
