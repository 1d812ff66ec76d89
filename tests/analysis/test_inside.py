"""An example under every stopping rule, against calls of the model with that rule."""

import itertools

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

from hf_recurrent.analysis.explain.inside import FULL, look_inside
from hf_recurrent.models.config.exit_criteria import CRITERIA
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


def padded(rows, size):
    """Shares from hundredths whose zeros at the end are left out."""
    return np.array([[*row, *[0] * (size - len(row))] for row in rows]) / 100


def check(model, tokenizer, rules):
    found = look_inside(model, tokenizer, TEXT)
    inputs = tokenizer(TEXT, return_tensors="pt")
    size = inputs["input_ids"].shape[1]
    name_of = tokenizer.convert_ids_to_tokens if found["next"] else model.config.id2label.__getitem__
    assert found["tokens"] == ["[BOS]", *TEXT.split(), "[EOS]"]
    assert [run["rule"] for run in found["runs"]] == rules
    for run in found["runs"]:
        output = outputs_of(model, inputs, run["rule"])
        answer, share = best(output)
        assert run["steps"] == steps_of(output, size).tolist()
        assert run["answer"] == [name_of(answer), pytest.approx(share, abs=1e-3)]
        # the pass is the run's own as long as a token lives, whomever it is shared with
        own, taken = found["passes"][run["pass"]], max(1, *run["steps"])
        assert len(own["attention"]) >= taken
        for step in range(taken):
            live = np.array(run["steps"]) > step
            maps = output.attentions[step][0].amax(0).numpy()
            np.testing.assert_allclose(padded(own["attention"][step], size)[live], maps[live], atol=0.006)
            answer, share = best(outputs_of(model, inputs, run["rule"], max_depth=step + 1))
            assert own["answers"][step] == [name_of(answer), pytest.approx(share, abs=1e-3)]
    return found


@pytest.mark.parametrize(
    "name", ["ndr", *map(nightly, ["ut", "gut", "gut_token", "ut_global", "ndr_act", "sut_dense"])]
)
def test_rules_do_what_the_model_does_when_called_with_them(name, tokenizer):
    model = make_model(BY_NAME[name])
    learned = ["learned"] if BY_NAME[name].halting != "none" else []
    found = check(model.eval(), tokenizer, [FULL, *learned, *WITHOUT_PROBE])
    own = [run["rule"] for run in found["runs"] if run["own"]]
    assert own == (learned or [FULL])
    # examples stop as a whole, but for learned halting of tokens, some of which may stop by it at full depth
    if len(set(found["runs"][0]["steps"])) == 1:
        assert {run["pass"] for run in found["runs"] if run["rule"] in ("agreement", "stability", "entropy")} == {0}


@pytest.mark.parametrize("name", ["ut", *map(nightly, ["gut", "ndr", "ndr_act", "gut_no_halt"])])
def test_tokens_of_language_models_stop_one_by_one(name, tokenizer):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    learned = ["learned"] if LANGUAGE_BY_NAME[name].halting != "none" else []
    found = check(model.eval(), tokenizer, [FULL, *learned, *WITHOUT_PROBE])
    assert len(found["passes"]) > 1
    assert any(len(set(run["steps"])) > 1 for run in found["runs"])
    assert found["readout"] == 7


def test_a_criterion_of_the_checkpoint_has_its_own_setting(tokenizer):
    model = make_model(BY_NAME["ndr"], exit_criterion="entropy", exit_threshold=0.9, exit_patience=2)
    logging.get_logger().warning_once.cache_clear()
    with CaptureLogger(logging.get_logger("hf_recurrent.models.base.shared_block")) as told:
        runs = {run["rule"]: run for run in look_inside(model, tokenizer, TEXT)["runs"]}
    # defaults are shown, and nobody asked for them
    assert told.out == ""
    assert [name for name, run in runs.items() if run["own"]] == ["entropy"]
    assert runs["entropy"]["label"] == "entropy \u2264 0.9 for 2 steps"
    assert runs["confidence"]["label"] == "confidence \u2265 0.99"
    assert runs["stability"]["label"] == "stability for 2 steps"
    with torch.no_grad():
        steps = model(**tokenizer(TEXT, return_tensors="pt")).ponder_steps
    assert set(runs["entropy"]["steps"]) == set(steps.tolist())
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
    assert [run["rule"] for run in found["runs"]] == rules
    assert found["stage"] == ("layer" if len(rules) == 1 else "step")
    assert len(found["tokens"]) == (8 if pair is None else 13)


def test_rows_of_shares_end_with_the_last_that_is_not_zero(tokenizer):
    found = look_inside(make_language_model(LANGUAGE_BY_NAME["gut"]), tokenizer, TEXT)
    for each in found["passes"]:
        # nothing after the token itself
        assert all(len(row) <= place + 1 for maps in each["attention"] for place, row in enumerate(maps))
        assert all(row[-1] for row in (*itertools.chain(*each["attention"]), *each["gates"]) if row)


def test_long_texts_have_a_limit(tokenizer):
    model = make_model(BY_NAME["ndr"])
    with pytest.raises(ValueError, match=r"text has 129 tokens, .*: pass at most 128"):
        look_inside(model, tokenizer, "w4 " * 127)
