"""Exact match of texts and of sequences of token ids."""

import numpy as np
import pytest

from hf_recurrent.metrics import exact_match


def test_texts():
    assert exact_match(["a b", "a  b", "B", "c"], ["a b", "a b", "b", "c"]) == 0.5


@pytest.mark.parametrize("convert", [list, np.array, lambda row: [float(token) for token in row]])
def test_rows_of_any_length(convert):
    predictions, references = [[4, 5], [4], [4, 5, 6], [12]], [[4, 5], [4, 4], [4, 5], [1, 2]]
    assert exact_match([convert(row) for row in predictions], references) == 0.25
    assert exact_match([convert(row) for row in references], references) == 1.0


def test_a_prediction_may_be_empty():
    assert exact_match(["", "a"], ["b", "a"]) == exact_match([[], [1]], [[2], [1]]) == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_match([], []), "equally long and not empty, got 0 and 0 sequences"),
        (lambda: exact_match(["a"], ["a", "b"]), "equally long and not empty, got 1 and 2 sequences"),
        (lambda: exact_match(["a", "b"], ["a", ""]), r"references\[1\] is empty: there is nothing to match"),
        (lambda: exact_match([[1]], [[]]), r"references\[0\] is empty"),
        (lambda: exact_match(["1"], [[1]]), "must all be texts, or all be sequences of token ids"),
        (lambda: exact_match([[[1]]], [[1]]), "predictions must hold texts or sequences of token ids, got"),
        (lambda: exact_match([1], [1]), "predictions must hold texts or sequences of token ids, got 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
