"""The heads for tokens, spans and choices with Trainer and its collators."""

import numpy as np
import pytest
import torch
import transformers
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from support.compare import assert_close
from support.families import LABELS, nightly, slow
from support.token_heads import (
    CHOICE,
    MASKED,
    NEW_HEADS,
    SPAN,
    TOKENS,
    logits_of,
    make_head,
    without_targets,
)
from support.tokenizer import make_tokenizer

TEXTS = ["w4 w9 w5", "w7 w8", "w23 w11 w6 w8 w9 w4", "w5 w5", "w10 w12 w6", "w9 w9 w9 w4", "w8 w4"]
# a variant of each architecture that has all of its heads
VARIANTS = (
    *("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "rnn_bilstm", "block_recurrent", "sut"),
    *("albert_recurrent", "ouro_recurrent", "huginn_recurrent"),
)
ALWAYS_CAUSAL = ("block_recurrent", "ouro_recurrent", "huginn_recurrent")
# those that the slower tier trains; `make nightly` trains all
ALONE = ("gut", "albert_recurrent")
CASES = [(name, head) for name in VARIANTS for head in NEW_HEADS if not (name in ALWAYS_CAUSAL and head == MASKED)]


def rows_for(head: str) -> list[dict]:
    tokenizer = make_tokenizer()
    encoded = [dict(tokenizer(text)) for text in TEXTS]
    rows = []
    for number, row in enumerate(encoded):
        length = len(row["input_ids"])
        if head == TOKENS:
            row["labels"] = [-100, *(token % LABELS for token in row["input_ids"][1:-1]), -100]
        elif head == SPAN:
            row |= {"start_positions": 1, "end_positions": length - 2}
        elif head == CHOICE:
            other = encoded[number - 1]
            row = {name: [values, list(other[name])] for name, values in tokenizer(TEXTS[number]).items()}
            row["labels"] = number % 2
        rows.append(row)
    return rows


def collator_for(head: str):
    tokenizer = make_tokenizer()
    if head == MASKED:
        tokenizer.mask_token = "w4"
        return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, seed=1)
    kinds = {
        TOKENS: DataCollatorForTokenClassification,
        SPAN: DataCollatorWithPadding,
        CHOICE: DataCollatorForMultipleChoice,
    }
    return kinds[head](tokenizer)


# what is new beside the losses of `test_token_heads` is Trainer with each head's collator
@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), [case if case[0] in ALONE else nightly(*case) for case in CASES])
def test_trainer(name, head, tmp_path):
    model = make_head(name, head)
    options = TrainingArguments(
        output_dir=str(tmp_path),
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        max_steps=8,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        per_device_train_batch_size=7,
        per_device_eval_batch_size=3,
        dataloader_pin_memory=False,
    )
    rows = rows_for(head)
    trainer = Trainer(model, options, collator_for(head), train_dataset=rows, eval_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert np.isfinite(losses).all()
    # what is masked differs from step to step
    assert head == MASKED or losses[-1] < losses[0]
    found = trainer.predict(rows)
    assert np.isfinite(found.metrics["test_loss"])
    predictions = found.predictions if isinstance(found.predictions, tuple) else (found.predictions,)
    assert len(predictions) == (2 if head == SPAN else 1)
    assert all(len(each) == len(TEXTS) for each in predictions)
    if head != MASKED:
        # padded to the longest batch
        batch = collator_for(head)([dict(row) for row in rows])
        with torch.no_grad():
            expected = logits_of(model.eval()(**without_targets(batch)))
        mask = batch["attention_mask"].bool()
        for ours, theirs in zip(predictions, expected, strict=True):
            there = mask if theirs.shape[: mask.dim()] == mask.shape else slice(None)
            assert_close(torch.from_numpy(ours)[there], theirs[there], 1e-5)


@pytest.mark.parametrize("head", [TOKENS, *map(slow, NEW_HEADS[1:])])
def test_a_classifier_gives_its_base_to_other_heads(head, tmp_path):
    source = make_head("gut", CHOICE)
    source.save_pretrained(tmp_path)
    model, report = getattr(transformers, head).from_pretrained(
        tmp_path, num_labels=LABELS, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert not any(name.startswith("model.") for problems in report.values() for name in map(str, problems))
    assert_close(dict(model.model.state_dict()), dict(source.model.state_dict()))
