"""Addressing of a differentiable neural computer, as pure functions.

After Graves et al., "Hybrid computing using a neural network with dynamic external memory" (2016), Methods, and Csordas
and Schmidhuber, "Improving Differentiable Neural Computers Through Memory Masking, De-allocation, and Link Distribution
Sharpness Control" (2019). Rounding guards are those of the latter's code.

Shapes: B sequences, M memory cells, W width of a cell, R read heads.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import softplus

EPSILON = 1e-6
# parts of the interface that are between 0 and 1
GATES = ("write_mask", "erase", "free_gates", "allocation_gate", "write_gate", "read_masks")


class DNCState(NamedTuple):
    """State after a token: the controller's L layers of width E, and the memory; all zero before the first."""

    hidden: torch.Tensor  # (B, L, E)
    cell: torch.Tensor  # (B, L, E)
    slots: torch.Tensor  # (B, M, W)
    usage: torch.Tensor  # (B, M)
    write_weights: torch.Tensor  # (B, M)
    precedence: torch.Tensor  # (B, M)
    links: torch.Tensor  # (B, M, M): [i, j] degree to which i was written right after j
    read_weights: torch.Tensor  # (B, R, M)
    read_vectors: torch.Tensor  # (B, R, W)


def access(memory: DNCState, controls: dict[str, torch.Tensor], deallocate: bool) -> tuple[torch.Tensor, ...]:
    """Write, then read -> the memory after the token, in the order of `DNCState`.

    Args:
        controls: parts (B, ...) of the controller's interface vector, see `interface_sizes`.
        deallocate: whether freed cells are cleared, as in the 2019 paper.
    """
    gates = {name: controls[name].sigmoid() for name in GATES}
    heads = (memory.read_weights.shape[1], -1)
    # of no columns, where cells are searched as wholes
    write_mask, read_masks = gates["write_mask"][:, None], gates["read_masks"].unflatten(-1, heads)
    # strengths and exponents are 1 at least
    strengths = {name: 1 + softplus(controls[name]) for name in ("write_strength", "read_strengths", "sharpness")}
    # share of each cell (B, M) that its last reads do not free
    retained = (1 - gates["free_gates"][..., None] * memory.read_weights).prod(1)
    # cells are in use from a write until they are freed; as in the reference implementation no gradient goes there
    written = memory.write_weights.detach()
    usage = (memory.usage + written * (1 - memory.usage)) * retained
    key = controls["write_key"][:, None]
    found = content_weights(memory.slots, key, strengths["write_strength"], write_mask).squeeze(1)
    allocated = torch.lerp(found, allocation_weights(usage), gates["allocation_gate"])
    write_weights = gates["write_gate"] * allocated
    remaining = 1 - write_weights[..., None] * gates["erase"][:, None]
    remaining = remaining * retained[..., None] if deallocate else remaining
    slots = memory.slots * remaining + write_weights[..., None] * controls["write_vector"][:, None]
    # degree to which each cell was the last one written
    precedence = (1 - write_weights.sum(-1, keepdim=True)) * memory.precedence + write_weights

    links = next_links(memory.links, memory.precedence, write_weights)
    forward, backward = memory.read_weights @ links.mT, memory.read_weights @ links
    if strengths["sharpness"].shape[-1]:
        for_forward, for_backward = strengths["sharpness"].chunk(2, dim=-1)
        forward, backward = sharpened(forward, for_forward), sharpened(backward, for_backward)
    keys = controls["read_keys"].unflatten(-1, heads)
    found = content_weights(slots, keys, strengths["read_strengths"], read_masks)
    choices = torch.stack((backward, found, forward), dim=-1)
    modes = controls["read_modes"].unflatten(-1, heads).softmax(-1)
    read_weights = (choices * modes[:, :, None]).sum(-1)
    return slots, usage, write_weights, precedence, links, read_weights, read_weights @ slots


def root(squares: torch.Tensor) -> torch.Tensor:
    """Square root whose gradient at zero is zero."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


def content_weights(
    slots: torch.Tensor, keys: torch.Tensor, strengths: torch.Tensor, masks: torch.Tensor
) -> torch.Tensor:
    """Softmax over cells of strength times cosine similarity, of the parts that masks show: (B, R, M).

    Masks are those of the 2019 paper, (B, R, W), or (B, R, 0) without. They are applied to the keys, which avoids
    tensors (B, R, M, W).
    """
    has_masks = masks.shape[-1] > 0
    keys = keys * masks if has_masks else keys
    key_norms = root(keys.square().sum(-1, keepdim=True))
    slot_norms = root(masks.square() @ slots.square().mT if has_masks else slots.square().sum(-1)[:, None])
    products = (keys * masks if has_masks else keys) @ slots.mT
    return (strengths[..., None] * products / (key_norms * slot_norms + EPSILON)).softmax(-1)


def allocation_weights(usage: torch.Tensor) -> torch.Tensor:
    """The least used cells first: (B, M) -> (B, M)."""
    ascending, order = (usage * (1 - EPSILON) + EPSILON).sort(dim=-1, stable=True)
    used_before = torch.cat((torch.ones_like(ascending[:, :1]), ascending.cumprod(-1)[:, :-1]), dim=-1)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ascending) * used_before)


def next_links(links: torch.Tensor, precedence: torch.Tensor, write_weights: torch.Tensor) -> torch.Tensor:
    """(B, M, M), zero on the diagonal."""
    target, source = write_weights[..., None], write_weights[:, None]
    links = (1 - target - source) * links + target * precedence[:, None]
    return links * (1 - torch.eye(links.shape[-1], dtype=links.dtype, device=links.device))


def sharpened(weights: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """A distribution over cells, the sharper the greater its exponent: (B, R, M), (B, R) -> (B, R, M).

    All-zero weights become uniform.
    """
    weights = weights + EPSILON
    powers = (weights / weights.amax(-1, keepdim=True)) ** exponents[..., None]
    return powers / powers.sum(-1, keepdim=True)
