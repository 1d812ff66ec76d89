import numpy as np
import pytest

from hf_recurrent.analysis.tables import bucketize, is_numeric, slice_frame


def test_few_values_are_their_own_buckets():
    buckets = bucketize(np.array([3, 1, 3]))
    assert buckets.categories.tolist() == ["1", "3"]
    assert buckets.codes.tolist() == [1, 0, 1]


def test_many_values_become_readable_quantiles():
    buckets = bucketize(np.arange(1, 81))
    assert buckets.categories.tolist() == ["1–10", "11–20", "21–30", "31–40", "41–50", "51–60", "61–70", "71–80"]  # noqa: RUF001
    assert np.bincount(buckets.codes).tolist() == [10] * 8


def test_ties_stay_together_and_no_bucket_is_empty():
    values = np.array([5] * 1000 + list(range(6, 26)))
    buckets = bucketize(values)
    assert set(buckets.codes[values == 5]) == {0}
    assert (np.bincount(buckets.codes, minlength=len(buckets.categories)) > 0).all()
    assert len(buckets.categories) <= 8


def test_order_and_labels_on_random_columns():
    generator = np.random.default_rng(0)
    for scale in (1e-6, 1.0, 1e6):
        values = generator.normal(size=200) * scale
        buckets = bucketize(values)
        assert len(set(buckets.categories)) == 8
        tops = [values[buckets.codes == i].max() for i in range(8)]
        bottoms = [values[buckets.codes == i].min() for i in range(8)]
        assert all(top < bottom for top, bottom in zip(tops[:-1], bottoms[1:], strict=True))


def test_large_floats_are_written_out():
    assert bucketize(np.array([1234.5, 20000.25])).categories.tolist() == ["1234", "20000"]


def test_close_floats_get_different_labels():
    values = 1 + np.arange(40) * 1e-9
    labels = bucketize(values).categories
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("values", [[4] * 50, [4], [0.5]])
def test_constant_columns(values):
    buckets = bucketize(np.array(values))
    assert len(buckets.categories) == 1
    assert set(buckets.codes) == {0}


def test_strings_and_truth_values_are_not_numeric():
    assert bucketize(np.array(["MIN", "MAX", "MIN"])).categories.tolist() == ["MAX", "MIN"]
    assert bucketize(np.array([True, False])).categories.tolist() == ["False", "True"]
    assert not is_numeric(np.array([True, False]))
    assert not is_numeric(np.array(["1", "2"]))
    assert is_numeric(np.array([1, 2]))


def test_missing_names_are_a_bucket():
    column = slice_frame({"operator": ["MIN", None, "MIN"]}, 3)["operator"]
    assert bucketize(column).codes.tolist() == [0, 1, 0]
    assert bucketize(column).categories.tolist() == ["MIN", "None"]


def test_a_value_called_other_is_in_the_bucket_of_the_others():
    buckets = bucketize(np.array(["other"] * 5 + [f"w{i:02}" for i in range(20)]))
    assert len(buckets.categories) == 11
    assert (buckets == "other").sum() == 5 + 10


def test_many_strings_keep_the_most_frequent():
    values = np.array([f"w{i}" for i in range(20)] + ["w19"] * 5)
    buckets = bucketize(values)
    assert len(buckets.categories) == 12
    assert buckets.categories[-1] == "other"
    assert (buckets[values == "w19"] == "w19").all()


def test_missing_numbers_are_an_error():
    with pytest.raises(ValueError, match="finite"):
        bucketize(np.array([1.0, np.nan]))
