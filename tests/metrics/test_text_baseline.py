"""Words alone: each kind of labels, and what is no trouble."""

import sys

import numpy as np
import pytest

from hf_recurrent.tasks import text_classification
from hf_recurrent.tasks.text_classification import text_baseline

TEXTS = [f"the film is {word}{sign} {number}" for number in range(20) for word in ("good", "bad") for sign in ("", "!")]
GOOD, LOUD = (np.array([mark in text for text in TEXTS]) for mark in ("good", "!"))
NEW = ["a good book", "bad", "good!", "never seen"]


def answers(labels, texts=NEW):
    """Predictions of texts, and the number of coefficients."""
    answer, size = text_baseline(TEXTS, labels)
    return answer(texts), size


def test_a_word_or_a_sign_tells_the_class():
    found, size = answers(GOOD.astype(int))
    assert found[:3].tolist() == [1, 0, 1]
    # a coefficient for each word and sign, and one more
    assert size == len({word for text in TEXTS for word in text.replace("!", " !").split()}) + 1
    assert answers(LOUD.astype(int))[0].tolist() == [0, 0, 1, 0]


def test_each_of_several_labels_is_told():
    found, size = answers(np.stack((GOOD, LOUD, np.ones_like(GOOD)), axis=-1).astype(int))
    assert found[:3].tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    assert size == 2 * answers(GOOD.astype(int))[1]


def test_numbers_are_predicted():
    found, _ = answers(GOOD * 2.0 + LOUD)
    assert found[2] > found[0] > found[1]
    assert np.corrcoef(answers(GOOD * 2.0 + LOUD, TEXTS)[0], GOOD * 2.0 + LOUD)[0, 1] > 0.99


@pytest.mark.parametrize("labels", [np.full(len(TEXTS), 3), np.ones((len(TEXTS), 1), int), np.full(len(TEXTS), 0.5)])
def test_labels_that_are_all_alike_are_predicted(labels):
    assert answers(labels)[0].tolist() == labels[: len(NEW)].tolist()


def test_a_single_label_is_a_set():
    assert answers(GOOD[:, None].astype(int))[0][:3].tolist() == [[1], [0], [1]]


def test_of_many_texts_some_are_read(monkeypatch):
    monkeypatch.setattr(text_classification, "MOST_TEXTS", 30)
    (first, size), (again, _) = (answers(GOOD.astype(int)) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert first[:3].tolist() == [1, 0, 1]
    monkeypatch.undo()
    assert size < answers(GOOD.astype(int))[1]


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ImportError):
        answers(GOOD.astype(int))
