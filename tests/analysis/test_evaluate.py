"""`hf_recurrent.evaluate` of each kind of head, compared with the model's answers to one example at a time."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sweep_models import make_pairs, make_translator

import hf_recurrent
from hf_recurrent.data.labels import JOINED, NO_LABEL
from support.families import BY_NAME, LANGUAGE_BY_NAME, STEPS, make_batch, make_language_model, make_model, make_text
from support.token_heads import CHOICE, MASKED, SPAN, TOKENS, make_head, make_head_batch

SEVERAL, NUMBER = {"problem_type": "multi_label_classification"}, {"problem_type": "regression"}
KINDS = {
    "classes": lambda: (make_model(BY_NAME["gut"]), make_batch(BY_NAME["gut"])),
    "pairs": lambda: (make_model(BY_NAME["gut_siamese"]), make_batch(BY_NAME["gut_siamese"])),
    "labels": lambda: (make_model(BY_NAME["ut"], **SEVERAL), make_batch(BY_NAME["ut"])),
    "fixed depth": lambda: (make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])),
    "tokens": lambda: (make_head("ut", TOKENS), make_head_batch("ut", TOKENS)),
    "masks": lambda: (make_head("gut", MASKED), make_head_batch("gut", MASKED)),
    "spans": lambda: (make_head("ut", SPAN), make_head_batch("ut", SPAN)),
    "choices": lambda: (make_head("gut", CHOICE), make_head_batch("gut", CHOICE)),
    "texts": lambda: (make_language_model(LANGUAGE_BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gut"])),
    "targets": lambda: (make_translator(), make_pairs()[0]),
}
TASKS = {
    "tokens": "token-classification",
    "masks": "fill-mask",
    "spans": "question-answering",
    "choices": "multiple-choice",
    "texts": "text-generation",
    "targets": "translation",
}


def rows_of(batch, kind):
    """The examples of a batch without their padding, and the batch of each of them alone."""
    mask = batch["attention_mask"].bool()
    rows, alone = [], []
    for place in range(len(mask)):
        row, single = {}, {}
        for name, values in batch.items():
            own = values[place]
            if kind == "choices" and own.dim() > 1:
                single[name] = own[None]
                row[name] = [each[kept].tolist() for each, kept in zip(own, mask[place], strict=True)]
                continue
            if own.shape == mask[place].shape and kind != "targets":
                own = own[mask[place]]
            elif own.dim() and kind == "targets":
                own = own[own != -100] if name == "labels" else own[mask[place]]
            single[name], row[name] = own[None], own.tolist()
        del row["attention_mask"]
        rows.append(row)
        alone.append(single)
    return rows, alone


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_answered_as_one_at_a_time(kind):
    model, batch = KINDS[kind]()
    if kind == "labels":
        batch["labels"] = torch.eye(3)[batch["labels"]]
    if kind == "spans":
        batch |= {"start_positions": torch.arange(6) % 2, "end_positions": torch.ones(6, dtype=torch.long)}
    if kind == "choices":
        batch["labels"] = batch["labels"].clamp_min(0)
    rows, alone = rows_of(batch, kind)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(3)).tolist()
    dataset = Dataset.from_list([{**rows[place], "depth": place, "text": "t"} for place in order])
    found = hf_recurrent.evaluate(model, dataset, batch_size=3)
    assert found.task == TASKS.get(kind, "text-classification")
    assert found.examples["depth"].tolist() == order
    assert list(found.table["slices"]) == ["depth"]
    # a unit of the record is an example, or a labelled token of one
    units = list(zip(found.examples["answer"], order, strict=True))
    if kind in ("tokens", "masks"):
        units = [(token, place) for answer, place in units for token in answer]
    assert found.record.slices["depth"].tolist() == [place for _, place in units]
    predicted = [tuple(np.ravel(answer)) for answer in found.record.examples["prediction"]]
    assert predicted == [tuple(np.ravel(answer)) for answer, _ in units]
    if not found.record.fixed_depth and kind == "classes":
        assert (found.record.step_counts @ np.arange(STEPS + 1)).tolist() == found.examples["steps"].tolist()
    right, losses, steps = [], [], []
    for place, example in zip(order, found.examples.to_dict("records"), strict=True):
        with torch.no_grad():
            output = model(**alone[place])
        labels = alone[place].get("labels")
        assert example["loss"] == pytest.approx(
            output.task_loss.item() if "task_loss" in output else float(output.loss), rel=1e-3
        )
        answer = answer_of(output, model, kind, labels)
        assert np.array_equal(example["answer"], answer), (example["answer"], answer)
        if output.ponder_steps is not None and kind not in ("tokens", "masks", "targets"):
            own = output.ponder_steps.flatten().double()
            assert example["steps"] == pytest.approx(own[own >= 0].mean().item())
        right += np.ravel(example["right"]).tolist()
        losses.append(example["loss"])
        steps.append(example["steps"])
    assert 0 < np.mean(losses) < 50
    if kind not in ("texts",):
        assert found.table["accuracy"] == pytest.approx(np.mean(right))
    assert found.table["fixed_depth"] == (kind == "fixed depth")
    assert (max(steps) == min(steps) == STEPS) == (kind == "fixed depth")


def answer_of(output, model, kind, labels):
    """The answer to one example, by hand."""
    if kind == "spans":
        start, end = output.start_logits[0].log_softmax(-1), output.end_logits[0].log_softmax(-1)
        spans = [(i, j) for i in range(len(start)) for j in range(i, len(end))]
        return max(spans, key=lambda span: start[span[0]] + end[span[1]])
    if kind == "labels":
        chosen = (output.logits[0] > 0).nonzero().flatten().tolist()
        return JOINED.join(str(model.config.id2label[label]) for label in chosen) or NO_LABEL
    predicted = output.logits.argmax(-1)[0]
    if kind in ("tokens", "masks"):
        return predicted[labels[0] != -100].tolist()
    if kind == "targets":
        return tuple(predicted.tolist())
    if kind == "texts":
        return predicted[:-1][labels[0, 1:] != -100][-1].item()
    return predicted.item()


def test_numbers_and_thresholds():
    model, batch = make_model(BY_NAME["gut"], num_labels=1, **NUMBER), make_batch(BY_NAME["gut"])
    model.classifier = torch.nn.Linear(32, 1)
    rows, alone = rows_of({**batch, "labels": torch.linspace(-1, 1, 10)}, "numbers")
    found = hf_recurrent.evaluate(model, rows, halting_threshold=0.5, max_depth=4)
    with torch.no_grad():
        outputs = [model(**own, halting_threshold=0.5, max_depth=4) for own in alone]
    numbers = torch.cat([output.logits.flatten() for output in outputs]).tolist()
    assert found.examples["answer"].tolist() == pytest.approx(numbers, abs=1e-5)
    assert found.examples["steps"].tolist() == [output.ponder_steps.item() for output in outputs]
    assert "confidence" not in found.examples
    assert (found.table["threshold"], found.table["max_depth"]) == (0.5, 4)


@pytest.mark.parametrize("kind", ["classes", "tokens"])
def test_columns_of_difficulty_do_not_hide_those_of_answers(kind):
    model, batch = KINDS[kind]()
    rows, _ = rows_of(batch, kind)
    plain = hf_recurrent.evaluate(model, rows)
    named = [{**row, "answer": place, "steps": -place} for place, row in enumerate(rows)]
    found = hf_recurrent.evaluate(model, named)
    assert list(found.table["slices"]) == ["answer", "steps"]
    assert {**found.table, "slices": {}} == plain.table
    assert found.examples.equals(plain.examples)


def test_bad_requests():
    model, batch = make_model(BY_NAME["gut"]), make_batch(BY_NAME["gut"])
    rows, _ = rows_of(batch, "classes")
    assert hf_recurrent.evaluate(model, rows, "text-classification").table["n"] == 10
    for task, data, message, options in (
        ("fill-mask", rows, "task is 'fill-mask', but GUTForSequenceClassification is for 'text-classification'", {}),
        (None, [{"text": "t", "label": 0}], "has the columns text, label: encode it", {}),
        (None, [{"input_ids": [2, 3]}], "batches need 'labels' to measure accuracy", {}),
        (None, [{**rows[0], "labels": -100}], "labels hold -100, which marks an example without a right answer", {}),
        (None, [{**rows[0], "labels": "good"}], "labels is 'good': pass numbers", {}),
        (None, [rows[0], {**rows[0], "input_ids": []}], "row 1 has no tokens: leave it out", {}),
        (
            None,
            rows,
            "has the columns input_ids, labels: difficulty is 'depth'",
            {"difficulty": ["depth"]},
        ),
    ):
        with pytest.raises(ValueError, match=message):
            hf_recurrent.evaluate(model, data, task, **options)
    with pytest.raises(ValueError, match="GUTModel has no head"):
        hf_recurrent.evaluate(model.model, rows)
