"""Columns of predictions, by kind of model."""

import numpy as np
import pytest
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_recurrent.analysis.answers import answers
from hf_recurrent.analysis.inference import Batch, require_right_answers
from hf_recurrent.analysis.predictors import ClassifierPredictor, TextPredictor
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model
from support.tokenizer import make_tokenizer


def classifier(name="gut", **changes):
    return make_model(BY_NAME[name], **changes)


def columns(predictor, logits, steps=None):
    found = {"logits": np.array(logits, np.float32), "steps": np.array(steps or [np.nan] * len(logits))}
    return {name: column.to_pylist() for name, column in zip(predictor.names, predictor.columns(found), strict=True)}


def test_single_label():
    model = classifier(num_labels=3, id2label={0: "no", 1: "maybe", 2: "yes"})
    found = columns(ClassifierPredictor(model, {}, True), [[0, 0, np.log(2)], [5, 0, 0]], [2, np.nan])
    assert found["prediction"] == ["yes", "no"]
    assert found["probability"] == pytest.approx([0.5, 1 / (1 + 2 * np.exp(-5))])
    assert found["probability_no"][0] == pytest.approx(0.25)
    assert found["steps"] == [2, None]
    assert list(found) == [
        "prediction",
        "probability",
        "probability_no",
        "probability_maybe",
        "probability_yes",
        "steps",
    ]


def test_multiple_labels():
    model = classifier(num_labels=3, id2label={0: "a", 1: "b", 2: "c"}, problem_type="multi_label_classification")
    found = columns(ClassifierPredictor(model, {}, True), [[np.log(3), -1, np.log(4)], [-9, -9, -9], [0, 1, 0]])
    assert found["prediction"] == [["a", "c"], [], ["b"]]
    assert found["probability"][0] == pytest.approx([0.75, 0.8])
    assert found["probability"][1:] == [[], pytest.approx([1 / (1 + np.exp(-1))])]
    assert found["probability_a"] == pytest.approx([0.75, 1 / (1 + np.exp(9)), 0.5])


@pytest.mark.parametrize("problem_type", [None, "regression"])
def test_one_number(problem_type):
    model = classifier(num_labels=1, problem_type=problem_type)
    assert columns(ClassifierPredictor(model, {}), [[2.5], [-1]], [1, 3]) == {"prediction": [2.5, -1], "steps": [1, 3]}
    output = SequenceClassifierOutput(logits=torch.tensor([[2.5], [-1]]))
    found = answers(output, Batch({}, np.array([2, -1])), model.config)
    assert {name: column.tolist() for name, column in found.items()} == {
        "label": [2, -1],
        "answer": [2.5, -1],
        "right": [False, True],
        "loss": [0.25, 0],
    }
    with pytest.raises(ValueError, match="the model predicts a number"):
        require_right_answers(model)


def test_several_numbers():
    predictor = ClassifierPredictor(classifier(num_labels=2, problem_type="regression"), {})
    assert columns(predictor, [[2.5, 0], [-1, 1]])["prediction"] == [[2.5, 0], [-1, 1]]
    with pytest.raises(ValueError, match="all_probabilities: the model predicts numbers"):
        ClassifierPredictor(classifier(num_labels=1), {}, True)


@pytest.mark.parametrize("name", ["gut", "ut", "xpos_transformer", "gut_siamese", "tlb", "gutlb_siamese", "rnn_dnc"])
def test_answers_are_those_of_the_model(name):
    model, batch = classifier(name).eval(), make_batch(BY_NAME[name])
    batch.pop("labels", None)
    predictor = ClassifierPredictor(model, {})
    number = len(batch["input_ids"])
    found, order = predictor.start(number), np.arange(number)[::-1].copy()
    with torch.no_grad():
        predictor.answer(order, {key: value[order] for key, value in batch.items()}, found)
        expected = model(**batch)
    np.testing.assert_allclose(found["logits"], expected.logits.numpy(), atol=1e-5)
    if expected.ponder_steps is None:
        assert np.isnan(found["steps"]).all()
    else:
        rows = expected.ponder_steps.reshape(number, -1).tolist()
        means = [np.mean([step for step in row if step >= 0]) for row in rows]
        np.testing.assert_allclose(found["steps"], means, rtol=1e-6)


def test_text_is_that_of_generate():
    model, tokenizer = make_language_model(LANGUAGE_BY_NAME["gut"]).eval(), make_tokenizer()
    tokenizer.padding_side = "left"
    inputs = tokenizer(["w5 w6", "w7 w8 w9"], padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    predictor = TextPredictor(model, tokenizer, {"max_depth": 2}, 3)
    found = predictor.start(2)
    predictor.answer(np.array([1, 0]), inputs, found)
    expected = model.generate(
        **inputs, max_new_tokens=3, do_sample=False, max_depth=2, return_dict_in_generate=True, pad_token_id=0
    )
    texts = tokenizer.batch_decode(expected.sequences[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert found["texts"].tolist() == texts[::-1]
    assert found["steps"][0] <= 2
    steps = expected.ponder_steps[1]
    assert found["steps"][0] == pytest.approx(steps[steps >= 0].double().mean().item())


def test_text_needs_a_number_of_tokens():
    model, tokenizer = make_language_model(LANGUAGE_BY_NAME["ut"]), make_tokenizer()
    with pytest.raises(ValueError, match="max_new_tokens is not given"):
        TextPredictor(model, tokenizer, {})
    model.generation_config.max_new_tokens = 4
    assert TextPredictor(model, tokenizer, {}).options["max_new_tokens"] == 4
