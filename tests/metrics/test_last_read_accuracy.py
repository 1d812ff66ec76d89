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


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [([[1], [1, 2]], [[1], [NONE, NONE]]), ([[1], [1, 2]], [[1], [NONE, NONE, 1]]), ([[1], []], [[1], []])],
)
def test_bad_input(predictions, labels):
    with pytest.raises(ValueError, match=r"sequence 1 has .*: pass a label for each prediction, and one other than"):
        last_read_accuracy(predictions, labels)
