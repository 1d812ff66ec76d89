"""Scores of answers to questions, by the rules of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(answer: str) -> str:
    """An answer as it is compared: in lower case, without punctuation, articles and further white space."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split())


def exact_match(answer: str, true: Sequence[str]) -> bool:
    """Whether an answer is one of the true ones; without any, whether it is empty."""
    return normalized(answer) in set(map(normalized, true or [""]))


def f1(answer: str, true: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of an answer's words, by the true answer where that is greatest.

    Without words in either, it is whether both have none.
    """
    return max(_f1(normalized(answer).split(), normalized(each).split()) for each in true or [""])


def _f1(words: list[str], true: list[str]) -> float:
    if not words or not true:
        return float(words == true)
    common = (Counter(words) & Counter(true)).total()
    return 2 * common / (len(words) + len(true))
