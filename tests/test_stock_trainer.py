"""transformers' own `Trainer` and collators: predictions are logits alone, evaluation losses the task's."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.base.outputs import FOR_HEADS, RecurrentOutput, RecurrentSeq2SeqOutput
from support.compare import assert_close, assert_same
from support.families import BY_NAME, LABELS, VOCAB_SIZE, make_config, slow
from support.tokenizer import make_tokenizer

# a depth at which halting costs something, and weights with which that shows in a loss
COSTLY = {
    "num_hidden_layers": 3,
    "ponder_loss_weight": 0.5,
    "router_loss": "mutual_information",
    "router_loss_weight": 0.5,
}
TEXTS = ["w4 w9 w5", "w7", "w23 w11 w6 w8 w9 w4", "w5 w5", "w10 w12 w6", "w9 w9 w9 w4", "w8"]
architectures = pytest.mark.parametrize(
    "architecture", [name if name in ("gut", "tlb", "sut") else slow(name) for name in ARCHITECTURES]
)

LANGUAGE_MODELS = [name for name, row in ARCHITECTURES.items() if "AutoModelForCausalLM" in row.heads]
language_models = pytest.mark.parametrize(
    "architecture", [name if name in ("gut", "tlb", "sut") else slow(name) for name in LANGUAGE_MODELS]
)


def options(folder, **changes) -> dict:
    defaults = {
        "output_dir": str(folder),
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "per_device_train_batch_size": 7,
        "per_device_eval_batch_size": 3,
        "max_steps": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    return {**defaults, **changes}


def fields_of(architecture: str) -> dict:
    """Fields of a tiny model without dropout, so that the losses of training are known."""
    variant = next(variant for variant in BY_NAME.values() if variant.architecture == architecture)
    config = make_config(variant).to_dict()
    config = {name: value for name, value in config.items() if name not in ("architectures", "dtype", "problem_type")}
    costly = {name: value for name, value in COSTLY.items() if name in config}
    return {**config, **costly, **dict.fromkeys((name for name in config if name.endswith("dropout")), 0.0)}


def make(auto_class, architecture: str, **changes):
    torch.manual_seed(0)
    return auto_class.from_config(AutoConfig.for_model(**{**fields_of(architecture), **changes}))


def classifier_rows() -> list[dict]:
    tokenizer = make_tokenizer()
    return [{**tokenizer(text), "labels": number % LABELS} for number, text in enumerate(TEXTS)]


def text_rows() -> list[dict]:
    tokenizer = make_tokenizer()
    return [dict(tokenizer(text)) for text in TEXTS]


def accuracy(prediction) -> dict[str, float]:
    """Of the canonical example of transformers."""
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def auxiliary(model, batch) -> tuple[torch.Tensor, torch.Tensor | float]:
    """The loss of training on a batch, and what of it is not the task's."""
    with torch.no_grad():
        output = model.train()(**batch)
    return output.loss, 0.0 if output.aux_loss is None else output.aux_loss


@architectures
def test_classifier(architecture, tmp_path):
    model = make(AutoModelForSequenceClassification, architecture)
    rows, collator = classifier_rows(), DataCollatorWithPadding(make_tokenizer())
    batch = collator(rows)
    total, auxiliary_loss = auxiliary(model, batch)
    trainer = Trainer(
        *(model, TrainingArguments(**options(tmp_path)), collator),
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=accuracy,
    )
    # the loss of a single batch is a mean over its rows
    trainer.args.per_device_eval_batch_size = 7
    metrics = trainer.evaluate()
    result = trainer.predict(rows)
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    task = cross_entropy(logits, batch["labels"])
    assert result.predictions.shape == (len(TEXTS), LABELS)
    assert_close(torch.from_numpy(result.predictions), logits, 1e-5)
    assert metrics["eval_accuracy"] == (logits.argmax(-1) == batch["labels"]).numpy().mean()
    assert metrics["eval_loss"] == pytest.approx(task.item(), rel=1e-5)
    assert (auxiliary_loss != 0.0) == (model.config.capabilities.halts or architecture == "sut")
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(total.item(), rel=1e-5)
    assert_close(total, task + auxiliary_loss, 1e-5)


@language_models
def test_language_model(architecture, tmp_path):
    model = make(AutoModelForCausalLM, architecture)
    rows, collator = text_rows(), DataCollatorForLanguageModeling(make_tokenizer(), mlm=False)
    batch = collator(rows)
    trainer = Trainer(*(model, TrainingArguments(**options(tmp_path)), collator), train_dataset=rows, eval_dataset=rows)
    result = trainer.predict(rows)
    labels = np.where(result.label_ids < 0, 0, result.label_ids)
    assert result.predictions.shape == (*labels.shape, VOCAB_SIZE)
    losses = [
        cross_entropy(torch.tensor(logits[:-1]), torch.tensor(ids[1:])).item()
        for logits, ids in zip(result.predictions, result.label_ids, strict=True)
    ]
    total, auxiliary_loss = auxiliary(model, batch)
    trainer.args.per_device_eval_batch_size = 7
    evaluated = trainer.evaluate()["eval_loss"]
    counts = (result.label_ids[:, 1:] != -100).sum(1)
    assert evaluated == pytest.approx(np.average(losses, weights=counts), rel=1e-4)
    trainer.train()
    assert trainer.state.log_history[-2]["loss"] == pytest.approx(total.item(), rel=1e-5)
    assert total.item() == pytest.approx(evaluated + float(auxiliary_loss), rel=1e-4)


def test_accumulated_examples_count_alike(tmp_path):
    """Five examples in batches of two, two and one, as in one of five."""
    rows, collator = classifier_rows()[:5], DataCollatorWithPadding(make_tokenizer())
    found = []
    for size, accumulated in ((5, 1), (2, 3)):
        model = make(AutoModelForSequenceClassification, "gut")
        sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
        arguments = TrainingArguments(**options(tmp_path, optim="sgd", learning_rate=0.5, max_grad_norm=0.0, **sizes))
        Trainer(*(model, arguments, collator), train_dataset=rows).train()
        found.append(dict(model.named_parameters()))
    assert_same(found[1], found[0], tolerance=1e-5)


def test_accumulated_examples_count_if_they_have_a_label(tmp_path):
    """Three labelled examples among seven, in batches of two, as in one of three."""
    labelled = (0, 4, 5)
    rows = [
        {**row, "labels": row["labels"] if place in labelled else -100} for place, row in enumerate(classifier_rows())
    ]
    found = []
    for kept, size, accumulated in (([rows[place] for place in labelled], 3, 1), (rows, 2, 4)):
        model = make(AutoModelForSequenceClassification, "gut", ponder_loss_weight=0.0)
        sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
        arguments = TrainingArguments(**options(tmp_path, optim="sgd", learning_rate=0.5, max_grad_norm=0.0, **sizes))
        trainer = Trainer(*(model, arguments, DataCollatorWithPadding(make_tokenizer())), train_dataset=kept)
        trainer.train()
        found.append((trainer.state.log_history[0]["loss"], dict(model.named_parameters())))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert_same(found[1][1], found[0][1], tolerance=1e-5)


NO_AUXILIARY = {"ponder_loss_weight": 0.0, "router_loss": "none"}


@language_models
def test_accumulated_texts_count_by_their_tokens(architecture, tmp_path):
    """Texts of 1 to 6 words, all in one batch or one by one, are the same optimiser step."""
    rows, collator = text_rows(), DataCollatorForLanguageModeling(make_tokenizer(), mlm=False)
    found = []
    for size in (len(rows), 1):
        changes = {name: value for name, value in NO_AUXILIARY.items() if name in fields_of(architecture)}
        model = make(AutoModelForCausalLM, architecture, **changes)
        sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": len(rows) // size}
        arguments = TrainingArguments(**options(tmp_path, optim="sgd", learning_rate=0.5, max_grad_norm=0.0, **sizes))
        trainer = Trainer(*(model, arguments, collator), train_dataset=rows)
        trainer.train()
        found.append((trainer.state.log_history[0]["loss"], dict(model.named_parameters())))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert_same(found[1][1], found[0][1], tolerance=1e-5)


@pytest.mark.parametrize("auto_class", [AutoModelForTokenClassification, AutoModelForMaskedLM])
def test_a_batch_is_a_part_of_the_steps_loss_by_its_labels(auto_class):
    model = make(auto_class, "gut", ponder_loss_weight=0.0)
    tokens = torch.tensor([[4, 9, 5, 7], [7, 8, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    # one of them at padding: it has no loss, but Trainer counts it
    labels = torch.tensor([[1, -100, 2, 0], [-100, 1, 2, -100]])
    for row in (slice(0, 1), slice(1, 2)):
        inputs = {"input_ids": tokens[row], "attention_mask": mask[row], "labels": labels[row]}
        fraction = (labels[row] != -100).sum() / 5
        part = model(**inputs, num_items_in_batch=torch.tensor(5)).loss
        assert_close(part, model(**inputs).loss * fraction, 1e-6)
        # as a number, and as DataParallel hands it to a replica
        for number in (5, torch.tensor([[5]])):
            assert_close(model(**inputs, num_items_in_batch=number).loss, part, 1e-6)


def test_numbers_of_minus_100_are_targets(tmp_path):
    """`Trainer` takes each for a missing label; a batch of them alone has a loss, in training and in evaluation."""
    rows, collator = classifier_rows()[:4], DataCollatorWithPadding(make_tokenizer())
    rows = [{**row, "labels": number} for row, number in zip(rows, (-100.0, 2.0, -100.0, -100.0), strict=True)]
    found = []
    for size in (4, 1, 2):
        model = make(AutoModelForSequenceClassification, "gut", num_labels=1, ponder_loss_weight=0.0)
        arguments = TrainingArguments(**options(tmp_path, per_device_eval_batch_size=size))
        trainer = Trainer(*(model, arguments, collator), train_dataset=rows[2:], eval_dataset=rows)
        found.append(trainer.evaluate()["eval_loss"])
        assert found[-1] == pytest.approx(found[0], rel=1e-5)
    assert found[0] > 7000
    trainer.train()
    assert trainer.state.log_history[-2]["loss"] == pytest.approx(100**2, rel=0.1)


def translation_rows() -> list[dict]:
    tokenizer = make_tokenizer()
    return [
        {**tokenizer(text, return_token_type_ids=False), "labels": tokenizer(target)["input_ids"][1:]}
        for text, target in zip(TEXTS, reversed(TEXTS), strict=True)
    ]


@pytest.mark.architecture("sut")
@pytest.mark.parametrize("generates", [True, False])
def test_both_stacks(generates, tmp_path):
    model = make(AutoModelForSeq2SeqLM, "sut", is_encoder_decoder=True, is_causal=False)
    rows, collator = translation_rows(), DataCollatorForSeq2Seq(make_tokenizer(), model=model)
    arguments = Seq2SeqTrainingArguments(
        **options(tmp_path, predict_with_generate=generates, generation_max_length=9, per_device_eval_batch_size=7)
    )
    trainer = Seq2SeqTrainer(*(model, arguments, collator), train_dataset=rows, eval_dataset=rows)
    total, auxiliary_loss = auxiliary(model, collator(rows))
    assert abs(auxiliary_loss) > 0.01
    result = trainer.predict(rows)
    if generates:
        batch = collator(rows)
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        written = model.generate(**inputs, max_length=9)
        # transformers fills up to its own default of lengths
        assert (result.predictions[:, : written.shape[1]] == written.numpy()).all()
    else:
        logits, labels = torch.from_numpy(result.predictions), torch.from_numpy(result.label_ids)
        task = cross_entropy(logits.flatten(0, 1), labels.flatten())
        assert result.metrics["test_loss"] == pytest.approx(task.item(), rel=1e-5)
    assert result.metrics["test_loss"] == pytest.approx((total - auxiliary_loss).item(), rel=1e-5)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(total.item(), rel=1e-5)


@pytest.mark.parametrize(("kind", "architecture"), [(RecurrentOutput, "gut"), (RecurrentSeq2SeqOutput, "sut")])
def test_every_output_but_the_logits_is_ignored(kind, architecture):
    ignored = ARCHITECTURES[architecture].config_class.keys_to_ignore_at_inference
    names = {field.name for field in dataclasses.fields(kind)} - {*FOR_HEADS}
    logits = {"logits", "start_logits", "end_logits"}
    assert names - {"loss", *logits} <= set(ignored)
    assert not logits & set(ignored)
    assert len(set(ignored)) == len(ignored)
