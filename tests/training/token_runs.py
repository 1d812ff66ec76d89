"""Classifiers and language models of a few tokens, and rows of different length, to train in seconds."""

import torch
from datasets import Dataset

from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.models.gut.configuration_gut import GUTConfig
from hf_recurrent.models.gut.modeling_gut import GUTForCausalLM, GUTForSequenceClassification
from hf_recurrent.training.arguments import RecurrentTrainingArguments
from hf_recurrent.training.data import collator
from hf_recurrent.training.trainer import RecurrentTrainer

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
    # what a step does to the ponder loss must be seen
    "ponder_loss_weight": 0.5,
    "halting_bias_init": -1.0,
}
KINDS = {"classes": GUTForSequenceClassification, "tokens": GUTForCausalLM}


def token_model(kind: str = "classes", **changes):
    """The same each time."""
    torch.manual_seed(0)
    return KINDS[kind](GUTConfig(**{**FIELDS, **changes}))


def token_rows(kind: str = "classes", count: int = 12) -> Dataset:
    """Rows of 2 to 13 tokens: single ones, pairs, or with a label for about every third token."""
    generator = torch.Generator().manual_seed(1)

    def ids(length: int) -> list[int]:
        return torch.randint(4, 12, (length,), generator=generator).tolist()

    rows = []
    for number in range(count):
        row = {"input_ids": ids(2 + 7 * number % 12)}
        length = len(row["input_ids"])
        if kind == "pairs":
            second = 1 + 5 * number % 4
            row["input_ids"] += ids(second)
            row["token_type_ids"] = [0] * length + [1] * second
        row["attention_mask"] = [1] * len(row["input_ids"])
        labels = [token if token % 3 == 0 else -100 for token in row["input_ids"]]
        rows.append({**row, "labels": labels if kind == "tokens" else number % 3})
    return Dataset.from_list(rows)


def token_trainer(folder, kind: str = "classes", model=None, **options) -> RecurrentTrainer:
    defaults = {
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "learning_rate": 0.5,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
    }
    args = RecurrentTrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, report_to="none", **{**defaults, **options}
    )
    rows = token_rows(kind)
    return RecurrentTrainer(
        model=token_model(kind) if model is None else model,
        args=args,
        data_collator=collator(word_tokenizer([f"w{number}" for number in range(8)]), rows),
        train_dataset=rows,
    )
