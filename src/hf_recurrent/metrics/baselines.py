"""What the words of texts tell of their labels, in whatever order they stand: the least that a model should beat."""

import warnings
from collections.abc import Sequence

import numpy as np

# training texts that are read at most, so that it takes seconds
MOST_TEXTS = 50_000
# every run of letters or digits, and every other sign, is a word
WORD = r"\w+|[^\w\s]"


def text_baseline(
    train_texts: Sequence[str], train_labels: np.ndarray, test_texts: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Predictions of TF-IDF with logistic regression, of numbers with ridge regression, at scikit-learn's settings.

    Of more than `MOST_TEXTS` training texts it reads so many, the same random ones each time.

    Args:
        train_labels: classes (N,) as whole numbers, sets of C labels (N, C) as zeros and ones, or numbers (N,).

    Returns:
        Predictions of the test texts, of the kind of the labels, and the number of coefficients.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    labels = np.asarray(train_labels)
    chosen = np.random.default_rng(0).permutation(len(labels))[:MOST_TEXTS]
    labels, texts = labels[chosen], [train_texts[place] for place in chosen]
    vectorizer = TfidfVectorizer(token_pattern=WORD)
    train, test = vectorizer.fit_transform(texts), vectorizer.transform(test_texts)
    with warnings.catch_warnings():
        # of a fit that would go on
        warnings.simplefilter("ignore")
        if labels.ndim == 1 and np.issubdtype(labels.dtype, np.floating):
            model = Ridge().fit(train, labels)
            return model.predict(test), train.shape[1] + 1
        predictions, size = [], 0
        for column in labels.T if labels.ndim == 2 else [labels]:
            if len(np.unique(column)) == 1:
                predictions.append(np.full(len(test_texts), column[0]))
                continue
            model = LogisticRegression().fit(train, column)
            predictions.append(model.predict(test))
            size += model.coef_.size + model.intercept_.size
    return np.stack(predictions, axis=-1) if labels.ndim == 2 else predictions[0], size
