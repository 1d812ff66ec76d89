"""Exit criteria in a forward pass: settings of a call, answers of a head, and scores of states and answers.

Shapes: U units (any number of leading dims), E width, A answers of a unit, C classes of an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn

from ..config.exit_criteria import CRITERIA, EXIT_ARGUMENTS, LEARNED, ExitCriterion
from ..config.fields import check_whole, shown


class ExitOptions(NamedTuple):
    """The choices of one call; None for those of the config."""

    criterion: str | None = None
    threshold: float | None = None
    patience: int | None = None
    min_depth: int | None = None

    def named(self) -> dict[str, object]:
        """The options by the names of the arguments."""
        return dict(zip(EXIT_ARGUMENTS, self, strict=True))


@dataclass(frozen=True)
class AnswerHead:
    """A task model's head, as exit criteria use it. No tuple: accelerate moves what is in those, offloaded modules too.

    Attributes:
        logits: function from features (n, F), of units that have taken so many steps, and the steps to logits (n, C).
        probe: function from features (n, F) to the probability (n,) that the answer is right; None if none was fitted.
        answers: the answers of a prediction: one of the "classes", independent "labels", or a "number"; or what no
            sequence predicts as a whole: a class for each of its "tokens", a "span" of them, or a "choice" among
            several sequences.
        joined: function from features (2n, E) of the sentences of pairs to those of the pairs; None if units are whole.
    """

    logits: Callable[..., torch.Tensor]
    probe: Callable[[torch.Tensor], torch.Tensor] | None
    answers: Literal["classes", "labels", "number", "tokens", "span", "choice"] = "classes"
    joined: Callable[[torch.Tensor], torch.Tensor] | None = None

    def judged(self, features: torch.Tensor, criterion: ExitCriterion, steps: int | torch.Tensor) -> torch.Tensor:
        """The probe's probabilities (n,), or log-probabilities of the answers (n, A, C), from features of units.

        Answers that are numbers are themselves, (n, A, 1).
        """
        features = features if self.joined is None else self.joined(features)
        if criterion.evidence == "probe":
            return self.probe(features)
        logits = self.logits(features, steps)
        if self.answers == "number":
            return logits.float().unsqueeze(-1)
        return log_distributions(logits, self.answers == "labels")


class ExitRule(NamedTuple):
    """A criterion with its settings."""

    criterion: ExitCriterion
    threshold: float | None
    patience: int
    min_depth: int

    def met(self, score: torch.Tensor) -> torch.Tensor:
        """Whether a score (U,) speaks for stopping; NaN does not."""
        if self.threshold is None:
            return score > 0
        return score <= self.threshold if self.criterion.falls else score >= self.threshold


def resolve_exit(config, options: ExitOptions) -> ExitRule | None:
    """The rule of a call, None for the model's own halting.

    A call that changes the criterion takes that criterion's own defaults, never the settings stored for another.

    Raises:
        ValueError: an unknown criterion, or a setting that is out of range or belongs to another criterion.
    """
    name = config.exit_criterion if options.criterion is None else options.criterion
    if not isinstance(name, str) or name not in (LEARNED, *CRITERIA):
        raise ValueError(f"exit_criterion is {shown(name)}: expected one of {', '.join((LEARNED, *CRITERIA))}")
    if name == LEARNED:
        for field, value in zip(EXIT_ARGUMENTS[1:], options[1:], strict=True):
            if value is not None:
                raise ValueError(
                    f"{field} is {shown(value)}: exit_criterion='learned' reads halting_threshold; pass that instead, "
                    "or choose another criterion"
                )
        return None
    stored = name == config.exit_criterion
    threshold = config.exit_threshold if options.threshold is None and stored else options.threshold
    patience = config.exit_patience if options.patience is None and stored else options.patience
    min_depth = config.min_depth if options.min_depth is None else options.min_depth
    check_whole(patience, "exit_patience")
    check_whole(min_depth, "min_depth")
    criterion = CRITERIA[name]
    patience = criterion.default_patience if patience is None else patience
    return ExitRule(criterion, criterion.check_threshold(threshold), patience, min_depth)


def default_threshold_problem(config, options: ExitOptions) -> str | None:
    """A note that a call stops units at a threshold that nobody chose for the model; None if somebody did."""
    if config.capabilities.exit_criterion is None:
        return None
    name = config.exit_criterion if options.criterion is None else options.criterion
    stored = config.exit_threshold if name == config.exit_criterion else None
    default = None if name == LEARNED else CRITERIA[name].default_threshold
    if default is None or stored is not None or options.threshold is not None:
        return None
    return (
        f"exit_criterion={name!r} stops at its default threshold, {default:g}, which may be far too low or high for "
        "this model: pass exit_threshold, or choose one by `hf-recurrent calibrate`"
    )


def relative_change(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Norm of the change of each state over the norm of the state before, (U, E), (U, E) -> (U,); 0 if both are 0."""
    dtype = torch.promote_types(after.dtype, torch.float32)
    change = torch.linalg.vector_norm(after - before, dim=-1, dtype=dtype)
    size = torch.linalg.vector_norm(before, dim=-1, dtype=dtype)
    return change / size.clamp_min(torch.finfo(torch.float32).tiny)


def log_distributions(logits: torch.Tensor, multi_label: bool) -> torch.Tensor:
    """Log-probabilities in float32: (U, C) -> (U, 1, C), or of binary answers (U, C, 2) if labels are independent."""
    logits = logits.float()
    if multi_label:
        return torch.stack((nn.functional.logsigmoid(logits), nn.functional.logsigmoid(-logits)), dim=-1)
    return logits.log_softmax(-1).unsqueeze(-2)


def divergence(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Largest KL divergence over the answers, of the later from the earlier distribution: (U, A, C) twice -> (U,).

    Of numbers (U, A, 1) it is the largest difference, as PABEE compares them.
    """
    if after.shape[-1] == 1:
        return (after - before).abs().flatten(-2).amax(-1)
    return nn.functional.kl_div(before, after, log_target=True, reduction="none").sum(-1).amax(-1)


def unchanged(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """1 where all answers are the same as before, 0 elsewhere: (U, A, C), (U, A, C) -> (U,)."""
    return (before.argmax(-1) == after.argmax(-1)).all(-1).float()


def confidence(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Probability of the predicted class, the smallest over the answers: (U, A, C) -> (U,)."""
    return log_probabilities.amax(-1).exp().amin(-1)


def entropy(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Entropy in nats, the largest over the answers: (U, A, C) -> (U,)."""
    return torch.special.entr(log_probabilities.exp()).sum(-1).amax(-1)


# scores of a prediction by itself, and of a prediction and the one before it
OF_ONE = {"confidence": confidence, "entropy": entropy}
OF_TWO = {"agreement": divergence, "stability": unchanged}
