"""Models, configs and caches answer malformed input with an error of ours, which is clear."""

import math

import pytest

from fuzz.malformed_models import (
    CONFIGS,
    HEADS,
    MODELS,
    arguments_of,
    call_with,
    campaign,
    make,
    rule_of,
    valid_arguments,
    wrong_values,
)
from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.common.fields import Finite, Layers, Share, declared_fields, problem
from support.families import make_config


@pytest.mark.slow
def test_campaign():
    found = campaign(count=400, seed=0)
    assert not found.faults, found
    assert found.total == 400


def test_values_by_rule():
    layers, share = list(wrong_values(Layers)), list(wrong_values(Share | None))
    assert {"banana", 0.5, None, True, 0, 10_001} <= {
        each for each in layers if isinstance(each, int | str | float | None)
    }
    assert {-0.25, 1, math.inf} <= {each for each in share if isinstance(each, float | int)}
    assert not any(each is None for each in share)
    assert any(isinstance(each, float) and math.isnan(each) for each in wrong_values(Finite))


def test_every_field_has_wrong_values_and_every_value_of_its_own_is_right():
    for variant in CONFIGS:
        config = make_config(variant)
        for name, declared in declared_fields(type(config)).items():
            assert sum(1 for _ in wrong_values(declared)) > 3, name
            assert problem(getattr(config, name), declared) is None, name


@pytest.mark.slow
def test_every_argument_has_a_rule_and_valid_ones_are_accepted():
    """One variant of each architecture and head."""
    seen = set()
    for head, variant in MODELS:
        if (head, variant.architecture) in seen:
            continue
        seen.add((head, variant.architecture))
        model = make(head, variant)
        valid = valid_arguments(model)
        for name in arguments_of(model):
            assert next(rule_of(model, name)(valid.get(name), model), None) is not None, name
        for name in set(arguments_of(model)) & set(valid):
            if name != "start_of_document" or model.config.is_causal:
                call_with(model, name, valid[name], valid)
    assert len(seen) == sum(head.__name__ in row.heads for head in HEADS for row in ARCHITECTURES.values())
