"""The authors' random process for pairs of sentences.

Four of the six variables are chosen for a pair. Both sentences are then drawn from

    S(n) -> variable                       with probability 5/9, and always when n < 2
    S(n) -> ( S(n/2) ( op S(n/2) ) )       with probability 2/9 each for `and`, `or`
    S(n) -> ( not S'(n) )                  S' is S without this rule, with probability 1/3

from n = 12, so no sentence has more than three binary operators inside one another. Pairs with a sentence
that is always true or always false are thrown away. Of 500,000 pairs the authors kept the distinct ones.
"""

import math
from random import Random
from typing import NamedTuple

from ..sampling import keep_probability, shuffled
from .sentences import ALL_WORLDS, VARIABLES, WORLDS

AUTHORS_DRAWS = 500_000
# distinct pairs by operators of the longer sentence (the last: 12 or more), train and test files together
AUTHORS_PAIRS = (36, 2729, 14649, 27356, 35734, 40179, 38768, 31378, 22309, 14864, 9625, 5758, 5684)

_VARIABLES_PER_PAIR = 4
_SIZE = 12
# share of pairs in which neither sentence is always true or always false
_CONTINGENT = 0.8519


class Sentence(NamedTuple):
    text: str
    meaning: int
    num_operators: int
    probability: float


class Pair(NamedTuple):
    text: str
    text_pair: str
    num_operators: int


def _draw_sentence(variables: list[str], size: int, rng: Random) -> Sentence:
    choice = int(rng.random() * 9)
    if size < 2 or choice >= 4:
        variable = variables[int(rng.random() * len(variables))]
        probability = (1.0 if size < 2 else 5 / 9) / len(variables)
        text, meaning, num_operators = variable, WORLDS[variable], 0
    else:
        left = _draw_sentence(variables, size // 2, rng)
        right = _draw_sentence(variables, size // 2, rng)
        connective = "and" if choice < 2 else "or"
        text = f"( {left.text} ( {connective} {right.text} ) )"
        meaning = left.meaning & right.meaning if choice < 2 else left.meaning | right.meaning
        num_operators = left.num_operators + right.num_operators + 1
        probability = 2 / 9 * left.probability * right.probability
    if rng.random() >= 1 / 3:
        return Sentence(text, meaning, num_operators, probability * 2 / 3)
    return Sentence(f"( not {text} )", ALL_WORLDS & ~meaning, num_operators + 1, probability / 3)


def draw_pair(rng: Random) -> tuple[Sentence, Sentence]:
    """One pair of sentences that are neither always true nor always false."""
    while True:
        variables = shuffled(VARIABLES, rng)[:_VARIABLES_PER_PAIR]
        first = _draw_sentence(variables, _SIZE, rng)
        second = _draw_sentence(variables, _SIZE, rng)
        if not {first.meaning, second.meaning} & {0, ALL_WORLDS}:
            return first, second


def pair_probability(first: Sentence, second: Sentence) -> float:
    """The probability that `draw_pair` gives exactly this pair."""
    used = len(set(VARIABLES) & set((first.text + " " + second.text).split()))
    free, unused = _VARIABLES_PER_PAIR - used, len(VARIABLES) - used
    choices = math.comb(unused, free) / math.comb(len(VARIABLES), _VARIABLES_PER_PAIR)
    return choices * first.probability * second.probability / _CONTINGENT


def draw_pool(fraction: float, rng: Random) -> list[Pair]:
    """A `fraction` of the authors' distinct pairs, in random order (more pairs than theirs when above 1)."""
    pool: dict[Pair, None] = {}
    for _ in range(math.ceil(fraction * AUTHORS_DRAWS)):
        first, second = draw_pair(rng)
        if fraction < 1.0:
            expected = AUTHORS_DRAWS * pair_probability(first, second)
            if rng.random() >= keep_probability(expected, fraction):
                continue
        num_operators = min(12, max(first.num_operators, second.num_operators))
        pool[Pair(first.text, second.text, num_operators)] = None
    return shuffled(list(pool), rng)
