"""Scores of classes, sets of classes and numbers beside accuracy, as the GLUE benchmark reports them.

Shapes: N examples, C classes.
"""

import numpy as np

from .functional import accuracy, r_squared, spearman


def class_scores(predictions: np.ndarray, labels: np.ndarray, num_classes: int) -> dict[str, float]:
    """`accuracy`, `macro_f1` and `matthews_correlation` of class ids `(N,)`; of two classes `f1`, that of class 1.

    F1 of a class is 2 TP / (2 TP + FP + FN), and 0 if it occurs nowhere. The correlation is that of Gorodkin (2004), 0
    where labels or predictions are constant.
    """
    predicted, labelled, both = (
        np.bincount(ids, minlength=num_classes).astype(np.float64)
        for ids in (predictions, labels, labels[predictions == labels])
    )
    f1 = 2 * both / np.maximum(predicted + labelled, 1)
    scores = {"accuracy": accuracy(predictions, labels), "macro_f1": float(f1.mean())}
    if num_classes == 2:
        scores["f1"] = float(f1[1])
    total = len(labels)
    covariance = both.sum() * total - labelled @ predicted
    spread = (total**2 - labelled @ labelled) * (total**2 - predicted @ predicted)
    return scores | {"matthews_correlation": float(covariance / np.sqrt(spread)) if spread > 0 else 0.0}


def set_scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy` (all classes right), and `f1` over all decisions and `macro_f1`, of sets of classes (N, C) bool."""
    both, either = (predictions & labels).sum(0), predictions.sum(0) + labels.sum(0)
    return {
        "accuracy": float((predictions == labels).all(1).mean()),
        "f1": float(2 * both.sum() / max(either.sum(), 1)),
        "macro_f1": float((2 * both / np.maximum(either, 1)).mean()),
    }


def number_scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`r_squared`, `mse`, and correlations `pearson` and `spearman` of numbers `(N,)`; 0 where one is constant."""
    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    constant = np.ptp(predictions) == 0 or np.ptp(labels) == 0
    return {
        "r_squared": r_squared(predictions, labels),
        "mse": float(np.square(predictions - labels).mean()),
        "pearson": 0.0 if constant else float(np.corrcoef(predictions, labels)[0, 1]),
        "spearman": spearman(predictions, labels) or 0.0,
    }
