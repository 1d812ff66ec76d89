"""What the means of a loss are over, so that batches of different size can share an optimiser step."""

from collections.abc import Mapping

import torch

# a label of this value is none
IGNORED = -100


def amounts_of(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Rows of a batch, and the labels that its loss is the mean over: (2,) integers.

    Labels (B,) are one a row. Of labels (B, S), one a token, those count that a token of the row comes before, as a
    causal language model takes them.
    """
    labels = batch["labels"]
    rows = torch.tensor(labels.shape[0], device=labels.device)
    if labels.dim() == 1:
        return torch.stack([rows, rows])
    predicted = labels[:, 1:] != IGNORED
    if batch.get("attention_mask") is not None:
        tokens = batch["attention_mask"].bool()
        predicted = predicted & tokens[:, 1:] & tokens[:, :-1]
    return torch.stack([rows, predicted.sum()])


def weighted_loss(loss: torch.Tensor, aux_loss: torch.Tensor | None, shares: torch.Tensor) -> torch.Tensor:
    """A batch's part of the loss of a whole optimiser step.

    Args:
        loss: of the batch, `aux_loss` included, of which the rest is a mean over its labels.
        aux_loss: a mean over its rows; None if there is none.
        shares: (2,) `amounts_of` the batch as shares of those of the step.
    """
    by_rows, by_labels = shares
    if aux_loss is None:
        return loss * by_labels
    return (loss - aux_loss) * by_labels + aux_loss * by_rows
