"""A user's own texts answered by their words alone, beside the answers of a trained model."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..hub.card import Compared
from ..metrics.baselines import text_baseline
from ..metrics.functional import r_squared
from ..text_data.labels import REGRESSION
from .data import Splits
from .evaluation import SHORT_NAMES, as_text

WITHOUT_SKLEARN = (
    "Not compared with TF-IDF and logistic regression, which needs scikit-learn: pip install 'hf-recurrent[baselines]'"
)


def compared_texts(splits: Splits, columns: Sequence[str], problem_type: str) -> Compared:
    """What `text_baseline` learns from a run's training texts, on each split that the run evaluates.

    Args:
        columns: of the texts; those of a pair are joined.

    Raises:
        ImportError: scikit-learn is not installed.
    """

    def read(rows: Any) -> tuple[list[str], np.ndarray]:
        texts = [" ".join(texts) for texts in zip(*(rows[name][:] for name in columns), strict=True)]
        return texts, np.asarray(rows["labels"][:], dtype=float if problem_type == REGRESSION else int)

    tests = [read(split.dataset) for split in splits.evaluation]
    found, size = text_baseline(*read(splits.train), list(chain.from_iterable(texts for texts, _ in tests)))
    values = {}
    for split, (texts, labels) in zip(splits.evaluation, tests, strict=True):
        own, found = found[: len(texts)], found[len(texts) :]
        right = own == labels if labels.ndim == 1 else (own == labels).all(-1)
        values[split.name] = [r_squared(own, labels) if problem_type == REGRESSION else float(right.mean())]
    kind = "ridge" if problem_type == REGRESSION else "logistic"
    return Compared(f"TF-IDF with {kind} regression", size, values)


def baseline_text(compared: Compared, tables: Mapping[str, Mapping[str, Any]], metric: str) -> str:
    """Plain-text table: on each split the measure of the model, of a constant answer and of the words alone."""
    _, constant = SHORT_NAMES.get(metric, ("accuracy", "majority"))
    return as_text(
        {
            "split": name,
            "this model": f"{table['accuracy']:.4f}",
            constant: f"{table['majority_baseline']:.4f}",
            compared.name: f"{compared.values[name][0]:.4f}",
        }
        for name, table in tables.items()
    )
