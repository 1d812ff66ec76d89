"""Choice of a setting whose risk is at most a tolerance with high probability, for losses from 0 to 1.

Source: "Learn then Test: Calibrating Predictive Algorithms to Achieve Risk Control" (arXiv 2110.01052), Section 2.3 of
which tests settings in an order that is fixed beforehand. Each setting stands for the hypothesis that its risk, the
mean loss of a new example, is above the tolerance; a setting whose hypothesis is rejected is safe. Where a loss is an
error or none, the risk is the probability of an error. The examples must be independent draws of the distribution that
the promise is about; what a loss is made of, such as the tokens of a text, need not be independent.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import rel_entr
from scipy.stats import binom


def risk_p_values(errors: Sequence[int] | np.ndarray, n: int, tolerance: float) -> np.ndarray:
    """Exact p-values of the hypotheses that a risk is above `tolerance`, given `errors` (K,) of n examples -> (K,).

    The probability of so few errors or fewer if the risk is the tolerance: a larger risk makes them less probable.
    """
    return binom.cdf(np.asarray(errors), n, tolerance)


def bounded_risk_p_values(losses: Sequence[float] | np.ndarray, n: int, tolerance: float) -> np.ndarray:
    """Hoeffding-Bentkus p-values of the hypotheses that a risk is above `tolerance`, as the source has them -> (K,).

    `risk_p_values` are smaller, but for losses of 0 or 1 alone.

    Args:
        losses: (K,) sums of the losses of n examples, each loss from 0 to 1.
    """
    losses = np.asarray(losses, dtype=float)
    mean = np.minimum(losses / n, tolerance)
    divergence = rel_entr(mean, tolerance) + rel_entr(1 - mean, 1 - tolerance)
    return np.minimum(np.exp(-n * divergence), np.e * binom.cdf(np.ceil(losses), n, tolerance))


def fewest_examples(tolerance: float, level: float) -> int:
    """Smallest number of examples of which none being an error has a p-value of at most `level`.

    It is 299 for a tolerance of 1% and a level of 5%.
    """
    guess = math.ceil(math.log(level) / math.log1p(-tolerance))
    # logarithms of numbers that are powers of each other are a rounding error off
    return next(n for n in range(max(guess - 1, 1), guess + 2) if risk_p_values([0], n, tolerance)[0] <= level)


def fixed_sequence(p_values: Sequence[float] | np.ndarray, level: float) -> np.ndarray:
    """(K,) whether each hypothesis is rejected, tested in their order up to the first one that is not.

    The probability of rejecting any true one is at most `level`, however many there are. The order must not depend on
    the examples: for early exits it goes from the safest threshold to the fastest.
    """
    return np.logical_and.accumulate(np.asarray(p_values, dtype=float) <= level)
