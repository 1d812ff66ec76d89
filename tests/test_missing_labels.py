"""Sequence classifiers and multiple choice with labels of -100, as transformers' classifiers take them."""

import pytest
import torch

from hf_recurrent.models.ops.losses import NO_TARGET
from support.compare import assert_close, assert_same, gradients
from support.families import BY_NAME, make_batch, make_model, slow
from support.token_heads import CHOICE, make_head, make_head_batch

# without losses over all tokens that were read, which experts have
BALANCED = {"router_loss": "none"}
KEPT = torch.tensor([True, False, True, True, False, True])
VARIANTS = [
    *("gut", "gut_siamese", "gut_expected", "gut_every_step", "sut", "tlb"),
    *map(slow, ("gut_token", "gutlb", "ndr_act", "ndr_expected", "ut_expected", "albert_recurrent", "rnn_lstm")),
]


def classifier(name: str):
    variant = BY_NAME[name]
    return make_model(variant, **(BALANCED if variant.architecture == "sut" else {})), make_batch(variant, rows=6)


def partly_labelled(batch):
    """A batch in which some examples have no label, and one without these."""
    labels = batch["labels"].where(KEPT, NO_TARGET)
    return {**batch, "labels": labels}, {name: values[KEPT] for name, values in batch.items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_examples_without_a_label_count_as_if_they_were_not_there(name):
    model, batch = classifier(name)
    given, labelled = partly_labelled(batch)
    for mode in (False, True):
        with torch.no_grad():
            found, expected = model.train(mode)(**given), model(**labelled)
        assert_close(found.loss, expected.loss, 1e-5)
        assert (found.aux_loss is None) == (expected.aux_loss is None)
        if found.aux_loss is not None:
            assert_close(found.aux_loss, expected.aux_loss, 1e-5)
        assert len(found.logits) == len(KEPT)
    assert_same(gradients(model, given), gradients(model, labelled), tolerance=1e-5)


@pytest.mark.parametrize("objective", ["mixture", "expected"])
def test_questions_without_a_label_count_as_if_they_were_not_there(objective):
    model, batch = make_head("gut", CHOICE, depth_objective=objective).train(), make_head_batch("gut", CHOICE)
    given, labelled = partly_labelled({**batch, "labels": batch["labels"].abs() % 2})
    assert_same(gradients(model, given), gradients(model, labelled), tolerance=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_batch_without_labels_changes_nothing(name):
    model, batch = classifier(name)
    nothing = {**batch, "labels": torch.full_like(batch["labels"], NO_TARGET)}
    assert model(**nothing).loss == 0
    for number in (None, 0, 5):
        found = gradients(model.train(), nothing, num_items_in_batch=number)
        assert not any(gradient.any() for gradient in found.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int16])
def test_labels_of_any_dtype_may_be_missing(dtype):
    model = make_model(BY_NAME["gut"])
    model.config.problem_type = "single_label_classification"
    given, labelled = partly_labelled(make_batch(BY_NAME["gut"], rows=6))
    for shape in ((6,), (6, 1)):
        loss = model(**{**given, "labels": given["labels"].to(dtype).view(shape)}).loss
        assert_close(loss, model(**labelled).loss, 1e-5)


@pytest.mark.parametrize("wrong", [torch.tensor([-101, 0]), torch.tensor([-1, -100]), torch.tensor([-100.5, 0])])
def test_no_other_number_stands_for_a_missing_label(wrong):
    model = make_model(BY_NAME["gut"])
    model.config.problem_type = "single_label_classification"
    with pytest.raises(ValueError, match=rf"holds {wrong[0].item()} among its classes.* 0 to 2, or -100 for examples"):
        model(input_ids=torch.tensor([[4, 5], [6, 7]]), labels=wrong)
