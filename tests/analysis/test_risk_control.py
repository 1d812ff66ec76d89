"""Risk control: p-values by enumeration, the promise by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from hf_recurrent.analysis.risk_control import (
    bounded_risk_p_values,
    fewest_examples,
    fixed_sequence,
    risk_p_values,
)

TOLERANCE, LEVEL = 0.05, 0.1
DRAWS = 500


def test_p_values_are_those_of_all_outcomes():
    n, tolerance = 9, 0.3
    outcomes = np.array(list(itertools.product((0, 1), repeat=n)))
    errors = outcomes.sum(1)
    probability = (tolerance**errors) * (1 - tolerance) ** (n - errors)
    expected = [probability[errors <= found].sum() for found in range(n + 1)]
    np.testing.assert_allclose(risk_p_values(range(n + 1), n, tolerance), expected, rtol=1e-10)


def test_fewest_examples():
    assert fewest_examples(0.01, 0.05) == 299
    # two heads in a row have a probability of exactly a quarter
    assert fewest_examples(0.5, 0.25) == 2
    assert fewest_examples(0.9, 0.5) == 1
    for tolerance, level in itertools.product((0.001, 0.02, 0.4), (0.001, 0.05, 0.3)):
        n = fewest_examples(tolerance, level)
        assert (1 - tolerance) ** n <= level < (1 - tolerance) ** (n - 1)


def test_nothing_is_rejected_after_the_first_that_is_not():
    assert fixed_sequence([0.01, 0.05, 0.06, 0.001], 0.05).tolist() == [True, True, False, False]
    assert fixed_sequence([0.2, 0.0], 0.05).tolist() == [False, False]
    assert fixed_sequence([], 0.05).tolist() == []


@pytest.mark.parametrize(
    ("risks", "any_is_unsafe"),
    [
        # from none at all to a fifth of the examples
        (np.linspace(0, 0.2, 81), True),
        # all within a hair of the tolerance, where mistakes are likeliest
        (np.linspace(0.99, 1.02, 13) * TOLERANCE, True),
        (np.full(5, TOLERANCE * 1.0001), True),
        (np.linspace(0, 0.9, 10) * TOLERANCE, False),
    ],
)
def test_the_tolerance_is_exceeded_no_more_often_than_promised(risks, any_is_unsafe):
    generator = np.random.default_rng(0)
    n, exceeded, chosen = 400, 0, []
    for _ in range(DRAWS):
        # an example on which a threshold errs is one on which all faster ones do
        first_error = generator.random(n)
        errors = (first_error[:, None] < risks).sum(0)
        safe = fixed_sequence(risk_p_values(errors, n, TOLERANCE), LEVEL)
        chosen.append(safe.sum())
        exceeded += bool(safe.any() and risks[safe.sum() - 1] > TOLERANCE)
    # a rate at the promise itself would give so many once in a thousand times
    assert exceeded <= binom.ppf(0.999, DRAWS, LEVEL)
    assert (exceeded > 0) == any_is_unsafe
    # a promise is also kept by choosing nothing
    assert max(chosen) > 0


def test_p_values_of_shares_are_the_smaller_of_both_bounds():
    n, mean, tolerance = 200, 0.013, 0.05
    divergence = mean * math.log(mean / tolerance) + (1 - mean) * math.log((1 - mean) / (1 - tolerance))
    bounds = math.exp(-n * divergence), math.e * binom.cdf(math.ceil(mean * n), n, tolerance)
    assert bounded_risk_p_values([mean * n], n, tolerance) == pytest.approx([min(bounds)])
    # no share is an error: as sure as with examples that are right or wrong
    assert bounded_risk_p_values([0.0], n, tolerance) == pytest.approx(risk_p_values([0], n, tolerance))
    assert bounded_risk_p_values([0.0], n, tolerance) == pytest.approx([(1 - tolerance) ** n])
    # where the mean is no smaller than the tolerance, nothing speaks against a larger risk
    assert (bounded_risk_p_values([n * tolerance, n / 2, n], n, tolerance) == 1).all()
    errors = np.arange(n + 1)
    assert (bounded_risk_p_values(errors, n, tolerance) >= risk_p_values(errors, n, tolerance) - 1e-12).all()


def losses_of_sequences(generator, shape, risk):
    """Shares of errors of sequences of 1 to 20 tokens, whose errors come together: a sequence is easy or hard."""
    tokens = generator.integers(1, 21, shape)
    chance = np.where(generator.random(shape) < 0.25, 4 * risk, 0.0)
    return generator.binomial(tokens, chance) / tokens


def test_the_promise_holds_for_tokens_that_depend_on_each_other():
    generator, n, draws = np.random.default_rng(2), 300, 4000
    losses = losses_of_sequences(generator, (draws, n), TOLERANCE)
    assert losses.mean() == pytest.approx(TOLERANCE, rel=0.02)
    rate = (bounded_risk_p_values(losses.sum(1), n, TOLERANCE) <= LEVEL).mean()
    assert rate <= LEVEL
    # as if all tokens were drawn one by one, it would be broken
    tokens = 10 * n
    naive = (risk_p_values(np.round(losses.mean(1) * tokens).astype(int), tokens, TOLERANCE) <= LEVEL).mean()
    assert naive > 1.5 * LEVEL
    # and it is of use where the risk is smaller
    small = losses_of_sequences(generator, (200, n), TOLERANCE / 4).sum(1)
    assert (bounded_risk_p_values(small, n, TOLERANCE) <= LEVEL).mean() > 0.9
