"""How many different expressions there are of a depth, to refuse at once what cannot be had."""

from functools import lru_cache

from .rules import MAX_ARGUMENTS, OPERATOR_LENGTH, Source, counting_rules
from .weights import COUNT_CEILING, Weights, polynomials


def fewest(source: Source, depth: int) -> int:
    """A number of expressions that certainly exist, where any fit: chains of `[SM`, with as many digits as fit."""
    digits = min(source.length_limit - OPERATOR_LENGTH * depth, (MAX_ARGUMENTS - 1) * depth + 1)
    return 10**digits


def count(source: Source, depth: int) -> int:
    """The number of different expressions of this dependency depth (a huge number stands for any huge number)."""
    # deeper ones than fit need not be counted
    high = min(source.high, (source.length_limit - 1) // (OPERATOR_LENGTH + 1))
    return _counts(high, source.length_limit)[depth] if depth <= high else 0


@lru_cache(maxsize=16)
def _counts(high: int, length_limit: int) -> list[int]:
    law = Weights(counting_rules(high), high, polynomials(length_limit)).laws["subtree", high]
    return [int(min(COUNT_CEILING, weights.sum())) for weights in law.exact]
