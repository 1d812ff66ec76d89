"""The rest of the ecosystem: torch.compile, torch.export, pipelines and Trainer."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, pipeline

from support.compare import assert_same, comparable, gradients
from support.families import BY_NAME, make_batch, make_config, make_model, nightly, slow
from support.tokenizer import make_tokenizer

TRACED = (
    "xpos_transformer",
    "ut",
    "gut",
    "gut_length_cap",
    "gut_siamese",
    "tlb",
    "gutlb",
    "ndr",
    "block_recurrent",
    "sut",
)
# one of each kind: a shared block, chunks, experts, states
TRACED_BY_DAY = ("gut", "gutlb", "sut", "block_recurrent")
traced_variants = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(BY_NAME[name], id=name, marks=pytest.mark.slow if name in TRACED_BY_DAY else pytest.mark.nightly)
        for name in TRACED
    ],
)


# of a compiled block: before and after attention, for rows and packed tokens, of one shape and of any, and single ones
MOST_GRAPHS = 16


def shallow_model(variant):
    """Tracing unrolls the depth, and takes a second a step."""
    if variant.halts:
        return make_model(variant, num_hidden_layers=2)
    return AutoModelForSequenceClassification.from_config(make_config(variant, num_hidden_layers=2)).eval()


@traced_variants
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning")
def test_compiled_model_computes_the_same(variant):
    model, batch = shallow_model(variant), make_batch(variant)
    mask = batch["attention_mask"].bool()
    expected = comparable(model(**batch, output_halting=True), variant, mask)
    torch._dynamo.reset()
    output = torch.compile(model, fullgraph=True, backend="eager")(**batch, output_halting=True)
    assert_same(comparable(output, variant, mask), expected)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "compaction"),
    [("gut", True), ("ndr", True), nightly("ut", True), *(nightly(name, False) for name in ("ut", "gut", "ndr"))],
)
def test_compiled_block_trains_on_batches_of_any_shape(name, compaction):
    variant = BY_NAME[name]
    eager, compiled = (make_model(variant, compaction=compaction).train() for _ in range(2))
    torch._dynamo.reset()
    counters.clear()
    compiled.base_model.block.compile(backend="aot_eager")
    for seed in range(12):
        batch = make_batch(variant, rows=3 + 5 * seed % 11, length=6 + 7 * seed % 13, seed=seed)
        assert_same(gradients(compiled, batch), gradients(eager, batch))
    assert not counters["unimplemented"], "graphs reached their limit"
    assert counters["stats"]["unique_graphs"] <= MOST_GRAPHS


@traced_variants
def test_exported_model_computes_the_same_for_any_shape(variant):
    model = shallow_model(variant)
    lengths = (9, 9) if variant.one_length_graphs else (9, 13)
    batch, other = (
        {name: value for name, value in make_batch(variant, rows=rows, length=length).items() if name != "labels"}
        for rows, length in zip((10, 4), lengths, strict=True)
    )
    sizes = {0: torch.export.Dim("rows", max=64)}
    if not variant.one_length_graphs:
        sizes[1] = torch.export.Dim("tokens", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(model, (), kwargs=batch, dynamic_shapes=dict.fromkeys(batch, sizes)).module()
        for inputs in (batch, other):
            assert_same(dict(program(**inputs)), dict(model(**inputs)))


def test_pipeline_in_batches_is_the_model_row_by_row(variant):
    if variant.chunking == "balanced":
        pytest.skip("balanced chunks depend on the width of the batch, as in the reference implementation")
    model, tokenizer = make_model(variant), make_tokenizer()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    texts = ["w4 w9 w5", "w7", "w23 w11 w6 w8 w9 w4", "w5 w5", "w10 w12 w6"]
    pairs = [{"text": text, "text_pair": other} for text, other in zip(texts, reversed(texts), strict=True)]
    for inputs in [pairs] if variant.siamese else [texts, pairs]:
        answers = classify(inputs, batch_size=2, top_k=None)
        for row, answer in zip(inputs, answers, strict=True):
            arguments = (row,) if isinstance(row, str) else (row["text"], row["text_pair"])
            with torch.no_grad():
                expected = model(**tokenizer(*arguments, return_tensors="pt")).logits.softmax(-1).squeeze(0)
            scores = {item["label"]: item["score"] for item in answer}
            actual = torch.tensor([scores[model.config.id2label[label]] for label in range(len(scores))])
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def training_rows(variant, num_rows=40):
    batch = make_batch(variant, rows=num_rows, seed=11)
    return [{name: value[row] for name, value in batch.items()} for row in range(num_rows)]


def train(variant, folder, **arguments) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Five optimiser steps of plain SGD on batches of eight -> parameters and logged losses."""
    model = make_model(variant, ponder_loss_weight=0.5)
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=5,
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=3,
        **arguments,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=training_rows(variant))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {name: value.detach() for name, value in model.named_parameters()}, losses


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gut", "sut", *map(nightly, ("xpos_transformer", "ut", "gut_siamese", "gutlb", "ndr_act"))]
)
def test_gradient_accumulation_scales_nothing(name, tmp_path):
    variant = BY_NAME[name]
    whole, losses = train(variant, tmp_path, per_device_train_batch_size=8)
    halves, other_losses = train(variant, tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    before = dict(make_model(variant).named_parameters())
    assert any((value - before[key]).abs().max() > 1e-3 for key, value in whole.items())
    assert len(losses) == 5
    torch.testing.assert_close(torch.tensor(other_losses), torch.tensor(losses), rtol=1e-4, atol=1e-4)
    assert_same(halves, whole, tolerance=1e-5)


@pytest.mark.parametrize("name", ["gut", *map(slow, ("ut", "gutlb"))])
def test_trainer_evaluates_and_predicts(name, tmp_path):
    variant = BY_NAME[name]
    model = make_model(variant)
    arguments = TrainingArguments(
        output_dir=tmp_path,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        per_device_eval_batch_size=7,
        dataloader_pin_memory=False,
    )
    data = training_rows(variant, 20)
    result = Trainer(model=model, args=arguments, eval_dataset=data).predict(data)
    batch = make_batch(variant, rows=20, seed=11)
    expected = comparable(model(**batch, output_halting=True), variant, batch["attention_mask"].bool())
    torch.testing.assert_close(torch.from_numpy(result.predictions), expected["logits"].detach(), rtol=0, atol=1e-5)
    # what else is wanted is left out of the keys to ignore
    ignored = [key for key in model.config.keys_to_ignore_at_inference if not key.startswith("ponder_")]
    logits, cost, steps = (
        Trainer(model=model, args=arguments).predict(data, ignore_keys=[*ignored, "ponder_loss"]).predictions
    )
    torch.testing.assert_close(torch.from_numpy(logits), expected["logits"].detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(cost), expected["ponder_cost"].detach(), rtol=0, atol=1e-5)
    assert steps.shape == model(**batch).ponder_steps.shape


def test_a_fresh_model_fits_a_few_rows():
    """Training works: a fresh model fits two dozen examples."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(make_config(BY_NAME["gut"], initializer_range=0.5))
    batch = make_batch(BY_NAME["gut"], rows=24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    losses = []
    for _ in range(40):
        output = model(**batch)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        losses.append((output.loss - output.aux_loss).item())
    assert losses[-1] < 0.2 < losses[0]
    assert (output.logits.argmax(-1) == batch["labels"]).all()
