"""An example under every stopping rule, against calls of the model with that rule."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

from hf_recurrent.analysis.explain.inside import FULL, look_inside
from hf_recurrent.models.common.exit_criteria import CRITERIA
from support.families import BY_NAME, LANGUAGE_BY_NAME, STEPS, make_config, make_language_model, make_model, nightly
from support.tokenizer import make_tokenizer

TEXT, PAIR = "w4 w9 w5 w21 w6 w4", "w7 w7 w12"
WITHOUT_PROBE = [name for name in CRITERIA if name != "probe"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def outputs_of(model, inputs, rule, **options):
    """A call of the model with a rule."""
    model.set_attn_implementation("eager")
    before = model.config.halting_threshold, model.config.hard_stop
    if rule == FULL:
        model.config.halting_threshold, model.config.hard_stop = 1.0, False
    with torch.no_grad():
        criterion = "learned" if rule == FULL else rule
        output = model(**inputs, exit_criterion=criterion, output_attentions=True, **options)
    model.config.halting_threshold, model.config.hard_stop = before
    return output


def best(output):
    """Number and probability of the answer, of a language model the one after the last token."""
    shares = (output.logits[0] if output.logits.dim() == 2 else output.logits[0, -1]).softmax(-1)
    return int(shares.argmax()), float(shares.max())


def steps_of(output, size):
    """(S,) of tokens that stop one by one or all together."""
    if output.ponder_steps is None:
        return np.full(size, STEPS)
    steps = output.ponder_steps[0]
    return steps.numpy() if steps.dim() else np.full(size, int(steps))


def check(model, tokenizer, rules):
    found = look_inside(model, tokenizer, TEXT)
    inputs = tokenizer(TEXT, return_tensors="pt")
    size = inputs["input_ids"].shape[1]
    language = found.predicts_next
    name_of = tokenizer.convert_ids_to_tokens if language else model.config.id2label.__getitem__
    assert found.tokens == ["[BOS]", *TEXT.split(), "[EOS]"]
    assert [run.rule.name for run in found.runs] == rules
    for run in found.runs:
        output = outputs_of(model, inputs, run.rule.name)
        answer, share = best(output)
        assert run.steps.tolist() == steps_of(output, size).tolist()
        assert (run.answer, run.probability) == (name_of(answer), pytest.approx(share, abs=1e-5))
        # the pass is the run's own as long as a token lives, whomever it is shared with
        own, taken = found.passes[run.number], max(1, run.steps.max())
        assert len(own.attention) >= taken
        for step in range(taken):
            live = run.steps > step
            maps = output.attentions[step][0].amax(0).numpy()
            np.testing.assert_allclose(own.attention[step][live], maps[live], atol=2e-4)
            answer, share = best(outputs_of(model, inputs, run.rule.name, max_depth=step + 1))
            assert own.answers[step] == (name_of(answer), pytest.approx(share, abs=2e-4))
    return found


@pytest.mark.parametrize(
    "name", ["ndr", *map(nightly, ["ut", "gut", "gut_token", "ut_global", "ndr_act", "sut_dense"])]
)
def test_rules_do_what_the_model_does_when_called_with_them(name, tokenizer):
    model = make_model(BY_NAME[name])
    learned = ["learned"] if BY_NAME[name].halting != "none" else []
    found = check(model.eval(), tokenizer, [FULL, *learned, *WITHOUT_PROBE])
    own = [run.rule.name for run in found.runs if run.rule.own]
    assert own == (learned or [FULL])
    # examples stop as a whole, but for learned halting of tokens
    assert {run.number for run in found.runs if run.rule.name in ("agreement", "stability", "entropy")} == {0}


@pytest.mark.parametrize("name", ["ut", *map(nightly, ["gut", "ndr", "ndr_act", "gut_no_halt"])])
def test_tokens_of_language_models_stop_one_by_one(name, tokenizer):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    learned = ["learned"] if LANGUAGE_BY_NAME[name].halting != "none" else []
    found = check(model.eval(), tokenizer, [FULL, *learned, *WITHOUT_PROBE])
    assert len(found.passes) > 1
    assert any(len(set(run.steps.tolist())) > 1 for run in found.runs)
    assert found.readout == 7


def test_a_criterion_of_the_checkpoint_has_its_own_setting(tokenizer):
    model = make_model(BY_NAME["ndr"], exit_criterion="entropy", exit_threshold=0.9, exit_patience=2)
    logging.get_logger().warning_once.cache_clear()
    with CaptureLogger(logging.get_logger("hf_recurrent.models.engine.shared_block")) as told:
        runs = {run.rule.name: run for run in look_inside(model, tokenizer, TEXT).runs}
    # defaults are shown, and nobody asked for them
    assert told.out == ""
    assert [name for name, run in runs.items() if run.rule.own] == ["entropy"]
    assert runs["entropy"].rule.label == "entropy \u2264 0.9 for 2 steps"
    assert runs["confidence"].rule.label == "confidence \u2265 0.99"
    assert runs["stability"].rule.label == "stability for 2 steps"
    with torch.no_grad():
        steps = model(**tokenizer(TEXT, return_tensors="pt")).ponder_steps
    assert set(runs["entropy"].steps.tolist()) == set(steps.tolist())
    # the model is left as it was
    assert (model.config.exit_criterion, model.config.exit_threshold) == ("entropy", 0.9)


def test_a_fitted_probe_is_one_of_the_rules(tokenizer):
    torch.manual_seed(0)
    config = make_config(BY_NAME["ndr"], exit_probe_size=4)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    check(model, tokenizer, [FULL, *CRITERIA])


@pytest.mark.parametrize(
    ("name", "pair", "rules"),
    [
        # layers with weights of their own never stop early
        ("xpos_transformer", None, [FULL]),
        ("gut_siamese", PAIR, [FULL, "learned", *WITHOUT_PROBE]),
        # sentences whose chunks differ have no answer for the pair within a chunk
        ("gutlb_siamese", PAIR, [FULL, "learned", "convergence"]),
    ],
)
def test_rules_that_cannot_be_used_are_left_out(name, pair, rules, tokenizer):
    found = look_inside(make_model(BY_NAME[name]), tokenizer, TEXT, pair)
    assert [run.rule.name for run in found.runs] == rules
    assert found.stage == ("layer" if len(rules) == 1 else "step")
    assert len(found.tokens) == (8 if pair is None else 13)


def test_plain_data_are_shares_in_hundredths_without_zeros_at_the_end(tokenizer):
    found = look_inside(make_language_model(LANGUAGE_BY_NAME["gut"]), tokenizer, TEXT)
    data = found.to_dict()
    for own, stored in zip(found.passes, data["passes"], strict=True):
        for maps, rows in zip(own.attention, stored["attention"], strict=True):
            for place, (weights, row) in enumerate(zip(maps, rows, strict=True)):
                # nothing after the token itself
                assert len(row) <= place + 1
                np.testing.assert_allclose(np.pad(row, (0, 8 - len(row))) / 100, weights, atol=0.00501)
        gates = [np.pad(row, (0, 8 - len(row))) for row in stored["gates"]]
        np.testing.assert_allclose(np.array(gates) / 100, own.gates, atol=0.00501)
    assert [run["steps"] for run in data["runs"]] == [run.steps.tolist() for run in found.runs]
    assert [run["pass"] for run in data["runs"]] == [run.number for run in found.runs]


def test_long_texts_have_a_limit(tokenizer):
    model = make_model(BY_NAME["ndr"])
    with pytest.raises(ValueError, match=r"text has 129 tokens, .*: pass at most 128"):
        look_inside(model, tokenizer, "w4 " * 127)
