"""Labels of sequence-to-sequence models: what a decoder reads to predict them, and their loss.

Shapes: B rows, T target tokens, V token ids.
"""

import torch
from torch import nn


def smoothed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Mean over labelled tokens, in nats: logits (B, T, V), targets (B, T), -100 where there is none.

    A share `smoothing` of each target is spread evenly over all other ids (fairseq's label-smoothed cross-entropy).
    """
    log_probabilities = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    targets = targets.flatten()
    total = nn.functional.nll_loss(log_probabilities, targets, reduction="sum")
    if smoothing > 0.0:
        labelled = (targets != -100).to(log_probabilities.dtype)
        each = smoothing / (logits.shape[-1] - 1)
        total = (1.0 - smoothing - each) * total - each * (log_probabilities.sum(-1) * labelled).sum()
    return total / (targets != -100).sum()


def shifted_right(labels: torch.Tensor, start: int, pad: int | None) -> torch.Tensor:
    """What a decoder reads to predict labels (B, T): `start`, then all but the last; ids for -100 are padding.

    Padding may be on either side: a row starts where its first label is.
    """
    blank = start if pad is None else pad
    before = unlabelled_before(labels)
    shifted = torch.cat((torch.full_like(labels[:, :1], start), labels[:, :-1]), dim=1)
    first = ~before & nn.functional.pad(before[:, :-1], (1, 0), value=True)
    shifted = shifted.masked_fill(first, start).masked_fill(before, blank)
    return shifted.masked_fill(shifted == -100, blank)


def unlabelled_before(labels: torch.Tensor) -> torch.Tensor:
    """Places (B, T) in front of a row's first label."""
    return (labels != -100).cumsum(-1) == 0


def read_mask(labels: torch.Tensor, ids: torch.Tensor | None, pad: int | None) -> torch.Tensor:
    """Which of the tokens that a decoder is given beside labels (B, T) it reads: not those behind a row's last label.

    Nor padding in front of the first, known by its id in `ids`; None for ids that were made of the labels.
    """
    behind = unlabelled_before(labels.flip(-1)).flip(-1)
    before = unlabelled_before(labels)
    if ids is not None:
        before = before & (ids == pad) if pad is not None else torch.zeros_like(before)
    return (~(behind | before)).long()


def checked(labels: torch.Tensor | None) -> torch.Tensor | None:
    """Labels (B, T), or none.

    Raises:
        ValueError: a row has nothing to predict.
    """
    if labels is None or torch.compiler.is_compiling():
        return labels
    if labels.dim() != 2 or labels.shape[1] == 0:
        raise ValueError(f"`labels` has shape {tuple(labels.shape)}: expected (batch, tokens), at least one token each")
    empty = (labels == -100).all(-1)
    if bool(empty.any()):
        raise ValueError(
            f"`labels` row {int(empty.nonzero()[0])} is an empty target, all -100: drop the row, or give it at least "
            "the token that ends it"
        )
    return labels
