"""Examples through a batch that is refilled at every depth step give what a plain forward pass gives."""

import pytest
import torch

from hf_recurrent import GUTForSequenceClassification
from hf_recurrent.inference import DepthBatcher, ExampleOutput
from hf_recurrent.models.engine import depth_loop
from support.compare import assert_close
from support.families import (
    BY_NAME,
    LANGUAGE_VARIANTS,
    VARIANTS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    tiered,
)
from support.late_count import LateCount

SMALL_BATCH = 24  # tokens: of a few examples, so that the batch is refilled often
# thresholds of which one at least stops the examples of a model at different depths
EXITS = {
    "convergence": (0.5, 0.3, 0.2),
    "confidence": (0.4, 0.45, 0.5),
    "agreement": (1e-2, 1e-3, 1e-4),
}


def examples_of(batch: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    names = [name for name in ("input_ids", "token_type_ids") if name in batch]
    return [
        {name: batch[name][row][tokens.bool()] for name in names} for row, tokens in enumerate(batch["attention_mask"])
    ]


def assert_as_batch(model, batch, outputs: list[ExampleOutput], **options) -> None:
    """The outputs are those of one plain forward pass over all examples."""
    inputs, mask = {name: values for name, values in batch.items() if name != "labels"}, batch["attention_mask"].bool()
    with torch.no_grad():
        whole = model(**inputs, **options)
    assert len(outputs) == len(mask)
    for name in ExampleOutput._fields:
        expected, found = whole.get(name), [getattr(output, name) for output in outputs]
        if expected is None:
            assert found == [None] * len(mask), name
            continue
        by_token = expected.dim() > 1 and expected.shape[:2] == mask.shape
        for row, value in enumerate(found):
            own = expected[row][mask[row]] if by_token else expected[row]
            own = own[own >= 0] if name == "ponder_steps" else own
            torch.testing.assert_close(value.reshape(own.shape), own, atol=2e-5, rtol=2e-5)


def refills(model, **options) -> bool:
    batcher = DepthBatcher(model.eval(), **options)
    return batcher.can_refill(batcher.call())


# balanced chunks depend on the width of the batch
@pytest.mark.parametrize("variant", tiered([variant for variant in VARIANTS if variant.chunking != "balanced"]))
def test_each_example_is_as_in_a_plain_batch(variant):
    model = make_model(variant)
    batch = make_batch(variant, rows=30, length=12)
    assert_as_batch(model, batch, list(DepthBatcher(model, batch_tokens=SMALL_BATCH)(examples_of(batch))))
    whole = variant.architecture in ("ut", "gut", "sut") or variant.name.startswith("ndr_act")
    every_step = variant.name in ("gut_no_halt", "gut_every_step", "gut_upper_bound", "sut_dense")
    assert refills(model) == (whole and not every_step and not variant.siamese)


def test_halting_of_chunks_is_that_of_the_example_alone():
    variant = BY_NAME["gutlb"]
    model = make_model(variant).eval()
    examples = examples_of(make_batch(variant, rows=6, length=12))
    together = list(DepthBatcher(model, output_halting=True)(examples))
    for example, found in zip(examples, together, strict=True):
        (alone,) = DepthBatcher(model, output_halting=True)([example])
        assert len(found.halting_probabilities) == len(found.ponder_steps)
        torch.testing.assert_close(found.halting_probabilities, alone.halting_probabilities, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", tiered(LANGUAGE_VARIANTS))
def test_each_text_is_as_in_a_plain_batch(variant):
    model = make_language_model(variant)
    batch = make_text(variant)
    assert_as_batch(model, batch, list(DepthBatcher(model, batch_tokens=SMALL_BATCH)(examples_of(batch))))


@pytest.mark.parametrize("criterion", EXITS)
@pytest.mark.parametrize("name", ["gut", "ut", "ndr", "sut"])
def test_each_example_exits_as_in_a_plain_batch(name, criterion):
    variant = BY_NAME[name]
    model = make_model(variant)
    batch = make_batch(variant, rows=30, length=12)
    assert refills(model, exit_criterion=criterion)
    depths = []
    for threshold in EXITS[criterion]:
        options = {"exit_criterion": criterion, "exit_threshold": threshold, "min_steps": 2}
        outputs = list(DepthBatcher(model, batch_tokens=SMALL_BATCH, **options)(examples_of(batch)))
        assert_as_batch(model, batch, outputs, **options)
        depths.append({int(output.ponder_steps.max()) for output in outputs})
    assert max(map(len, depths)) > 1


@pytest.mark.parametrize("name", ["gut", "ut", "ndr", "sut"])
def test_unchanged_predictions_stop_each_example_as_in_a_plain_batch(name):
    variant = BY_NAME[name]
    model = make_model(variant)
    batch = make_batch(variant, rows=30, length=12)
    for patience in (1, 2):
        options = {"exit_criterion": "stability", "exit_patience": patience}
        outputs = list(DepthBatcher(model, batch_tokens=SMALL_BATCH, **options)(examples_of(batch)))
        assert_as_batch(model, batch, outputs, **options)


def test_base_models_give_states():
    variant = BY_NAME["gut"]
    model = make_model(variant).model
    batch = make_batch(variant)
    outputs = list(DepthBatcher(model, batch_tokens=SMALL_BATCH)(examples_of(batch)))
    assert_as_batch(model, batch, outputs)
    assert outputs[0].last_hidden_state.shape[0] == batch["attention_mask"][0].sum()


@pytest.mark.parametrize("name", ["gut", "ut", "ndr_act", "sut"])
def test_steps_are_taken_by_full_batches(name):
    variant = BY_NAME[name]
    model = make_model(variant)
    examples = examples_of(make_batch(variant, rows=200, length=12))
    steps = torch.cat([output.ponder_steps.reshape(-1) for output in DepthBatcher(model)(examples)])
    sizes: list[int] = []
    model.model.block.register_forward_pre_hook(lambda _, arguments: sizes.append(arguments[0].shape[0]))
    list(DepthBatcher(model, batch_tokens=100)(examples))
    assert max(sizes) <= 100
    # all but the last, for which no example waits
    busy = sizes[: -2 * model.config.num_hidden_layers]
    assert len(busy) > 5
    assert sum(busy) >= 0.8 * 100 * len(busy)
    assert steps.float().std() > 0


def test_examples_come_from_any_iterable_and_leave_in_order():
    variant = BY_NAME["gut"]
    model = make_model(variant)
    batch = make_batch(variant, rows=40)
    outputs = DepthBatcher(model, batch_tokens=2)(
        {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    )
    assert_as_batch(model, batch, list(outputs))
    assert list(DepthBatcher(model)([])) == []


def test_padding_anywhere_is_left_out():
    variant = BY_NAME["ut"]
    model = make_model(variant)
    ids = torch.tensor([5, 6, 0, 7, 0])
    padded, bare = DepthBatcher(model)(
        [{"input_ids": ids, "attention_mask": (ids > 0).long()}, {"input_ids": ids[ids > 0]}]
    )
    torch.testing.assert_close(padded.logits, bare.logits)


def test_single_tokens():
    """Of which a window has as many as examples."""
    model = make_model(BY_NAME["ut"])
    batch = {"input_ids": torch.arange(4, 9)[:, None], "attention_mask": torch.ones(5, 1, dtype=torch.long)}
    outputs = list(DepthBatcher(model, batch_tokens=2)(examples_of(batch)))
    assert_as_batch(model, batch, outputs)
    assert outputs[0].ponder_steps.shape == (1,)


def test_models_keep_their_mode_and_config():
    model = make_model(BY_NAME["gut"]).train()
    list(DepthBatcher(model, max_steps=2)([{"input_ids": [4, 5]}]))
    assert model.training
    threshold = model.config.halting_threshold
    list(DepthBatcher(model, halting_threshold=0.5)([{"input_ids": [4, 5]}]))
    assert model.config.halting_threshold == threshold


def test_half_precision():
    variant = BY_NAME["gut"]
    model = make_model(variant).to(torch.bfloat16)
    examples = examples_of(make_batch(variant))
    for example, output in zip(examples, DepthBatcher(model, batch_tokens=SMALL_BATCH)(examples), strict=True):
        with torch.no_grad():
            alone = model(example["input_ids"][None])
        torch.testing.assert_close(output.logits, alone.logits[0], atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([{"input_ids": [4]}, {"input_ids": []}], "example 1 has no tokens"),
        ([{"input_ids": [4], "attention_mask": [0]}], "example 0 has no tokens"),
        ([{"input_ids": [[4, 5]]}], "not of a batch"),
        ([{"input_ids": [4, 5], "attention_mask": [1]}], "`attention_mask` of example 0 has shape"),
        ([{"ids": [4]}], "pass a mapping with 'input_ids'"),
        ([[4, 5]], "pass a mapping with 'input_ids'"),
        ([{"input_ids": [10**6]}], "input_ids"),
        ([{"input_ids": [0.5]}], "whole numbers"),
        ([{"input_ids": [4, 5], "position_ids": [1, 2]}], r"`position_ids` of example 0 is \[1, 2\]: .* leave it out"),
    ],
)
def test_bad_examples(examples, message):
    with pytest.raises(ValueError, match=message):
        list(DepthBatcher(make_model(BY_NAME["gut"]))(examples))


@pytest.mark.parametrize("batch_tokens", [0, -1, True, 1.5])
def test_bad_batch_tokens(batch_tokens):
    with pytest.raises(ValueError, match="batch_tokens is"):
        DepthBatcher(make_model(BY_NAME["gut"]), batch_tokens=batch_tokens)


@pytest.mark.parametrize("model", ["gut", torch.nn.Linear(2, 2)])
def test_models_of_others(model):
    with pytest.raises(ValueError, match="pass a model of this package"):
        DepthBatcher(model)


def test_bad_options():
    model = make_model(BY_NAME["gut"])
    with pytest.raises(TypeError, match="'max_step'"):
        DepthBatcher(model, max_step=3)
    for options in ({"exit_criterion": "never"}, {"max_steps": 0}, {"halting_threshold": 2.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            DepthBatcher(model, **options)


def test_a_classifier_that_classifies_in_its_own_way():
    class Doubled(GUTForSequenceClassification):
        def classify(self, features, steps):
            return 2 * super().classify(features, steps)

    model = make_model(BY_NAME["gut"])
    own = Doubled(model.config).eval()
    own.load_state_dict(model.state_dict())
    for options in ({}, {"exit_criterion": "confidence", "exit_threshold": 0.4}):
        (output,) = DepthBatcher(own, **options)([{"input_ids": [4, 5, 6]}])
        expected = own(torch.tensor([[4, 5, 6]]), **options)
        assert_close(output.logits, expected.logits[0])
        assert int(output.ponder_steps) == int(expected.ponder_steps)


@pytest.mark.parametrize("name", ["gut", "ut", "sut"])
def test_nan_is_refused(name):
    model = make_model(BY_NAME[name])
    with torch.no_grad():
        model.model.halting_head.down_proj.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        list(DepthBatcher(model)([{"input_ids": [4, 5, 6]}]))


@pytest.mark.parametrize("batch_tokens", [1, SMALL_BATCH])
@pytest.mark.parametrize("name", ["gut", "ut", "ndr", "sut"])
def test_a_count_that_arrives_late_tells_nothing_of_examples_that_came_since(name, batch_tokens, monkeypatch):
    monkeypatch.setattr(depth_loop, "LiveCount", LateCount)
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant, rows=12, length=8)
    for threshold in EXITS["confidence"]:
        options = {"exit_criterion": "confidence", "exit_threshold": threshold}
        outputs = list(DepthBatcher(model, batch_tokens=batch_tokens, **options)(examples_of(batch)))
        assert_as_batch(model, batch, outputs, **options)
