"""The bag of words: a logistic regression on how often each word occurs, which knows nothing of their order."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hub.card import LIMIT
from ..hub.card_data import CardData, Compared
from .data import further_splits, load_own_config, some_examples
from .reevaluation import data_arguments

if TYPE_CHECKING:
    from datasets import Dataset
    from scipy.sparse import csr_matrix

NAME = "bag of words (logistic regression)"
# every run of letters or digits, and every other sign
WORD = r"\w+|[^\w\s]"
# inverse strengths of the penalty, of which that with the best validation accuracy is taken
STRENGTHS = (0.01, 0.1, 1.0, 10.0)
MOST_ITERATIONS = 1000


def bag_of_words(card: CardData, data_dir: str | None = None) -> Compared:
    """The accuracy of a bag of words on the splits of a card, trained on the training examples of its benchmark.

    Args:
        data_dir: folder of the authors' own files, if the card's results are of those.

    Raises:
        ValueError: the card is not of a classifier of a benchmark.
        ImportError: scikit-learn is not installed.
    """
    if card.metric != "accuracy" or card.benchmark.is_own:
        raise ValueError(
            f"{card.model_name} is measured in {card.metric} on {card.benchmark.name}: a bag of words is trained for "
            "classifiers of benchmarks alone, leave it out"
        )
    arguments = data_arguments(card, data_dir)
    columns, own = arguments.info.text_columns, load_own_config(arguments)
    facts = card.benchmark.parameters
    train = some_examples(own["train"], facts.get("max_train_samples"))
    count = fitted_counts(train, columns)
    regression = fitted_regression(count, train, own.get("validation"))
    tests = {**own, **dict(further_splits(arguments))}
    splits = {result.split: some_examples(tests[result.split], facts.get(LIMIT)) for result in card.results}
    values = {split: [accuracy(regression, count(rows), rows["label"][:])] for split, rows in splits.items()}
    return Compared(NAME, int(regression.coef_.size + regression.intercept_.size), values)


def fitted_counts(train: "Dataset", columns: Sequence[str]) -> "Callable[[Dataset], csr_matrix]":
    """The counts (N, words) of the words of each text in examples, scaled to at most 1 in training."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import MaxAbsScaler

    vectorizers = [CountVectorizer(token_pattern=WORD).fit(train[column][:]) for column in columns]

    def counts(rows: "Dataset") -> "csr_matrix":
        return hstack([own.transform(rows[column][:]) for own, column in zip(vectorizers, columns, strict=True)])

    scaler = MaxAbsScaler().fit(counts(train))
    return lambda rows: scaler.transform(counts(rows))


def fitted_regression(count: "Callable[[Dataset], csr_matrix]", train: "Dataset", validation: "Dataset | None") -> Any:
    """The logistic regression with the best accuracy in validation; without validation examples that of strength 1."""
    from sklearn.linear_model import LogisticRegression

    inputs, labels = count(train), train["label"][:]
    strengths = STRENGTHS if validation is not None and len(validation) else (1.0,)
    found = [LogisticRegression(C=strength, max_iter=MOST_ITERATIONS).fit(inputs, labels) for strength in strengths]
    if len(found) == 1:
        return found[0]
    checked, answers = count(validation), validation["label"][:]
    return max(found, key=lambda regression: accuracy(regression, checked, answers))


def accuracy(regression: Any, inputs: "csr_matrix", labels: Sequence[int]) -> float:
    """Fraction of examples answered right."""
    return float(np.mean(regression.predict(inputs) == np.asarray(labels)))
