"""Objectives over depth: how deep a training call runs, and losses over the states after each step.

Sources: PonderNet (arXiv 2107.05407, Eq. 1 to 6) for the expected loss and its prior, Ouro (arXiv 2510.25741) for the
uniform prior, Huginn (arXiv 2502.05171, section 3.3) for the log-normal Poisson distribution of depth.

Shapes: U units (any number of leading dims), L depth steps.
"""

import math
from collections.abc import Sequence

import torch

# of the log-normal distribution whose draws are the means of Poisson distributions
LOGNORMAL_STD = 0.5


def sampled_depth(config, max_depth: int, generator: torch.Generator | None = None) -> int:
    """Number of depth steps of a training call, drawn as `config.depth_sampling` says.

    Args:
        config: an `AdaptiveDepthConfig`.
        max_depth: the number without sampling; "poisson_lognormal" draws one more than a number of this mean.
        generator: on the CPU; torch's own if None.
    """
    if config.depth_sampling == "fixed":
        return max_depth
    low, high = depth_bounds(config, max_depth)
    if config.depth_sampling == "uniform":
        return int(torch.randint(low, high + 1, (), generator=generator))
    mean = math.log(max_depth) - LOGNORMAL_STD**2 / 2 + LOGNORMAL_STD * torch.randn((), generator=generator)
    depth = int(torch.poisson(mean.exp(), generator=generator)) + 1
    return max(low, depth if high is None else min(depth, high))


def depth_bounds(config, max_depth: int) -> tuple[int, int | None]:
    """The smallest and the largest number of steps that `sampled_depth` draws; None without upper limit."""
    low, high = config.depth_range or (1, max_depth if config.depth_sampling == "uniform" else None)
    return low, high


def most_trained_steps(config) -> int | None:
    """The largest number of depth steps that training by a config takes; None without upper limit."""
    most = config.num_hidden_layers
    return most if config.depth_sampling == "fixed" else depth_bounds(config, most)[1]


def halting_distribution(probabilities: torch.Tensor) -> torch.Tensor:
    """Probability of halting after each step, from conditional ones of further steps.

    Args:
        probabilities: (U, L), entry k of halting after k steps, having gone on so far; entry 0 is not read.

    Returns:
        (U, L) for 1 to L steps; the last takes all that remains.
    """
    go_on = (1.0 - probabilities[..., 1:]).cumprod(-1)
    remaining = torch.cat((torch.ones_like(probabilities[..., :1]), go_on), dim=-1)
    return torch.cat((remaining[..., :-1] * probabilities[..., 1:], remaining[..., -1:]), dim=-1)


def mean_distribution(distribution: torch.Tensor, exists: torch.Tensor) -> torch.Tensor:
    """Halting distributions (B, L) of sequences, given so, or by the mean over units (B, U) that exist of (B, U, L).

    Of a sequence whose tokens halt one by one it is that of a token drawn at random.
    """
    if distribution.dim() == 2:
        return distribution
    return (distribution * (exists / exists.sum(-1, keepdim=True).clamp_min(1))[..., None]).sum(1)


def depth_prior(config, num_steps: int, like: torch.Tensor) -> torch.Tensor:
    """Prior probability (L,) of halting after 1 to L steps, in the dtype and on the device of `like`."""
    if config.depth_prior == "uniform":
        return like.new_full((num_steps,), 1.0 / num_steps)
    rate = config.depth_prior_rate
    mass = rate * (1.0 - rate) ** torch.arange(num_steps, device=like.device, dtype=like.dtype)
    # truncated, and normalised
    return mass / mass.sum()


def prior_divergence(config, distribution: torch.Tensor) -> torch.Tensor:
    """KL divergence in nats of halting distributions from the prior: (U, L) -> (U,)."""
    prior = depth_prior(config, distribution.shape[-1], distribution)
    # the gradient of p log p is infinite at 0
    positive = distribution.clamp_min(torch.finfo(distribution.dtype).tiny)
    return (distribution * (positive.log() - prior.log())).sum(-1)


def step_weights(config, num_steps: int, like: torch.Tensor) -> torch.Tensor:
    """Weights (L,) of the losses after 1 to L steps, with sum 1 (deep supervision)."""
    weights = torch.ones(num_steps) if config.step_weights == "uniform" else torch.arange(1.0, num_steps + 1)
    return (weights / weights.sum()).to(like)


# how steeply the target of going on rises with what a step gains, and the gain in nats at which it is a half
GAIN_SLOPE, LEAST_GAIN = 50.0, 0.005


def continuation_targets(losses: Sequence[torch.Tensor]) -> torch.Tensor:
    """Target probabilities (U, L - 1) of going on after 2 to L steps, from losses (U,) after 1 to L of them.

    They are `sigmoid(GAIN_SLOPE (gain - LEAST_GAIN))` of what the step took off the loss.
    """
    stacked = torch.stack(tuple(losses), dim=-1).detach()
    gains = (stacked[..., :-1] - stacked[..., 1:]).clamp_min(0)
    return (GAIN_SLOPE * (gains - LEAST_GAIN)).sigmoid()


def gate_loss(losses: Sequence[torch.Tensor], probabilities: torch.Tensor) -> torch.Tensor:
    """Loss of an exit gate that is to stop where further steps gain little (Ouro, section 3.4, second stage).

    Args:
        losses: L of (U,), after 1 to L steps, through which no gradient flows.
        probabilities: (U, L) conditional halting probabilities after 1 to L steps.

    Returns:
        (U,) mean cross-entropy over the steps from the second on; zero with one step.
    """
    go_on = continuation_targets(losses)
    stop = probabilities[..., 1:].float()
    tiny = torch.finfo(stop.dtype).tiny
    entropies = -go_on * (1.0 - stop).clamp_min(tiny).log() - (1.0 - go_on) * stop.clamp_min(tiny).log()
    return entropies.sum(-1) / max(1, len(losses) - 1)


def objective_loss(config, losses: Sequence[torch.Tensor], distribution: torch.Tensor | None) -> torch.Tensor:
    """Loss of each unit, from its losses after 1 to L steps.

    Args:
        losses: L of (U,).
        distribution: (U, L) halting distribution, for the expected loss; None for supervision of every step.

    Returns:
        (U,)

    Raises:
        ValueError: the objective is that of an exit gate, which a model learns by what it predicts of tokens.
    """
    if config.depth_objective == "gate":
        raise ValueError(
            "config.depth_objective is 'gate', which trains the exit gate alone, of models that predict tokens: set it "
            "to 'expected' or 'mixture' for this head"
        )
    stacked = torch.stack(tuple(losses), dim=-1)
    weights = step_weights(config, len(losses), stacked) if distribution is None else distribution.to(stacked)
    return (weights * stacked).sum(-1)
