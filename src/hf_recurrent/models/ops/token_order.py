"""The order of a sequence's columns in which its tokens come first."""

import torch


def tokens_first(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns with the tokens first, each kind in its order, and the place of each column in it.

    Counts do what a stable sort does, which other runtimes lack: (B, S) bool -> (B, S), (B, S).
    """
    column = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    rank = mask.long().cumsum(-1)
    place = torch.where(mask, rank - 1, rank[:, -1:] + column - rank)
    return torch.zeros_like(place).scatter(-1, place, column), place
