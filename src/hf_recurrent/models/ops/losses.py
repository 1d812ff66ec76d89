"""Labels of tokens and of examples, and their losses.

Shapes: B sequences, S tokens, E width, C classes of a token.
"""

import torch
from torch import nn

from .checks import check_ids, refuse, unknown_ids
from .layers import at_least_float32

# the label of tokens and of examples without a target
NO_TARGET = -100


def check_targets(
    name: str, targets: object, inputs: torch.Tensor, number: int, meaning: str, field: str = "vocab_size"
) -> None:
    """Raise a ValueError unless targets (B, S) of inputs (B, S) or (B, S, E) are below a number, or -100.

    Args:
        number: of classes or ids, the value of the config's `field`.
        meaning: what a target is, such as "token ids".
    """
    check_ids(name, targets)
    if targets.shape != inputs.shape[:2]:
        raise ValueError(
            f"`{name}` has shape {tuple(targets.shape)}: expected {tuple(inputs.shape[:2])}, one id or -100 for each "
            "token"
        )
    remedy = f"pass {meaning}, or -100 for tokens without a target"
    refuse(unknown_ids(name, targets, number, remedy, ignored=NO_TARGET, field=field))


def without_padding(targets: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Targets (B, S) with -100 at padding, of which nothing is predicted.

    The mask may also cover cached tokens; the base model rejects one of a wrong shape.
    """
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2:
        return targets
    padding = attention_mask[:, -targets.shape[1] :] == 0
    return targets.masked_fill(padding, NO_TARGET) if padding.shape == targets.shape else targets


def cross_entropies(logits: torch.Tensor, targets: torch.Tensor, ignored: int = NO_TARGET) -> torch.Tensor:
    """Cross-entropies in nats, zero where the target is `ignored`: logits (N, C), targets (N,) -> (N,)."""
    return nn.functional.cross_entropy(at_least_float32(logits), targets.long(), ignore_index=ignored, reduction="none")


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropies in nats, zero without a target: logits (B, S, C), targets (B, S), or -100 -> (B, S)."""
    return cross_entropies(logits.flatten(0, 1), targets.flatten()).view(targets.shape)


def fraction_of_step(
    labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None, numbers: bool = False
) -> torch.Tensor | None:
    """The labels (B, ...) of a batch as a fraction of those of an optimiser step; None without either.

    Args:
        num_items_in_batch: labels of all accumulated batches. `Trainer` counts those at padding, and so does this.
        numbers: whether labels are numbers to predict, -100 among them, which `Trainer` never counts. This batch's
            count all the same: where it is the whole step, the fraction is one.
    """
    if labels is None or num_items_in_batch is None:
        return None
    total, count = torch.as_tensor(num_items_in_batch).reshape(()), (labels != NO_TARGET).sum()
    if numbers:
        total, count = total + (labels.numel() - count), labels.numel()
    return count / total.clamp_min(1)


def mean_of(values: torch.Tensor, counted: torch.Tensor | None) -> torch.Tensor:
    """Mean of those values (N,) that are `counted` (N,), of all if it is None; zero if none is."""
    if counted is None:
        return values.mean()
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp_min(1)


def num_labelled(targets: torch.Tensor | None) -> torch.Tensor | int:
    """How many tokens have a target, at least one: targets (B, T), or -100; None without labels."""
    return 1 if targets is None else (targets != NO_TARGET).sum().clamp_min(1)
