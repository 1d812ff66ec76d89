"""Ways to write the same rows down differently."""

import torch
from torch.nn import functional as F

PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids")


def with_other_padding(batch: dict[str, torch.Tensor], token: int = 1) -> dict[str, torch.Tensor]:
    """Another token id, and another sentence, at padding."""
    padding = batch["attention_mask"] == 0
    changed = {**batch, "input_ids": batch["input_ids"].masked_fill(padding, token)}
    if "token_type_ids" in batch:
        changed["token_type_ids"] = batch["token_type_ids"].masked_fill(padding, 1)
    return changed


def left_padded(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    mask = batch["attention_mask"]
    length = mask.shape[1]
    source = (torch.arange(length) - (length - mask.sum(-1, keepdim=True))) % length
    return {name: value.gather(1, source) if name in PER_TOKEN else value for name, value in batch.items()}


def widened(batch: dict[str, torch.Tensor], left: int, right: int) -> dict[str, torch.Tensor]:
    return {name: F.pad(value, (left, right)) if name in PER_TOKEN else value for name, value in batch.items()}


def rows(batch: dict[str, torch.Tensor], index) -> dict[str, torch.Tensor]:
    return {name: value[index] for name, value in batch.items()}
