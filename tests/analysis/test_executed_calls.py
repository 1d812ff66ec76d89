"""Block calls, against plain loops and against what passes through the block of real models."""

import numpy as np
import pytest
import torch
from sweep_models import make_sparse, make_translator

from hf_recurrent import GUTConfig, NDRConfig
from hf_recurrent.analysis.answers import prepare_batch
from hf_recurrent.analysis.evaluate import config_fields
from hf_recurrent.analysis.trials import executed_calls, executed_work
from hf_recurrent.models.depth import loop as depth_loop
from hf_recurrent.models.ops.attention import PackedContext
from support.families import BY_NAME, make_batch, make_model

STEPS = np.array([[0, 3, 5], [2, -1, -1], [4, 4, 1]])
MOST = 5


def config(halting="token", **fields):
    if halting.startswith("act"):
        return NDRConfig(halting=halting, copy_gate=False, **fields)
    return GUTConfig(halting=halting, **{"transition_aware": False, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [8, 2, 9]),
        # one call more to learn that the step is not worth taking, where there is one left
        ({"transition_aware": True}, [1 + 4 + 5, 3, 5 + 5 + 2]),
        ({"halting": "act"}, [15, 2, 12]),
        ({"halting": "act_universal"}, [15, 2, 12]),
        ({"hard_stop": False}, [15, 5, 15]),
        ({"halting": "global", "is_causal": True, "halted_candidates": True}, [15, 5, 15]),
        ({"is_causal": True, "halted_candidates": True}, [8, 2, 9]),
    ],
)
def test_calls_of_each_kind_of_halting(fields, expected):
    calls, units = executed_calls(STEPS, config(**fields), MOST)
    assert calls.tolist() == expected
    assert units.tolist() == [3, 1, 3]


def test_sentences_that_are_read_apart_are_as_deep_as_their_own_deepest_token():
    sentences = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 1]])
    calls, _ = executed_calls(STEPS, config(halting="act"), MOST, sentences)
    assert calls.tolist() == [3 + 3 + 5, 2, 4 + 4 + 4]


def passed(model, block, inputs):
    """Units that went through a block in all calls of a pass, halted ones being gathered out as soon as they can."""
    seen, by_token = [], model.config.token_units

    def count(_, arguments):
        states, context, *_ = arguments
        if isinstance(context, PackedContext) and not by_token:
            seen.append(context.queries.num_rows)
        else:
            # all tokens are there until one leaves, or their whole row
            is_padded = by_token and states.dim() == 3 and model.config.model_type != "ndr"
            seen.append(int(inputs["attention_mask"].sum()) if is_padded else len(states))

    hook = block.register_forward_pre_hook(count)
    with torch.no_grad():
        output = model(**inputs)
    hook.remove()
    return sum(seen), output


@pytest.fixture
def gathers_at_once(monkeypatch):
    monkeypatch.setattr(depth_loop, "PRODUCTS_PER_COMPACTION", 0)


@pytest.mark.parametrize("name", ["ut", "gut", "gut_token", "gut_no_transition", "gut_siamese", "ut_siamese", "gutlb"])
def test_calls_are_those_that_a_block_makes(gathers_at_once, name):
    model, inputs = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    inputs.pop("labels")
    seen, output = passed(model, model.model.block, inputs)
    columns = executed_work(output, inputs, model.config)
    assert columns["model_calls"].sum() == seen
    most = model.config.num_hidden_layers * columns["model_units"].sum()
    assert 0 < seen < most
    with config_fields(model, hard_stop=False):
        full = executed_work(output, inputs, model.config)
    assert full["model_calls"].sum() == most
    assert model.config.hard_stop


def test_under_adaptive_computation_time_rows_are_as_deep_as_their_deepest_token(gathers_at_once):
    model, inputs = make_model(BY_NAME["ndr_act"]), make_batch(BY_NAME["ndr_act"])
    inputs.pop("labels")
    # without padding a row is as many tokens as it is wide
    inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    seen, output = passed(model, model.model.block, inputs)
    columns = executed_work(output, inputs, model.config)
    assert columns["model_calls"].sum() == seen * inputs["input_ids"].shape[1]
    assert columns["model_calls"].sum() > output.ponder_steps.sum()


def test_calls_of_sparse_stacks(gathers_at_once):
    model, inputs = make_sparse(), make_batch(BY_NAME["ut"])
    inputs.pop("labels")
    seen, output = passed(model, model.model.block, inputs)
    assert executed_work(output, inputs, model.config)["model_calls"].sum() == seen
    model = make_translator()
    batch = {**make_batch(BY_NAME["ut"])}
    batch["labels"] = torch.randint(4, 24, (10, 5)).masked_fill(torch.arange(5) > torch.arange(10)[:, None] % 5, -100)
    inputs = prepare_batch(model, batch).inputs
    for stack in ("encoder", "decoder"):
        seen, output = passed(model, getattr(model.model, stack).block, inputs)
        columns = executed_work(output, inputs, model.config)
        most = {"encoder": 5, "decoder": 4}[stack] * columns[f"{stack}_units"].sum()
        assert columns[f"{stack}_calls"].sum() == seen < most
    assert columns["decoder_units"].tolist() == (batch["labels"] != -100).sum(1).tolist()
    assert columns["encoder_units"].tolist() == batch["attention_mask"].sum(1).tolist()
