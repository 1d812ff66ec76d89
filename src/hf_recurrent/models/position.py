"""xPos rotary positions as pure functions.

Shapes: B batch, S tokens, H heads, D head dim, h = D // 2 rotation planes.
"""

from typing import NamedTuple

import torch


class Rotation(NamedTuple):
    """A scaled rotation of every plane at every position: `scale * cos` and `scale * sin`, each (..., S, 1, h)."""

    cos: torch.Tensor
    sin: torch.Tensor

    def index(self, flat_positions: torch.Tensor) -> "Rotation":
        """Pick positions of a (B, S, 1, h) rotation by flat index `b * S + s` -> (N, 1, h)."""
        return Rotation(
            self.cos.flatten(0, 1).index_select(0, flat_positions),
            self.sin.flatten(0, 1).index_select(0, flat_positions),
        )

    def select(self, rows: torch.Tensor, start: int, stop: int) -> "Rotation":
        """Keep `rows` and the columns `start:stop` of a (B, S, 1, h) rotation."""
        return Rotation(*(table[:, start:stop].index_select(0, rows) for table in self))


def token_positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """Positions that count valid tokens only, so that padding on either side moves nothing: (B, S) -> (B, S)."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0)


def xpos_rotations(
    positions: torch.Tensor, head_dim: int, scale_base: int = 512, center: torch.Tensor | int = 0
) -> tuple[Rotation, Rotation]:
    """The rotations that xPos applies to queries and keys (Sun et al. 2023, "A Length-Extrapolatable Transformer").

    A query at position p is scaled by `zeta_j ** ((p - c) / scale_base)` and a key by the inverse, with
    `zeta_j = (2j + 0.4 D) / (1.4 D)`; scores depend on position differences alone, so the centre `c` only
    keeps the two scales near one.

    Args:
        positions: (B, S) integer positions.
        center: number, or a tensor that broadcasts against `positions`, e.g. (B, 1).

    Returns:
        The query's and the key's rotation, tables of (B, S, 1, h) in float32.
    """
    # in float32 an angle of 2,000 radians is already off by 1e-4, which would let padding leak into scores
    wide = torch.float32 if positions.device.type == "mps" else torch.float64
    plane = torch.arange(head_dim // 2, device=positions.device, dtype=wide)
    theta = 10_000.0 ** (-plane / (head_dim // 2))
    log_zeta = torch.log((2 * plane + 0.4 * head_dim) / (1.4 * head_dim))
    angle = positions.to(wide)[..., None] * theta
    exponent = ((positions - center).to(wide) / scale_base)[..., None] * log_zeta
    cos, sin = angle.cos(), angle.sin()

    def scaled(scale: torch.Tensor) -> Rotation:
        return Rotation((cos * scale).float().unsqueeze(-2), (sin * scale).float().unsqueeze(-2))

    return scaled(exponent.exp()), scaled((-exponent).exp())


def rotate(states: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate the interleaved planes (2j, 2j+1) of (..., S, H, D) counter-clockwise, in float32."""
    pairs = states.float().unflatten(-1, (-1, 2))
    x, y = pairs[..., 0], pairs[..., 1]
    rotated = torch.stack((x * rotation.cos - y * rotation.sin, y * rotation.cos + x * rotation.sin), dim=-1)
    return rotated.flatten(-2).to(states.dtype)
