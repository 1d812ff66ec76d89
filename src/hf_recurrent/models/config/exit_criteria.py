"""Exit criteria: when the states or predictions of a token or sequence say that further depth steps would not help.

Sources: relative change of states and KL divergence of successive predictions as in Huginn (arXiv 2502.05171, section
6.1); unchanged predictions for some steps (PABEE, arXiv 2006.04152); largest probability and a trained classifier
(CALM, arXiv 2207.07061).
"""

from typing import Literal, NamedTuple

from .fields import Range, check_value, shown

# the model's own halting
LEARNED = "learned"
# in the place of a criterion in `exit_calibration`: every input takes the same steps
FIXED = "fixed_depth"
EXIT_ARGUMENTS = ("exit_criterion", "exit_threshold", "exit_patience", "min_depth")
# of which those that mean nothing to another criterion
CRITERION_SETTINGS = ("exit_threshold", "exit_patience")


class ExitCriterion(NamedTuple):
    """A rule that stops tokens or sequences.

    Attributes:
        evidence: what the criterion looks at: "states" before and after a step, "predictions" from the state after it,
            or the "probe", a head that judges the present answer.
        default_threshold: None for a criterion without threshold.
        default_patience: number of successive steps for which the criterion must hold.
        falls: whether a score at or below the threshold stops, rather than a score at or above it.
        score: the number that is compared with the threshold, for messages.
    """

    name: str
    evidence: Literal["states", "predictions", "probe"]
    default_threshold: float | None
    default_patience: int
    falls: bool
    score: str

    def check_threshold(self, threshold: float | None, field: str = "exit_threshold") -> float | None:
        """The threshold; the criterion's default if None.

        Raises:
            ValueError: it is out of range, or the criterion has no threshold.
        """
        if threshold is None:
            return self.default_threshold
        if self.default_threshold is None:
            raise ValueError(f"{field} is {shown(threshold)} but {self.name!r} has no threshold: set exit_patience")
        bound, range_text = ("largest", "at least 0") if self.falls else ("smallest", "in [0, 1]")
        allowed = Range(
            lambda value: value >= 0 and (self.falls or value <= 1),
            f"the {bound} {self.score} at which exit_criterion={self.name!r} stops, {range_text}",
        )
        check_value(field, float, allowed, threshold)
        return float(threshold)


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        ExitCriterion("convergence", "states", 0.1, 1, True, "relative change of the states in a step"),
        ExitCriterion(
            "agreement",
            "predictions",
            1e-3,
            1,
            True,
            "KL divergence in nats between successive predictions, or difference of predicted numbers,",
        ),
        ExitCriterion("stability", "predictions", None, 2, False, "number of steps with the same prediction"),
        ExitCriterion("confidence", "predictions", 0.99, 1, False, "probability of the predicted class"),
        ExitCriterion("entropy", "predictions", 0.05, 1, True, "entropy of a prediction in nats"),
        ExitCriterion("probe", "probe", 0.9, 1, False, "probability that the present answer is right"),
    )
}
