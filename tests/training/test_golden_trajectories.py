"""Six optimiser steps of the authors' training loop, repeated by `RecurrentTrainer`."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import default_data_collator

from hf_recurrent.convert import load_reference
from hf_recurrent.convert.dynamic_halt import EMBEDDING_PARTS, NAMES
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.trainer import RecurrentTrainer

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


@pytest.mark.parametrize("name", ["_extra_train_gut_end_rootwarmup", "_extra_train_transformer_rootwarmup"])
def test_trajectory(name, tmp_path):
    case = json.loads((PARITY / name / "case.json").read_text())
    reference = load_reference(PARITY / case["start_case"])
    model = without_dropout(reference.model)
    batch, _ = reference.inputs(load_file(PARITY / case["start_case"] / "io.safetensors"))
    rows = [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]
    theirs, expected = case["config"], case["trajectory"]
    steps = len(expected["loss"])
    trainer = RecurrentTrainer(
        model,
        RecurrentTrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            max_steps=steps,
            per_device_train_batch_size=len(rows),
            train_sampling_strategy="sequential",
            learning_rate=theirs["lr"],
            lr_schedule=theirs["scheduler"],
            warmup_steps=theirs["warmup_steps"],
            weight_decay=theirs["weight_decay"],
            adam_beta1=theirs["betas"][0],
            adam_beta2=theirs["betas"][1],
            adam_epsilon=theirs["eps"],
            max_grad_norm=theirs["max_grad_norm"],
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            report_to="none",
        ),
        data_collator=default_data_collator,
        train_dataset=rows,
    )
    trainer.train()

    logs = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["loss"] for log in logs] == pytest.approx(expected["loss"], abs=LOSS)
    assert [log["grad_norm"] for log in logs] == pytest.approx(expected["grad_norm"], rel=GRAD_NORM)
    assert [log["learning_rate"] for log in logs] == pytest.approx(expected["lr"], rel=1e-9)
    if "aux_loss" in logs[0]:
        assert [log["aux_loss"] for log in logs] == pytest.approx(expected["aux"], abs=LOSS)

    weights = load_file(PARITY / name / "weights_after.safetensors")
    ours = dict(trainer.model.named_parameters())
    table = ours[NAMES["embedding_table"]].detach()
    embeddings = dict(zip(EMBEDDING_PARTS, (table[:-2], table[-2], table[-1]), strict=True))
    for key, tensor in weights.items():
        if key in reference.names:
            torch.testing.assert_close(ours[reference.names[key]].detach(), tensor, atol=WEIGHTS, rtol=0)
        elif key in embeddings:
            torch.testing.assert_close(embeddings[key].view_as(tensor), tensor, atol=WEIGHTS, rtol=0)
        else:
            assert key.endswith("xpos.scale"), f"{key} was not compared"
