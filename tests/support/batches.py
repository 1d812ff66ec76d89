"""The same batch, padded and arranged in other ways."""

import torch
from torch.nn import functional as F

PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids")
NO_LABEL = -100


def is_per_token(name: str, value: torch.Tensor) -> bool:
    """Labels are in language models' batches."""
    return name in PER_TOKEN or (name == "labels" and value.dim() == 2)


def with_other_padding(batch: dict[str, torch.Tensor], token: int = 1) -> dict[str, torch.Tensor]:
    """Another token id, and another sentence, at padding."""
    padding = batch["attention_mask"] == 0
    changed = {**batch, "input_ids": batch["input_ids"].masked_fill(padding, token)}
    if "token_type_ids" in batch:
        changed["token_type_ids"] = batch["token_type_ids"].masked_fill(padding, 1)
    return changed


def left_padded(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return moved(batch, "left")


def right_padded(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return moved(batch, "right")


def moved(batch: dict[str, torch.Tensor], padding: str) -> dict[str, torch.Tensor]:
    """All padding on one side, wherever it was; the tokens of a sequence must be adjacent."""
    mask = batch["attention_mask"]
    length = mask.shape[1]
    shift = mask.argmax(-1, keepdim=True) - (length - mask.sum(-1, keepdim=True) if padding == "left" else 0)
    source = (torch.arange(length) + shift) % length
    return {name: value.gather(1, source) if is_per_token(name, value) else value for name, value in batch.items()}


def widened(batch: dict[str, torch.Tensor], left: int, right: int) -> dict[str, torch.Tensor]:
    return {
        name: F.pad(value, (left, right), value=NO_LABEL if name == "labels" else 0)
        if is_per_token(name, value)
        else value
        for name, value in batch.items()
    }


def rows(batch: dict[str, torch.Tensor], index) -> dict[str, torch.Tensor]:
    return {name: value[index] for name, value in batch.items()}


def tokens_of(batch: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    """One sequence without its padding."""
    valid = batch["attention_mask"][row].bool()
    return {name: value[row : row + 1, valid] for name, value in batch.items()}
