"""Positions as pure functions: sinusoids, and the rotations of xPos.

A rotation table holds one complex number per position and rotation plane: multiplying a plane by it rotates and
scales it in one operation. In a traced graph it holds the two parts of each, because other runtimes know real numbers.

Shapes: B batch, S tokens, H heads, D head dim, h = D // 2 rotation planes.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from .graphs import in_graph


def token_positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """Positions that count valid tokens only, independent of padding on either side: (B, S) -> (B, S)."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0)


def tokens_first(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns with the tokens first, each kind in its order, and the place of each column in it.

    Counts do what a stable sort does, which other runtimes lack: (B, S) bool -> (B, S), (B, S).
    """
    column = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    rank = mask.long().cumsum(-1)
    place = torch.where(mask, rank - 1, rank[:, -1:] + column - rank)
    return torch.zeros_like(place).scatter(-1, place, column), place


def angle_dtype(device: torch.device) -> torch.dtype:
    """The dtype of angles: in float32 one of 2,000 radians is off by 1e-4, and scores would depend on padding."""
    return torch.float32 if device.type == "mps" else torch.float64


def rotation_angles(
    positions: torch.Tensor, head_dim: int, base: float = 10_000.0, scaling: Mapping[str, Any] | None = None
) -> torch.Tensor:
    """Angles of all planes, `p * base ** (-j / h)`: (...) -> (..., h).

    Args:
        scaling: of their frequencies, see `scaled_frequencies`.
    """
    dtype = angle_dtype(positions.device)
    plane = torch.arange(head_dim // 2, device=positions.device, dtype=dtype)
    frequencies = base ** (-plane / (head_dim // 2))
    if scaling is not None:
        frequencies = scaled_frequencies(frequencies, scaling)
    return positions.to(dtype)[..., None] * frequencies


def scaled_frequencies(frequencies: torch.Tensor, scaling: Mapping[str, Any]) -> torch.Tensor:
    """Frequencies (h,) in radians per position, scaled as transformers' `rope_scaling` says.

    All are divided by its `factor` ("linear"), or those that turn less often than `low_freq_factor` times in
    `original_max_position_embeddings` positions, and partly those up to `high_freq_factor` times ("llama3", section 3.2
    of "Effective Long-Context Scaling of Foundation Models").
    """
    divided = frequencies / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return divided
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = frequencies * scaling["original_max_position_embeddings"] / (2 * math.pi)
    return torch.lerp(divided, frequencies, ((turns - low) / (high - low)).clamp(0, 1))


def xpos_scales(distances: torch.Tensor, head_dim: int, scale_base: int) -> torch.Tensor:
    """`zeta_j ** (distance / scale_base)` with `zeta_j = (2j + 0.4 D) / (1.4 D)`: (...) -> (..., h)."""
    dtype = angle_dtype(distances.device)
    plane = torch.arange(head_dim // 2, device=distances.device, dtype=dtype)
    log_zeta = torch.log((2 * plane + 0.4 * head_dim) / (1.4 * head_dim))
    return ((distances.to(dtype) / scale_base)[..., None] * log_zeta).exp()


def rotation_table(angles: torch.Tensor, scales: torch.Tensor | None = None) -> torch.Tensor:
    """Angles and scales (B, S, h) -> a table that broadcasts over heads, (B, S, 1, h) complex64.

    In a traced graph the table is (B, S, 1, h, 2) float32, real and imaginary parts.
    """
    scales = torch.ones_like(angles) if scales is None else scales
    if in_graph():
        return torch.stack((scales * angles.cos(), scales * angles.sin()), dim=-1).float().unsqueeze(-3)
    return torch.polar(scales, angles).to(torch.complex64).unsqueeze(-2)


def xpos_rotations(
    positions: torch.Tensor, head_dim: int, scale_base: int = 512, center: torch.Tensor | int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rotations that xPos applies to queries and keys (Sun et al. 2023, "A Length-Extrapolatable Transformer").

    A query at position p is scaled by `zeta_j ** ((p - c) / scale_base)` and a key by the inverse, see `xpos_scales`;
    scores depend on position differences alone, so the centre `c` only keeps the two scales near one.

    Args:
        positions: (B, S) integer positions.
        center: number, or a tensor that broadcasts against `positions`, e.g. (B, 1).

    Returns:
        The query's and the key's table, see `rotation_table`.
    """
    angles = rotation_angles(positions, head_dim)
    distances = positions - center
    query, key = (xpos_scales(signed, head_dim, scale_base) for signed in (distances, -distances))
    return rotation_table(angles, query), rotation_table(angles, key)


def rotate(states: torch.Tensor, rotation: torch.Tensor | None) -> torch.Tensor:
    """Rotate the interleaved planes (2j, 2j+1) of (..., S, H, D) counter-clockwise, in float32, by a table, if any."""
    if rotation is None:
        return states
    planes = states.float().unflatten(-1, (-1, 2))
    if not rotation.is_complex():
        (real, imaginary), (cosine, sine) = planes.unbind(-1), rotation.unbind(-1)
        turned = torch.stack((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)
        return turned.flatten(-2).to(states.dtype)
    planes = torch.view_as_complex(planes)
    return torch.view_as_real(planes * rotation).flatten(-2).to(states.dtype)


def rotate_halves(states: torch.Tensor, rotation: torch.Tensor | None) -> torch.Tensor:
    """`rotate` of the planes (j, j + h), as most language models pair them."""
    if rotation is None:
        return states
    interleaved = states.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    return rotate(interleaved, rotation).unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def sinusoids(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Sinusoids of signed positions ("Attention Is All You Need", section 3.5): (...) -> (..., size) float32.

    Channel 2c is `sin(p w_c)` and channel 2c + 1 `cos(p w_c)`, with `w_c = 10000 ** (-2c / size)`.
    """
    dtype = angle_dtype(positions.device)
    channel = torch.arange(0, size, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype)[..., None] * 10_000.0 ** (-channel / size)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :size].float()


def t5_buckets(distances: torch.Tensor, num_buckets: int, max_distance: int) -> torch.Tensor:
    """T5's buckets of distances d >= 0 to earlier tokens (Raffel et al. 2020): (...) -> (...) int64.

    The first half of the buckets hold one distance each; the others grow logarithmically up to `max_distance`, and the
    last also holds all beyond.
    """
    exact = num_buckets // 2
    ratio = (distances.clamp_min(1).to(angle_dtype(distances.device)) / exact).log() / math.log(max_distance / exact)
    logarithmic = exact + (ratio * (num_buckets - exact)).long()
    return torch.where(distances < exact, distances, logarithmic.clamp_max(num_buckets - 1))


def split_sinusoids(positions: torch.Tensor, size: int) -> torch.Tensor:
    """Sinusoids as fairseq lays them out, all sines before all cosines: (...) -> (..., size) float32.

    Frequencies are `10000 ** (-c / (size / 2 - 1))`.
    """
    half = size // 2
    dtype = angle_dtype(positions.device)
    channel = torch.arange(half, device=positions.device, dtype=dtype)
    angles = positions.to(dtype)[..., None] * torch.exp(-channel * (math.log(10_000.0) / max(half - 1, 1)))
    return torch.cat((angles.sin(), angles.cos()), dim=-1).float()
