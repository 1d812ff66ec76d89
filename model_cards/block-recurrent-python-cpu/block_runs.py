"""What all layers of a Block-Recurrent Transformer make of a stretch of blocks, and of one stretch after the other.

Shapes: B rows, n tokens of a stretch, L layers, E width.
"""

from typing import NamedTuple

import torch

from .block_recurrent_layer import BlockOutput


class Run(NamedTuple):
    """What the layers made of a stretch."""

    hidden_states: list[torch.Tensor]  # L + 1 of (B, n, E), the input first
    layers: list[BlockOutput]


def joined(runs: list[Run]) -> Run:
    """Of one block after the other, what they are together."""
    if len(runs) == 1:
        return runs[0]
    layers = []
    for outputs in zip(*(run.layers for run in runs), strict=True):
        weights = [
            None if pieces[0] is None else torch.cat(pieces, dim=2)
            for pieces in zip(*((o.attentions, o.read_attentions) for o in outputs), strict=True)
        ]
        states, forgotten = ([t for o in outputs for t in getattr(o, name)] for name in ("states", "forgotten"))
        layers.append(BlockOutput(None, None, *weights, states, forgotten))
    hidden = [torch.cat(pieces, dim=1) for pieces in zip(*(run.hidden_states for run in runs), strict=True)]
    return Run(hidden, layers)
