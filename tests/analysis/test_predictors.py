"""Rows of predictions, by kind of model: compared with its answers to one text at a time."""

import numpy as np
import pytest
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from hf_recurrent.analysis.answers import Batch, answers, require_right_answers
from hf_recurrent.analysis.predict import Example, PredictionSettings, by_length
from hf_recurrent.analysis.predictors import predictor_of
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model
from support.tokenizer import make_tokenizer


def rows_of(model, inputs, monkeypatch=None, logits=None, **settings):
    """The rows of a batch, or those of made-up logits."""
    predictor = predictor_of(model, make_tokenizer(), PredictionSettings(**settings), False)
    if logits is not None:
        output = SequenceClassifierOutput(logits=torch.tensor(logits, dtype=torch.float32))
        monkeypatch.setattr(type(model), "forward", lambda *_, **__: output)
    with torch.no_grad():
        return predictor.rows(inputs, ["text"] * len(logits or inputs["input_ids"]), [])


def classifier(name="gut", **changes):
    return make_model(BY_NAME[name], **changes).eval()


def test_single_label(monkeypatch):
    model = classifier(num_labels=3, id2label={0: "no", 1: "maybe", 2: "yes"})
    first, second = rows_of(model, {}, monkeypatch, [[0, 0, np.log(2)], [5, 0, 0]], all_probabilities=True)
    assert first["prediction"] == "yes"
    assert (first["probability"], first["probability_no"]) == pytest.approx((0.5, 0.25))
    assert list(first) == ["prediction", "probability", *(f"probability_{n}" for n in ("no", "maybe", "yes")), "steps"]
    assert (second["prediction"], second["steps"]) == ("no", None)


def test_multiple_labels(monkeypatch):
    model = classifier(num_labels=3, id2label={0: "a", 1: "b", 2: "c"}, problem_type="multi_label_classification")
    logits = [[np.log(3), -1, np.log(4)], [-9, -9, -9], [0, 1, 0]]
    rows = rows_of(model, {}, monkeypatch, logits, all_probabilities=True)
    assert [row["prediction"] for row in rows] == [["a", "c"], [], ["b"]]
    assert rows[0]["probability"] == pytest.approx([0.75, 0.8])
    assert rows[1]["probability"] == []
    assert [row["probability_a"] for row in rows] == pytest.approx([0.75, 1 / (1 + np.exp(9)), 0.5])


@pytest.mark.parametrize("problem_type", [None, "regression"])
def test_numbers(problem_type, monkeypatch):
    model = classifier(num_labels=1, problem_type=problem_type)
    output = SequenceClassifierOutput(logits=torch.tensor([[2.5], [-1]]))
    found = answers(output, Batch({}, np.array([2, -1])), model.config)
    expected = {"label": [2, -1], "answer": [2.5, -1], "right": [False, True], "loss": [0.25, 0]}
    assert {name: column.tolist() for name, column in found.items()} == expected
    with pytest.raises(ValueError, match="the model predicts a number"):
        require_right_answers(model)
    with pytest.raises(ValueError, match="all_probabilities: the model predicts numbers"):
        rows_of(model, {}, all_probabilities=True)
    assert rows_of(model, {}, monkeypatch, [[2.5], [-1]])[0] == {"prediction": 2.5, "steps": None}
    several = classifier(num_labels=2, problem_type="regression")
    assert [row["prediction"] for row in rows_of(several, {}, monkeypatch, [[2.5, 0], [-1, 1]])] == [[2.5, 0], [-1, 1]]


@pytest.mark.parametrize("name", ["gut", "ut", "xpos_transformer", "gut_siamese", "tlb", "gutlb_siamese", "rnn_dnc"])
def test_answers_are_those_of_the_model(name):
    model, batch = classifier(name), make_batch(BY_NAME[name])
    batch.pop("labels", None)
    rows = rows_of(model, batch)
    with torch.no_grad():
        expected = model(**batch)
    best = expected.logits.softmax(-1).max(-1)
    assert [row["prediction"] for row in rows] == [model.config.id2label[label] for label in best.indices.tolist()]
    assert [row["probability"] for row in rows] == pytest.approx(best.values.tolist(), rel=1e-5)
    if expected.ponder_steps is None:
        assert {row["steps"] for row in rows} == {None}
    else:
        taken = expected.ponder_steps.reshape(len(rows), -1).tolist()
        means = [np.mean([step for step in row if step >= 0]) for row in taken]
        assert [row["steps"] for row in rows] == pytest.approx(means, rel=1e-6)


def test_text_is_that_of_generate():
    model, tokenizer = make_language_model(LANGUAGE_BY_NAME["gut"]).eval(), make_tokenizer()
    tokenizer.padding_side = "left"
    inputs = tokenizer(["w5 w6", "w7 w8 w9"], padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    rows = rows_of(model, dict(inputs), options={"max_depth": 2}, max_new_tokens=3)
    options = {"max_new_tokens": 3, "do_sample": False, "max_depth": 2, "pad_token_id": 0}
    expected = model.generate(**inputs, **options, return_dict_in_generate=True)
    texts = tokenizer.batch_decode(expected.sequences[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert [row["prediction"] for row in rows] == texts
    steps = expected.ponder_steps[0]
    assert rows[0]["steps"] == pytest.approx(steps[steps >= 0].double().mean().item())
    assert rows[0]["steps"] <= 2


def test_text_needs_a_number_of_tokens():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    with pytest.raises(ValueError, match=r"max_new_tokens is not given, nor .*--max_new_tokens"):
        predictor_of(model, make_tokenizer(), PredictionSettings(), False)
    model.generation_config.max_new_tokens = 5
    assert predictor_of(model, make_tokenizer(), PredictionSettings(), False).most == 5


def test_batches_by_length():
    lengths = (3, 9, 1, 9, 2)
    examples = [Example(number, [], {"input_ids": [0] * length}, (), length) for number, length in enumerate(lengths)]

    def numbers(*limits):
        return [[example.number for example in batch] for batch in by_length(examples, *limits)]

    assert numbers(2, None) == [[1, 3], [0, 4], [2]], "the longest first"
    assert numbers(4, 12) == [[1], [3], [0, 4, 2]]
    assert numbers(4, 1) == [[1], [3], [0], [4], [2]]
