"""Exit criteria: when a unit's states or predictions say that further depth steps would not change its answer.

Sources: relative change of states and KL divergence of successive predictions as in Huginn (arXiv 2502.05171, section
6.1); unchanged predictions for some steps (PABEE, arXiv 2006.04152); largest probability and a trained classifier
(CALM, arXiv 2207.07061).
"""

import math
from typing import Literal, NamedTuple

from .fields import shown, size_limit

# the model's own halting
LEARNED = "learned"
# in the place of a criterion in `exit_calibration`: every input takes the same steps
FIXED = "fixed_depth"


class ExitCriterion(NamedTuple):
    """A rule that stops units.

    Attributes:
        evidence: the criterion's evidence: "states" before and after a step, "predictions" from the state after it, or
            the "probe", a head that judges the present answer.
        default_threshold: None for a criterion without.
        default_patience: successive steps for which the criterion must hold.
        falls: whether a score at or below the threshold stops a unit, rather than one at or above.
        highest: largest meaningful threshold; the smallest is 0.
        meaning: the score, for messages.
    """

    name: str
    evidence: Literal["states", "predictions", "probe"]
    default_threshold: float | None
    default_patience: int
    falls: bool
    highest: float
    meaning: str

    def check_threshold(self, threshold: float | None, field: str = "exit_threshold") -> float | None:
        """The threshold, by default the criterion's own.

        Raises:
            ValueError: it is out of range, or the criterion has none.
        """
        if threshold is None:
            return self.default_threshold
        if self.default_threshold is None:
            raise ValueError(
                f"{field} is {shown(threshold)} but {self.name!r} has no threshold: {self.meaning}; set exit_patience"
            )
        known = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
        if not (known and 0.0 <= threshold <= self.highest and math.isfinite(threshold)):
            bounds = f"in [0, {self.highest:g}]" if math.isfinite(self.highest) else "at least 0"
            raise ValueError(
                f"{field} is {shown(threshold)}: with exit_criterion={self.name!r} it is {self.meaning}, {bounds}"
            )
        return float(threshold)


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        ExitCriterion(
            "convergence",
            "states",
            0.1,
            1,
            True,
            math.inf,
            "the largest relative change of a unit's states in a step at which it stops",
        ),
        ExitCriterion(
            "agreement",
            "predictions",
            1e-3,
            1,
            True,
            math.inf,
            "the largest KL divergence in nats between successive predictions, or difference of predicted numbers, at "
            "which a unit stops",
        ),
        ExitCriterion(
            "stability",
            "predictions",
            None,
            2,
            False,
            1.0,
            "a unit stops when its prediction has not changed for exit_patience steps",
        ),
        ExitCriterion(
            "confidence",
            "predictions",
            0.99,
            1,
            False,
            1.0,
            "the smallest probability of the predicted class at which a unit stops",
        ),
        ExitCriterion(
            "entropy",
            "predictions",
            0.05,
            1,
            True,
            math.inf,
            "the largest entropy in nats of a prediction at which a unit stops",
        ),
        ExitCriterion(
            "probe",
            "probe",
            0.9,
            1,
            False,
            1.0,
            "the smallest probability that the present answer is right at which a unit stops",
        ),
    )
}


EXIT_ARGUMENTS = ("exit_criterion", "exit_threshold", "exit_patience", "min_depth")
# of which those that mean nothing to another criterion
CRITERION_SETTINGS = ("exit_threshold", "exit_patience")


def check_whole(value: int | None, name: str) -> None:
    """Raise a ValueError unless an argument is None or a number of steps."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {shown(value)}: pass a whole number, at least 1")
    most = size_limit("LAYERS")
    if value > most:
        raise ValueError(
            f"{name} is {shown(value)}: pass at most {most}, or set HF_RECURRENT_MAX_LAYERS to a higher number"
        )
