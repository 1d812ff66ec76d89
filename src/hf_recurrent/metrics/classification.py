"""Scores of classes, sets of classes and numbers beside accuracy, as the GLUE benchmark reports them.

Shapes: N examples, C classes.
"""

import numpy as np

from .functional import accuracy, r_squared, spearman


def confusion_matrix(predictions: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Numbers (C, C) of examples by label and prediction, of class ids `(N,)`."""
    counts = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(counts, (labels, predictions), 1)
    return counts


def f1_scores(counts: np.ndarray) -> np.ndarray:
    """F1 (C,) of each class, from a confusion matrix: 2 TP / (2 TP + FP + FN); 0 for a class that nowhere occurs."""
    right, involved = counts.diagonal(), counts.sum(0) + counts.sum(1)
    return 2 * right / np.maximum(involved, 1)


def matthews_correlation(counts: np.ndarray) -> float:
    """Correlation of labels and predictions from a confusion matrix (Gorodkin 2004), 0 where either is constant."""
    counts = counts.astype(np.float64)
    by_label, by_prediction, total = counts.sum(1), counts.sum(0), counts.sum()
    covariance = counts.trace() * total - by_label @ by_prediction
    spread = (total**2 - by_label @ by_label) * (total**2 - by_prediction @ by_prediction)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0


def class_scores(predictions: np.ndarray, labels: np.ndarray, num_classes: int) -> dict[str, float]:
    """`accuracy`, `macro_f1` and `matthews_correlation` of class ids `(N,)`; of two classes `f1`, that of class 1."""
    counts = confusion_matrix(predictions, labels, num_classes)
    scores = {"accuracy": accuracy(predictions, labels), "macro_f1": float(f1_scores(counts).mean())}
    if num_classes == 2:
        scores["f1"] = float(f1_scores(counts)[1])
    return scores | {"matthews_correlation": matthews_correlation(counts)}


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
