"""Exact match of texts and of sequences of token ids."""

import numpy as np
import pytest

from hf_recurrent.metrics import answers, exact_match


def test_texts():
    assert exact_match(["a b", "a  b", "B", "c"], ["a b", "a b", "b", "c"]) == 0.5


@pytest.mark.parametrize("convert", [list, np.array, lambda row: [float(token) for token in row]])
def test_rows_of_any_length(convert):
    predictions, references = [[4, 5], [4], [4, 5, 6], [12]], [[4, 5], [4, 4], [4, 5], [1, 2]]
    assert exact_match([convert(row) for row in predictions], references) == 0.25
    assert exact_match([convert(row) for row in references], references) == 1.0


def test_a_prediction_may_be_empty():
    assert exact_match(["", "a"], ["b", "a"]) == exact_match([[], [1]], [[2], [1]]) == 0.5


def test_each_prediction_has_a_reference():
    with pytest.raises(ValueError, match="longer"):
        exact_match(["a"], ["a", "b"])


def test_answers_are_compared_as_squad_does():
    assert answers.exact_match("The  Rome!", ["Oslo", "rome"])
    assert not answers.exact_match("in Rome", ["Rome"])
    assert answers.exact_match("", [])
    assert not answers.exact_match("Rome", [])
    assert answers.f1("in Rome, Italy", ["Rome"]) == pytest.approx(0.5)
    assert answers.f1("Rome", ["Oslo", "Rome of old"]) == pytest.approx(0.5)
    assert (answers.f1("", []), answers.f1("the", []), answers.f1("Rome", [])) == (1, 1, 0)
