"""Words alone: each kind of labels, and what is no trouble."""

import sys

import numpy as np
import pytest

from hf_recurrent.metrics import baselines
from hf_recurrent.metrics.baselines import text_baseline

TEXTS = [f"the film is {word}{sign} {number}" for number in range(20) for word in ("good", "bad") for sign in ("", "!")]
GOOD, LOUD = (np.array([mark in text for text in TEXTS]) for mark in ("good", "!"))
NEW = ["a good book", "bad", "good!", "never seen"]


def test_a_word_or_a_sign_tells_the_class():
    found, size = text_baseline(TEXTS, GOOD.astype(int), NEW)
    assert found[:3].tolist() == [1, 0, 1]
    # a coefficient for each word and sign, and one more
    assert size == len({word for text in TEXTS for word in text.replace("!", " !").split()}) + 1
    assert text_baseline(TEXTS, LOUD.astype(int), NEW)[0].tolist() == [0, 0, 1, 0]


def test_each_of_several_labels_is_told():
    found, size = text_baseline(TEXTS, np.stack((GOOD, LOUD, np.ones_like(GOOD)), axis=-1).astype(int), NEW)
    assert found[:3].tolist() == [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    assert size == 2 * text_baseline(TEXTS, GOOD.astype(int), NEW)[1]


def test_numbers_are_predicted():
    found, _ = text_baseline(TEXTS, GOOD * 2.0 + LOUD, NEW)
    assert found[2] > found[0] > found[1]
    assert np.corrcoef(text_baseline(TEXTS, GOOD * 2.0 + LOUD, TEXTS)[0], GOOD * 2.0 + LOUD)[0, 1] > 0.99


def test_labels_that_are_all_alike_are_predicted():
    assert text_baseline(TEXTS, np.full(len(TEXTS), 3), NEW)[0].tolist() == [3] * 4


def test_of_many_texts_some_are_read(monkeypatch):
    monkeypatch.setattr(baselines, "MOST_TEXTS", 30)
    (first, size), (again, _) = (text_baseline(TEXTS, GOOD.astype(int), NEW) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert first[:3].tolist() == [1, 0, 1]
    monkeypatch.undo()
    assert size < text_baseline(TEXTS, GOOD.astype(int), NEW)[1]


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ImportError):
        text_baseline(TEXTS, GOOD.astype(int), NEW)
