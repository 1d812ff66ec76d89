"""Trainers of models of a few tokens on rows of different length: classes, pairs, next tokens, sources and targets."""

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from task_runs import NO_DROPOUT, PAIR_SIZES
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from hf_recurrent import GUTConfig, SUTConfig
from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.data.batches import PaddingCollator, PairCollator
from hf_recurrent.tasks import get_task
from hf_recurrent.training.arguments import RecurrentTrainingArguments, Seq2SeqArguments
from hf_recurrent.training.trainer import RecurrentTrainer

END = 3
FIELDS = {
    "vocab_size": 12,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_labels": 3,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "halting": "global",
    "depth_objective": "mixture",
    # what a step does to the ponder loss must be seen
    "ponder_loss_weight": 0.5,
    "halting_bias_init": -1.0,
}
TARGETS = {**PAIR_SIZES, **NO_DROPOUT, "vocab_size": 12, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": END}
AUTO = {"tokens": AutoModelForCausalLM, "targets": AutoModelForSeq2SeqLM}


def small_model(kind: str = "classes", **changes: Any) -> Any:
    """The same each time, in training mode."""
    torch.manual_seed(0)
    if kind == "targets":
        config: Any = SUTConfig(is_encoder_decoder=True, **{**TARGETS, **changes})
    else:
        siamese = {"pair_encoding": "siamese"} if kind == "pairs" else {}
        config = GUTConfig(**{**FIELDS, **siamese, **changes})
    return AUTO.get(kind, AutoModelForSequenceClassification).from_config(config).train()


def small_rows(kind: str = "classes", count: int = 12, seed: int = 1, longest: int = 5) -> list[dict[str, Any]]:
    """Rows of 2 to 13 tokens, with a label for about every third token of texts; targets of up to `longest` tokens."""
    generator = torch.Generator().manual_seed(seed)

    def ids(length: int) -> list[int]:
        return torch.randint(4, 12, (length,), generator=generator).tolist()

    def text(most: int) -> list[int]:
        return [*ids(int(torch.randint(1, most + 1, (), generator=generator))), END]

    rows: list[dict[str, Any]] = []
    for number in range(count):
        if kind == "targets":
            row: dict[str, Any] = {"input_ids": text(5), "labels": text(longest - 1)}
        else:
            first, second = ids(2 + 7 * number % 12), ids(1 + 5 * number % 4) if kind == "pairs" else []
            row = {"input_ids": first + second, "labels": number % 3}
            if kind == "tokens":
                row["labels"] = [token if token % 3 == 0 else -100 for token in first]
            if kind == "pairs":
                row["token_type_ids"] = [0] * len(first) + [1] * len(second)
        rows.append({**row, "attention_mask": [1] * len(row["input_ids"])})
    return rows


def small_trainer(folder: Path, kind: str = "classes", model: Any = None, rows: Any = None, **options: Any):
    """A trainer by plain gradient descent, with an evaluation set of seven rows."""
    defaults = {"max_steps": 2, "logging_steps": 1, "save_strategy": "no", "learning_rate": 0.5, "optim": "sgd"}
    defaults |= {"max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
    quiet = {"use_cpu": True, "disable_tqdm": True, "report_to": "none"}
    arguments = Seq2SeqArguments if kind == "targets" else RecurrentTrainingArguments
    tokenizer = word_tokenizer([f"w{number}" for number in range(8)])
    task = get_task("translation" if kind == "targets" else "text-classification")
    task = task(task.arguments(benchmark="cfq" if kind == "targets" else "listops"))
    collator = PairCollator(tokenizer) if kind == "targets" else PaddingCollator(tokenizer, kind == "tokens")
    return RecurrentTrainer(
        model=small_model(kind) if model is None else model,
        args=arguments(output_dir=str(folder), **quiet, **{**defaults, **options}),
        task=task,
        data_collator=collator,
        train_dataset=Dataset.from_list(small_rows(kind, 16) if rows is None else rows),
        eval_dataset=Dataset.from_list(small_rows(kind, 7, seed=5)),
        compute_metrics=None if kind == "tokens" else task.compute_metrics,
    )


def batch_of(trainer: Any, dataset: Any = None) -> dict[str, torch.Tensor]:
    """All rows of a data set, by default the one to evaluate on, as one batch."""
    return trainer.data_collator(list(trainer.eval_dataset if dataset is None else dataset))


def logged(trainer: Any, name: str) -> list[float]:
    """A value that is logged in training, log by log."""
    return [log[name] for log in trainer.state.log_history if "loss" in log]


def assert_same_parameters(model: Any, other: Any, start: Any) -> None:
    """Of two models that have learned something since `start`."""
    theirs, before = dict(other.named_parameters()), dict(start.named_parameters())
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-6, msg=name)
    assert max((value - before[name]).abs().max() for name, value in theirs.items()) > 1e-3
