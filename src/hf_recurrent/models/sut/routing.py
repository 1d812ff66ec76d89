"""Routers that send each token to a few of many experts, and load balancing losses.

Shapes: N tokens, d width, E experts, k of them for each token.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.initialization import initialized_linear, torch_default
from ..ops.layers import Dropout, at_least_float32

GATE_EPSILON = 1e-6
MASS_EPSILON = 1e-12


class RouterStatistics(NamedTuple):
    """Sums over the routed tokens, from which auxiliary losses are computed; the sums of several calls add up."""

    mass: torch.Tensor  # scalar, sum of the tokens' weights
    probabilities: torch.Tensor  # (E,)
    weighted_probabilities: torch.Tensor  # (E,)
    weighted_entropy: torch.Tensor  # scalar, nats
    gates: torch.Tensor  # (E,)
    assignments: torch.Tensor  # (E,) tokens of each expert


class Router(nn.Module):
    """`softmax(W2 tanh(W1 x + b1))`, whose k largest probabilities are normalised to gates.

    Args:
        sampled: number of the k experts that are sampled by probability in training ("sample_topk" of the reference
            implementation).
    """

    def __init__(self, hidden_size: int, num_experts: int, per_token: int, dropout: float, sampled: int = 0):
        super().__init__()
        self.hidden = initialized_linear(hidden_size, hidden_size, torch_default)
        self.output = initialized_linear(hidden_size, num_experts, torch_default, bias=False)
        self.dropout = Dropout(dropout)
        self.per_token = per_token
        self.sampled = sampled

    def forward(
        self, states: torch.Tensor, weights: torch.Tensor, statistics: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, RouterStatistics | None]:
        """Route tokens.

        Args:
            states: (N, d).
            weights: (N,) weight of each token in the statistics; tokens of weight 0 are not routed.
            statistics: whether to sum up what auxiliary losses read.

        Returns:
            The experts (N, k) of each token by descending gate, the gates (N, k), which are 0 for tokens that are not
            routed, and the statistics.
        """
        logits = at_least_float32(self.output(self.dropout(self.hidden(states).tanh())))
        routed = weights > 0
        probabilities = logits.softmax(-1)
        index = self.choose(probabilities)
        chosen = probabilities.gather(-1, index)
        gates = chosen / (chosen.sum(-1, keepdim=True) + GATE_EPSILON) * routed[:, None]
        sums = statistics_of(logits, probabilities, index, gates, weights) if statistics else None
        return index, gates.to(states.dtype), sums

    def choose(self, probabilities: torch.Tensor) -> torch.Tensor:
        sampled = self.sampled if self.training else 0
        greedy = probabilities.topk(self.per_token - sampled).indices
        if not sampled:
            return greedy
        rest = (probabilities.detach() + GATE_EPSILON).scatter(-1, greedy, 0.0)
        drawn = torch.multinomial(rest, sampled)
        index = torch.cat((greedy, drawn), dim=-1)
        order = probabilities.gather(-1, index).argsort(-1, descending=True)
        return index.gather(-1, order)


def statistics_of(
    logits: torch.Tensor, probabilities: torch.Tensor, index: torch.Tensor, gates: torch.Tensor, weights: torch.Tensor
) -> RouterStatistics:
    routed = (weights > 0).to(probabilities.dtype)
    entropies = -(probabilities * logits.log_softmax(-1)).sum(-1)
    zeros = torch.zeros_like(probabilities)
    # products of matrices, which autocast computes in half precision, would overflow
    return RouterStatistics(
        mass=weights.sum(),
        probabilities=(routed[:, None] * probabilities).sum(0),
        weighted_probabilities=(weights[:, None] * probabilities).sum(0),
        weighted_entropy=(weights * entropies).sum(),
        gates=zeros.scatter(-1, index, gates).sum(0),
        assignments=zeros.scatter(-1, index, (gates > 0).to(zeros.dtype)).sum(0),
    )


def mutual_information_loss(statistics: RouterStatistics, released_sign: bool = False) -> torch.Tensor:
    """`H(e | x) - H(e)`, the negative mutual information of experts and tokens, in nats (Eq. 1 of the SUT paper).

    A token counts by its weight, the probability that it has not halted. With the released sign it is
    `H(e | x) + H(e)`, which favours sending all tokens to the same experts.
    """
    mass = statistics.mass + MASS_EPSILON
    usage = statistics.weighted_probabilities / mass
    # a usage that underflowed to zero adds zero instead of NaN
    entropy = -torch.xlogy(usage, usage.clamp_min(torch.finfo(usage.dtype).tiny)).sum()
    conditional = statistics.weighted_entropy / mass
    return conditional + entropy if released_sign else conditional - entropy


def switch_loss(statistics: RouterStatistics) -> torch.Tensor:
    """`E <p, f>`, 1 at best: p is each expert's mean share, f that of the assignments (Fedus et al. 2021, Eq. 4)."""
    share = statistics.probabilities / statistics.probabilities.sum().clamp_min(MASS_EPSILON)
    used = statistics.assignments / statistics.assignments.sum().clamp_min(MASS_EPSILON)
    return (share * used).sum() * share.numel()


def importance_loss(statistics: RouterStatistics) -> torch.Tensor:
    """Squared coefficient of variation of the experts' summed gates (Shazeer et al. 2017, Eq. 7)."""
    if statistics.gates.numel() == 1:
        return statistics.gates.sum() * 0.0
    return statistics.gates.var() / (statistics.gates.mean() ** 2 + 1e-10)
