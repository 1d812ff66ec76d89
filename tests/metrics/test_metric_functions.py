import json

import numpy as np
import pytest

from hf_recurrent.metrics import (
    accuracy,
    majority_accuracy,
    spearman,
    step_summary,
)
from hf_recurrent.metrics.functional import balanced_spearman
from hf_recurrent.utils import plain, write_bytes, write_json


def test_accuracy_and_majority():
    assert accuracy([1, 2, 3, 3], [1, 2, 0, 3]) == 0.75
    assert majority_accuracy([5, 5, 1, 5]) == 0.75


@pytest.mark.parametrize(("predictions", "labels"), [([], []), ([1], [1, 2])])
def test_accuracy_rejects_nothing_and_mismatches(predictions, labels):
    with pytest.raises(ValueError, match="equally long"):
        accuracy(predictions, labels)


def test_step_summary_takes_the_maximum_of_the_deepest_units():
    assert step_summary([1.0, 2.0, 6.0]) == {
        "mean": 3.0,
        "median": 2.0,
        "p95": pytest.approx(5.6),
        "max": 6.0,
    }
    assert step_summary([1.5], deepest=[4])["max"] == 4.0


def test_spearman_against_ranks_by_hand():
    x, y = [10, 20, 30, 40, 50], [1, 4, 9, 16, 2]
    # ranks of y: 1 3 4 5 2; sum of squared rank differences: 0 + 1 + 1 + 1 + 9
    assert spearman(x, y) == pytest.approx(1 - 6 * 12 / (5 * 24))


@pytest.mark.parametrize(("x", "y"), [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2]), ([1, 2], [1, 2]), ([], [])])
def test_spearman_undefined(x, y):
    assert spearman(x, y) is None


def test_plain_leaves_python_scalars_only():
    data = {
        "a": np.float32(0.5),
        1: np.array([1, 2]),
        "n": float("nan"),
        "i": np.float64("inf"),
        "b": np.bool_(1),
        "t": (np.int64(1), None),
    }
    expected = {"a": 0.5, "1": [1, 2], "n": None, "i": None, "b": True, "t": [1, None]}
    assert plain(data) == expected
    assert type(plain(np.float64(0.5))) is float
    with pytest.raises(TypeError, match="object"):
        plain(object())


def test_write_is_atomic(tmp_path):
    path = write_json(tmp_path / "new" / "x.json", {"v": np.float64(1.5)})
    assert json.loads(path.read_text()) == {"v": 1.5}
    with pytest.raises(TypeError):
        write_json(path, {"v": object()})
    with pytest.raises(TypeError):
        write_bytes(path, "text is not bytes")
    assert json.loads(path.read_text()) == {"v": 1.5}
    assert [item.name for item in path.parent.iterdir()] == ["x.json"]


def test_balanced_spearman_is_that_of_as_many_examples_of_each_value():
    rng = np.random.default_rng(0)
    difficulty = np.repeat([1, 2, 5], [4, 4, 4])
    steps = difficulty + rng.integers(0, 3, len(difficulty))
    assert balanced_spearman(steps, difficulty) == pytest.approx(spearman(steps, difficulty))
    # whatever occurs more often
    often = np.concatenate((np.arange(12), np.tile(np.arange(4, 8), 30)))
    assert balanced_spearman(steps[often], difficulty[often]) == pytest.approx(spearman(steps, difficulty))
    assert spearman(steps[often], difficulty[often]) != pytest.approx(spearman(steps, difficulty), abs=0.01)
    assert balanced_spearman([1, 1, 1], [1, 2, 3]) is None
