import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_recurrent.metrics import last_read_accuracy

NONE = -100
TOKENS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([NONE, 0, 1, 2])), min_size=1, max_size=6)
ROWS = st.lists(TOKENS.filter(lambda row: any(label != NONE for _, label in row)), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_against_a_loop_over_rows(rows):
    right = 0
    for row in rows:
        found, wanted = [pair for pair in row if pair[1] != NONE][-1]
        right += found == wanted
    predictions, labels = ([[pair[i] for pair in row] for row in rows] for i in (0, 1))
    assert last_read_accuracy(predictions, labels) == right / len(rows)
    # as `Trainer` pads them, on either side
    width = max(map(len, rows))
    for pad in (lambda row: row + [NONE] * (width - len(row)), lambda row: [NONE] * (width - len(row)) + row):
        padded = [np.array([pad(row) for row in side]) for side in (predictions, labels)]
        assert last_read_accuracy(*padded) == right / len(rows)
        assert last_read_accuracy(*map(torch.tensor, padded)) == right / len(rows)


def test_only_the_last_label_counts():
    labels = [[NONE, 7, NONE, 8, NONE], [NONE, 7, NONE, NONE, 7]]
    assert last_read_accuracy([[0, 0, 0, 8, 0], [0, 7, 0, 0, 8]], labels) == 0.5
    assert last_read_accuracy([[0, 7, 0, 7, 8], [0, 7, 0, 7, 8]], labels) == 0
    assert last_read_accuracy([[0, 0, 0, 8, 0], [0, 0, 0, 0, 7]], labels) == 1


@pytest.mark.parametrize(
    ("predictions", "labels", "message"),
    [
        ([[1, 2]], [[NONE, NONE]], "predictions and labels .* each with a label other than -100"),
        ([[1], [1, 2], [1]], [[1], [NONE, NONE], [1]], "each with a label other than -100"),
        ([[1, 2]], [[NONE, NONE, 1]], "predictions and labels must have sequences of the same lengths"),
        ([[1, 2], [3]], [[1], [2, 3]], "sequences of the same lengths"),
        ([[1]], [[1], [1]], "sequences of the same lengths"),
        ([[], [1]], [[], [1]], "each with a label"),
        ([], [], "predictions must be N sequences of numbers"),
        ([1, 2], [1, 2], "predictions must be N sequences of numbers"),
        ([[1]], [1], "labels must be N sequences of numbers"),
        (np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), "predictions must be N sequences"),
    ],
)
def test_bad_input(predictions, labels, message):
    with pytest.raises(ValueError, match=message):
        last_read_accuracy(predictions, labels)
