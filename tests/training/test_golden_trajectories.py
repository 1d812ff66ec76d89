"""Six optimiser steps of the authors' training loop, repeated by `RecurrentTrainer`."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import TrainerCallback, default_data_collator

from hf_recurrent.convert.authors import load_case
from hf_recurrent.convert.dynamic_halt import BITS
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.trainer import RecurrentTrainer
from parity.reference import load_reference

PARITY = Path(__file__).parents[1] / "parity" / "dynamic-halt"
# ten times the noise of an independent float32 implementation; AdamW divides by gradients that may be tiny
LOSS, GRAD_NORM, WEIGHTS = 5e-6, 5e-6, 3e-5


def without_dropout(model):
    model.config.dropout = model.config.attention_dropout = 0.0
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    return model


def with_one_logit(model):
    """Let the row of the bit 1 alone be trained in a flip-flop head: the authors' head has no other."""
    for parameter in model.lm_head.output.parameters():
        mask = torch.zeros_like(parameter)
        mask[BITS[1]] = 1.0
        parameter.register_hook(lambda gradient, mask=mask: gradient * mask)


class StopAfter(TrainerCallback):
    """The traces are the beginning of a schedule."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.steps


NAMES = ["gut_end_rootwarmup", "transformer_rootwarmup", "ut_flipflop_linearwarmup"]


@pytest.mark.parametrize("name", [f"_extra_train_{name}" for name in NAMES])
def test_trajectory(name, tmp_path):
    case = json.loads((PARITY / name / "case.json").read_text())
    reference = load_reference(PARITY / case["start_case"])
    model = without_dropout(reference.model)
    language = "flipflop" in name
    if language:
        with_one_logit(model)
    batch, _ = reference.inputs(load_file(PARITY / case["start_case"] / "io.safetensors"))
    rows = [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
    theirs, expected = case["config"], case["trajectory"]
    trainer = RecurrentTrainer(
        model,
        RecurrentTrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            max_steps=theirs["training_steps"],
            per_device_train_batch_size=len(rows),
            train_sampling_strategy="sequential",
            learning_rate=theirs["lr"],
            lr_schedule=theirs["scheduler"],
            cycle_adam_beta1=theirs["scheduler"] == "linearwarmup",
            warmup_steps=theirs["warmup_steps"],
            weight_decay=theirs["weight_decay"],
            adam_beta1=theirs["betas"][0],
            adam_beta2=theirs["betas"][1],
            adam_epsilon=theirs["eps"],
            max_grad_norm=theirs["max_grad_norm"],
            logging_steps=1,
            save_strategy="no",
            # a language model takes `shift_labels`, but does not list it
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to="none",
        ),
        data_collator=default_data_collator,
        train_dataset=rows,
        callbacks=[StopAfter(len(expected["loss"]))],
    )
    trainer.train()

    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["loss"] for log in logs] == pytest.approx(expected["loss"], abs=LOSS)
    assert [log["grad_norm"] for log in logs] == pytest.approx(expected["grad_norm"], rel=GRAD_NORM)
    assert [log["learning_rate"] for log in logs] == pytest.approx(expected["lr"], rel=1e-9)
    if "aux_loss" in logs[0]:
        assert [log["aux_loss"] for log in logs] == pytest.approx(expected["aux"], abs=LOSS)

    start = json.loads((PARITY / case["start_case"] / "case.json").read_text())
    _, weights = load_case(start, load_file(PARITY / name / "weights_after.safetensors"))
    # their language models use no boundaries and have one logit; our other rows are there to decay
    rows = {
        "model.embed_tokens.weight": slice(-2),
        **{f"lm_head.output.{each}": BITS[1] for each in ("weight", "bias")},
    }
    for key, parameter in trainer.model.named_parameters():
        used = rows.get(key, slice(None)) if language else slice(None)
        torch.testing.assert_close(parameter.detach()[used], weights[key][used], atol=WEIGHTS, rtol=0)
