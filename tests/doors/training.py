"""transformers' own Trainer, and what is trained through it."""

import torch
from transformers import Trainer, TrainingArguments

from support.compare import assert_same, gradients

from .door import Room
from .models import CLASSIFIER, LANGUAGE, batch_for, has_head, live, refused

ROOM = Room("Training")


def arguments(folder, **options) -> dict:
    """Of `TrainingArguments` and of classes over it."""
    defaults = {
        "output_dir": str(folder),
        "max_steps": 3,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return defaults | options


def rows_of(batch: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


def train(trainer: Trainer) -> None:
    """Train, and see that weights change, with a finite loss in each step."""
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == trainer.args.max_steps
    assert torch.tensor(losses).isfinite().all()
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())


@ROOM.door("Trainer")
def enter_trainer(architecture, folder):
    for head in (head for head in (CLASSIFIER, LANGUAGE) if has_head(architecture, head)):
        rows = rows_of(batch_for(architecture, head))
        trainer = Trainer(
            live(architecture, head), TrainingArguments(**arguments(folder)), train_dataset=rows, eval_dataset=rows
        )
        train(trainer)
        assert torch.tensor(trainer.evaluate()["eval_loss"]).isfinite()


@ROOM.door("gradient_checkpointing")
def enter_checkpointing(architecture, folder):
    model, batch = live(architecture).train(), batch_for(architecture)
    expected = gradients(model, batch)
    model.gradient_checkpointing_enable()
    assert_same(gradients(model, batch), expected)


REENTRANT = {"use_reentrant": True}


@ROOM.door("gradient_checkpointing, reentrant", refused("gradient_checkpointing_kwargs has use_reentrant=True"))
def enter_reentrant_checkpointing(architecture, folder):
    live(architecture).gradient_checkpointing_enable(gradient_checkpointing_kwargs=REENTRANT)
