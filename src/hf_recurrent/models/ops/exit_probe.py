"""The probe: a small head that judges whether the present answer is right."""

import torch
from torch import nn

from .initialization import initialized_linear, torch_default
from .layers import ReproducibleLinear, deciding_dtype


class ExitProbe(nn.Module):
    """Probability that the answer from these features is right, `sigmoid(W2 GELU(W1 LN(x) + b1) + b2)`, in float32.

    It is fitted to a frozen model (`hf-recurrent fit-probe`) and gets no gradient in training.
    """

    def __init__(self, num_features: int, size: int):
        super().__init__()
        self.norm = nn.LayerNorm(num_features)
        self.up_proj = initialized_linear(num_features, size, torch_default, kind=ReproducibleLinear)
        self.down_proj = initialized_linear(size, 1, torch_default, kind=ReproducibleLinear)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(n, F) -> (n,)."""
        return self.log_odds(features).sigmoid()

    def log_odds(self, features: torch.Tensor) -> torch.Tensor:
        """(n, F) -> (n,)."""
        with torch.autocast(features.device.type, enabled=False):
            normed = self.norm(features.to(deciding_dtype(self.up_proj, self.down_proj)))
            return self.down_proj(nn.functional.gelu(self.up_proj(normed))).squeeze(-1).float()
