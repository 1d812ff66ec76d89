"""Scores of classes, sets of classes and numbers are those of scikit-learn and scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from hf_recurrent.metrics.functional import class_scores, number_scores, set_scores


@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_classes(classes):
    draw = np.random.default_rng(classes)
    labels = draw.integers(0, classes, 300)
    predictions = np.where(draw.random(300) < 0.6, labels, draw.integers(0, classes, 300))
    every = range(classes)
    expected = {
        "accuracy": metrics.accuracy_score(labels, predictions),
        "macro_f1": metrics.f1_score(labels, predictions, labels=every, average="macro", zero_division=0),
        "matthews_correlation": metrics.matthews_corrcoef(labels, predictions),
    }
    if classes == 2:
        expected["f1"] = metrics.f1_score(labels, predictions)
    assert class_scores(predictions, labels, classes) == pytest.approx(expected)


def test_constant_predictions():
    labels, constant = np.array([0, 1, 1]), np.array([1, 1, 1])
    assert class_scores(constant, labels, 2) == pytest.approx(
        {
            "accuracy": 2 / 3,
            "macro_f1": 0.4,
            "f1": 0.8,
            "matthews_correlation": metrics.matthews_corrcoef(labels, constant),
        }
    )
    scores = number_scores(constant, labels)
    assert (scores["pearson"], scores["spearman"]) == (0, 0)
    # the mean explains nothing, and what is worse less than that
    assert number_scores(np.full(3, 2 / 3), labels)["r_squared"] == pytest.approx(0)
    assert scores["r_squared"] == pytest.approx(metrics.r2_score(labels, constant))


def test_sets():
    draw = np.random.default_rng(0)
    labels = draw.random((200, 5)) < [0.1, 0.5, 0.9, 0.3, 0.0]
    predictions = labels ^ (draw.random((200, 5)) < 0.2)
    assert set_scores(predictions, labels) == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, predictions),
            "f1": metrics.f1_score(labels, predictions, average="micro"),
            "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
        }
    )
    nothing = np.zeros((2, 3), dtype=bool)
    assert set_scores(nothing, nothing) == {"accuracy": 1, "f1": 0, "macro_f1": 0}


def test_numbers():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 11, 200) / 2
    predictions = labels + draw.normal(size=200)
    assert number_scores(predictions, labels) == pytest.approx(
        {
            "r_squared": metrics.r2_score(labels, predictions),
            "mse": metrics.mean_squared_error(labels, predictions),
            "pearson": stats.pearsonr(predictions, labels).statistic,
            "spearman": stats.spearmanr(predictions, labels).statistic,
        }
    )
