"""Scores of entities, spans of words whose labels are in IOB form: B-PER begins a person, I-PER goes on, O is none."""

import importlib.util
from collections.abc import Sequence

OUTSIDE, PREFIXES = "O", ("B-", "I-")


def is_iob(names: Sequence[str]) -> bool:
    """Whether labels tell where entities begin and go on."""
    return any(name.startswith("B-") for name in names) and all(
        name == OUTSIDE or name.startswith(PREFIXES) for name in names
    )


def scores_entities(names: Sequence[str]) -> bool:
    """Whether labels are of entities, and the package that scores these is installed."""
    return is_iob(names) and importlib.util.find_spec("seqeval") is not None


def entity_scores(predicted: Sequence[Sequence[str]], labelled: Sequence[Sequence[str]]) -> dict[str, float]:
    """`entity_precision`, `entity_recall` and `entity_f1` of the labels of N texts, as the CoNLL evaluation has them.

    An entity is right if it has the words and the kind of a labelled one; a score without entities is 0.

    Raises:
        ImportError: the package seqeval is not installed.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score

    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    return {
        f"entity_{name}": float(score(list(labelled), list(predicted), zero_division=0))
        for name, score in scores.items()
    }
