"""The rows of Compositional Freebase Questions.

source            Did M0 ' s director direct M1
target            SELECT count ( * ) WHERE { ?x0 film.director.film M0 M1 }
num_triples       2
"""

import string

from ..sequences import check_pair
from . import sparql


def spaced_question(question: str) -> str:
    """A question with single spaces between its words, each sign of punctuation one of them.

    >>> spaced_question("Who influenced M1's producer?")
    "Who influenced M1 ' s producer ?"
    """
    return " ".join("".join(f" {sign} " if sign in string.punctuation else sign for sign in question).split())


def make_row(question: str, query: str, group_triples: bool, normalize_inverses: bool, place: str) -> dict[str, object]:
    """The row of a question and its query, as the data set has them.

    Raises ValueError, with the `place`, for an empty text and a query that cannot be read.
    """
    check_pair(question, query, place)
    try:
        parsed = sparql.parse(sparql.spaced(query))
    except ValueError as error:
        raise ValueError(f"{place}: not a query of the data set: {error}") from error
    if normalize_inverses:
        parsed = sparql.normalize_inverses(parsed)
    source = spaced_question(question)
    target = sparql.grouped(parsed) if group_triples else sparql.plain(parsed)
    return {
        "source": source,
        "target": target,
        "num_triples": len(parsed.triples),
        "length": len(source.split()),
        "target_length": len(target.split()),
    }
