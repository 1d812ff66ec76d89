"""Buckets of difficulty columns."""

import itertools

import numpy as np
import pytest

from hf_recurrent.analysis.halting import bucketize, is_numeric, slice_frame

RANGES = ["1–10", "11–20", "21–30", "31–40", "41–50", "51–60", "61–70", "71–80"]  # noqa: RUF001
WORDS = [f"w{i:02}" for i in range(20)]


@pytest.mark.parametrize(
    ("values", "labels", "codes"),
    [
        ([3, 1, 3], ["1", "3"], [1, 0, 1]),
        (range(1, 81), RANGES, np.repeat(range(8), 10)),
        # large floats are written out
        ([1234.5, 20000.25], ["1234", "20000"], [0, 1]),
        ([4] * 50, ["4"], [0] * 50),
        ([0.5], ["0.5"], [0]),
        (["MIN", "MAX", "MIN"], ["MAX", "MIN"], [1, 0, 1]),
        ([True, False], ["False", "True"], [1, 0]),
        # the most frequent names, and the others
        (WORDS + ["w19"] * 5, [*WORDS[:10], "w19", "other"], [*range(10), *[11] * 9, *[10] * 6]),
        # a value called "other" is in the bucket of the others
        (["other"] * 5 + WORDS, [*WORDS[:10], "other"], [*[10] * 5, *range(10), *[10] * 10]),
    ],
)
def test_buckets_are_readable_and_in_order(values, labels, codes):
    buckets = bucketize(np.array(values))
    assert buckets.categories.tolist() == labels
    assert buckets.codes.tolist() == list(codes)


def test_ties_stay_together_and_no_bucket_is_empty():
    values = np.array([5] * 1000 + list(range(6, 26)))
    buckets = bucketize(values)
    assert set(buckets.codes[values == 5]) == {0}
    assert (np.bincount(buckets.codes, minlength=len(buckets.categories)) > 0).all()
    assert len(buckets.categories) <= 8


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_order_and_labels_on_random_columns(scale):
    values = np.random.default_rng(0).normal(size=200) * scale
    buckets = bucketize(values)
    assert len(set(buckets.categories)) == 8
    groups = [values[buckets.codes == number] for number in range(8)]
    assert all(low.max() < high.min() for low, high in itertools.pairwise(groups))


def test_close_floats_get_different_labels():
    labels = bucketize(1 + np.arange(40) * 1e-9).categories
    assert len(set(labels)) == len(labels)


def test_missing_names_are_a_bucket_and_missing_numbers_an_error():
    column = slice_frame({"operator": ["MIN", None, "MIN"]}, 3)["operator"]
    assert bucketize(column).categories.tolist() == ["MIN", "None"]
    assert bucketize(column).codes.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="finite"):
        bucketize(np.array([1.0, np.nan]))


def test_strings_and_truth_values_are_not_numeric():
    assert [is_numeric(np.array(values)) for values in ([1, 2], [0.5], ["1"], [True])] == [True, True, False, False]
