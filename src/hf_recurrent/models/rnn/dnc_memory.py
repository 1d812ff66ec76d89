"""Addressing of a differentiable neural computer, as pure functions.

After Graves et al., "Hybrid computing using a neural network with dynamic external memory" (2016), Methods, and Csordas
and Schmidhuber, "Improving Differentiable Neural Computers Through Memory Masking, De-allocation, and Link Distribution
Sharpness Control" (2019). Rounding guards are those of the latter's code.

Shapes: B sequences, M memory cells, W width of a cell, R read heads.
"""

from typing import NamedTuple

import torch

EPSILON = 1e-6


class DNCInterface(NamedTuple):
    """Memory operations of the controller for one token; gates, masks and modes are between 0 and 1."""

    write_mask: torch.Tensor | None  # (B, 1, W)
    write_key: torch.Tensor  # (B, 1, W)
    erase: torch.Tensor  # (B, W)
    write_vector: torch.Tensor  # (B, W)
    free_gates: torch.Tensor  # (B, R)
    write_strength: torch.Tensor  # (B, 1), at least 1
    allocation_gate: torch.Tensor  # (B, 1)
    write_gate: torch.Tensor  # (B, 1)
    read_masks: torch.Tensor | None  # (B, R, W)
    read_keys: torch.Tensor  # (B, R, W)
    read_strengths: torch.Tensor  # (B, R), at least 1
    read_modes: torch.Tensor  # (B, R, 3): backward, content, forward
    sharpness: torch.Tensor | None  # (B, 2, R), at least 1: forward, backward


class DNCMemory(NamedTuple):
    """The memory after a token, all zero before the first."""

    slots: torch.Tensor  # (B, M, W)
    usage: torch.Tensor  # (B, M)
    write_weights: torch.Tensor  # (B, M)
    precedence: torch.Tensor  # (B, M)
    links: torch.Tensor  # (B, M, M): [i, j] degree to which i was written right after j
    read_weights: torch.Tensor  # (B, R, M)
    read_vectors: torch.Tensor  # (B, R, W)


def root(squares: torch.Tensor) -> torch.Tensor:
    """Square root whose gradient at zero is zero."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


def content_weights(
    slots: torch.Tensor, keys: torch.Tensor, strengths: torch.Tensor, masks: torch.Tensor | None
) -> torch.Tensor:
    """Softmax over cells of strength times cosine similarity, of the parts that masks show: (B, R, M).

    Masks are those of the 2019 paper. They are applied to the keys, which avoids tensors (B, R, M, W).
    """
    if masks is None:
        slot_norms = root(slots.square().sum(-1))[:, None]
    else:
        keys = keys * masks
        slot_norms = root(masks.square() @ slots.square().mT)
    key_norms = root(keys.square().sum(-1, keepdim=True))
    products = (keys if masks is None else keys * masks) @ slots.mT
    return (strengths[..., None] * products / (key_norms * slot_norms + EPSILON)).softmax(-1)


def retention(read_weights: torch.Tensor, free_gates: torch.Tensor) -> torch.Tensor:
    """Share of each cell that its last reads do not free: (B, R, M), (B, R) -> (B, M)."""
    return (1 - free_gates[..., None] * read_weights).prod(1)


def next_usage(usage: torch.Tensor, write_weights: torch.Tensor, retained: torch.Tensor) -> torch.Tensor:
    """(B, M) each: cells are in use from a write until they are freed."""
    return (usage + write_weights * (1 - usage)) * retained


def allocation_weights(usage: torch.Tensor) -> torch.Tensor:
    """The least used cells first: (B, M) -> (B, M)."""
    ascending, order = (usage * (1 - EPSILON) + EPSILON).sort(dim=-1, stable=True)
    used_before = torch.cat((torch.ones_like(ascending[:, :1]), ascending.cumprod(-1)[:, :-1]), dim=-1)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ascending) * used_before)


def write_slots(
    slots: torch.Tensor,
    write_weights: torch.Tensor,
    erase: torch.Tensor,
    write_vector: torch.Tensor,
    retained: torch.Tensor | None,
) -> torch.Tensor:
    """(B, M, W) after erasing and adding; with `retained` (B, M) freed cells are cleared, too, as in the 2019 paper."""
    remaining = 1 - write_weights[..., None] * erase[:, None]
    if retained is not None:
        remaining = remaining * retained[..., None]
    return slots * remaining + write_weights[..., None] * write_vector[:, None]


def next_links(links: torch.Tensor, precedence: torch.Tensor, write_weights: torch.Tensor) -> torch.Tensor:
    """(B, M, M), zero on the diagonal."""
    target, source = write_weights[..., None], write_weights[:, None]
    links = (1 - target - source) * links + target * precedence[:, None]
    return links * (1 - torch.eye(links.shape[-1], dtype=links.dtype, device=links.device))


def next_precedence(precedence: torch.Tensor, write_weights: torch.Tensor) -> torch.Tensor:
    """Degree to which each cell was the last one written: (B, M)."""
    return (1 - write_weights.sum(-1, keepdim=True)) * precedence + write_weights


def sharpened(weights: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """A distribution over cells, the sharper the greater its exponent: (B, R, M), (B, R) -> (B, R, M).

    All-zero weights become uniform.
    """
    weights = weights + EPSILON
    powers = (weights / weights.amax(-1, keepdim=True)) ** exponents[..., None]
    return powers / powers.sum(-1, keepdim=True)


def access(memory: DNCMemory, control: DNCInterface, deallocate: bool) -> DNCMemory:
    """Write, then read."""
    retained = retention(memory.read_weights, control.free_gates)
    # usage passes no gradient to the write weights, as in the reference implementation
    usage = next_usage(memory.usage, memory.write_weights.detach(), retained)
    found = content_weights(memory.slots, control.write_key, control.write_strength, control.write_mask).squeeze(1)
    allocated = allocation_weights(usage)
    write_weights = control.write_gate * (control.allocation_gate * allocated + (1 - control.allocation_gate) * found)
    slots = write_slots(
        memory.slots, write_weights, control.erase, control.write_vector, retained if deallocate else None
    )

    links = next_links(memory.links, memory.precedence, write_weights)
    forward, backward = memory.read_weights @ links.mT, memory.read_weights @ links
    if control.sharpness is not None:
        forward, backward = sharpened(forward, control.sharpness[:, 0]), sharpened(backward, control.sharpness[:, 1])
    found = content_weights(slots, control.read_keys, control.read_strengths, control.read_masks)
    choices = torch.stack((backward, found, forward), dim=-1)
    read_weights = (choices * control.read_modes[:, :, None]).sum(-1)
    return DNCMemory(
        slots=slots,
        usage=usage,
        write_weights=write_weights,
        precedence=next_precedence(memory.precedence, write_weights),
        links=links,
        read_weights=read_weights,
        read_vectors=read_weights @ slots,
    )
