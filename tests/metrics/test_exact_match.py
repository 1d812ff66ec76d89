"""Exact match of texts and of sequences of token ids."""

import numpy as np
import pytest

from hf_recurrent.metrics import cut_at_end, exact_match, exact_match_by_slice, majority_match


def test_texts():
    assert exact_match(["a b", "a  b", "B", "c"], ["a b", "a b", "b", "c"]) == 0.5
    assert majority_match(["a", "b", "a", "a"]) == 0.75


@pytest.mark.parametrize("convert", [list, np.array, lambda row: [float(token) for token in row]])
def test_rows_of_any_length(convert):
    predictions, references = [[4, 5], [4], [4, 5, 6], [12]], [[4, 5], [4, 4], [4, 5], [1, 2]]
    assert exact_match([convert(row) for row in predictions], references) == 0.25
    assert exact_match([convert(row) for row in references], references) == 1.0


def test_a_prediction_may_be_empty():
    assert exact_match(["", "a"], ["b", "a"]) == exact_match([[], [1]], [[2], [1]]) == 0.5


def test_slices():
    predictions, references = ["a", "x", "b", "b", "a"], ["a", "a", "b", "a", "b"]
    assert exact_match_by_slice(predictions, references, [9, 9, 7, 7, 7]) == {
        7: {"n": 3, "exact_match": pytest.approx(1 / 3), "majority_baseline": pytest.approx(2 / 3)},
        9: {"n": 2, "exact_match": 0.5, "majority_baseline": 1.0},
    }
    rows = exact_match_by_slice([[1], [2]], [[1], [3]], np.array(["x", "y"]))
    assert {value: facts["exact_match"] for value, facts in rows.items()} == {"x": 1.0, "y": 0.0}


def test_cut_at_end():
    rows = np.array([[5, 6, 3, 0, 0], [7, 3, 8, 3, 9], [5, 5, 5, 5, 5], [3, 1, 1, 1, 1]])
    assert cut_at_end(rows, 3) == [[5, 6], [7], [5, 5, 5, 5, 5], []]
    assert cut_at_end([[5, 3, -100, -100], [6]], 3) == [[5], [6]]
    # padding of labels is none of their tokens, even where it stands first
    assert exact_match(cut_at_end([[5, 6, 3]], 3), cut_at_end([[-100, 5, 6, 3]], 3)) == 1.0


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
        (lambda: exact_match_by_slice(["a"], ["a"], [1, 2]), "slices have shape"),
        (lambda: majority_match([]), "equally long and not empty"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
