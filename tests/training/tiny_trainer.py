"""A trainer of a classifier on a few rows."""

from pathlib import Path
from typing import Any

import torch
from tiny_run import SIZES

from hf_recurrent import GUTConfig, GUTForSequenceClassification
from hf_recurrent.metrics.functional import with_ponder_metrics
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.trainer import RecurrentTrainer


def tiny_rows(count: int = 16) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 12, (count, 7), generator=generator)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row[0] % 3} for row in ids]


def tiny_metrics(prediction: Any) -> dict[str, float]:
    return with_ponder_metrics(prediction, lambda logits, labels: {"accuracy": (logits.argmax(-1) == labels).mean()})


def tiny_trainer(folder: Path, config: dict[str, Any] | None = None, **options: Any) -> RecurrentTrainer:
    fields = {**SIZES, "vocab_size": 12, "num_hidden_layers": 4, "num_labels": 3, **(config or {})}
    defaults = {"max_steps": 6, "per_device_train_batch_size": 4, "logging_steps": 2, "save_strategy": "no"}
    args = RecurrentTrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **{**defaults, **options}
    )
    return RecurrentTrainer(
        *(GUTForSequenceClassification(GUTConfig(**fields)), args),
        train_dataset=tiny_rows(),
        eval_dataset=tiny_rows(6),
        compute_metrics=tiny_metrics,
    )
