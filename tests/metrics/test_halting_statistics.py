import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_recurrent.analysis.halting import HaltingRecord, halting_table
from hf_recurrent.metrics import accuracy, accuracy_by_slice, halting_statistics

LIMIT = 6
UNITS = st.lists(st.integers(0, LIMIT), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(UNITS, st.sampled_from("ab")), min_size=1, max_size=8))
def test_against_loops(examples):
    steps, slices = [row for row, _ in examples], [value for _, value in examples]
    result = halting_statistics(steps, LIMIT, slices=slices)
    assert result["n"] == len(steps)
    assert result["steps"]["mean"] == pytest.approx(statistics.fmean(statistics.fmean(row) for row in steps))
    assert result["steps"]["median"] == pytest.approx(statistics.median(statistics.fmean(row) for row in steps))
    assert result["steps"]["max"] == max(max(row) for row in steps)
    forced = [row.count(LIMIT) / len(row) for row in steps]
    assert result["forced_halt_rate"] == pytest.approx(statistics.fmean(forced))
    everything = [depth for row in steps for depth in row]
    assert result["steps_histogram"] == [everything.count(depth) for depth in range(LIMIT + 1)]
    assert list(result["slices"]) == sorted(set(slices))
    for value, row in result["slices"].items():
        members = [example for example, group in zip(steps, slices, strict=True) if group == value]
        alone = halting_statistics(members, LIMIT)
        assert row == {name: alone[name] for name in ("n", "steps", "forced_halt_rate")}


def test_padding_does_not_count():
    ragged = halting_statistics([[2, 4], [3], [1, 1, 5]], 5)
    padded = halting_statistics(np.array([[2, 4, -1], [-1, 3, -1], [1, 1, 5]]), 5)
    assert padded == ragged


def test_one_unit_for_each_example():
    assert halting_statistics(np.array([1, 4, 4]), 4) == halting_statistics([[1], [4], [4]], 4)
    assert halting_statistics([1, 4, 4], 4)["forced_halt_rate"] == pytest.approx(2 / 3)


def test_an_unknown_limit():
    result = halting_statistics([1, 3], slices=[0, 0])
    assert result["forced_halt_rate"] is None
    assert result["slices"][0]["forced_halt_rate"] is None
    assert result["steps_histogram"] == [0, 1, 0, 1]


def test_nothing_optional():
    result = halting_statistics([1, 2, 3], 4)
    assert (result["ponder_cost"], result["spearman"], result["slices"]) == (None, None, {})


def test_says_the_same_as_halting_stats_json():
    """Raw steps here, a record's per-example summaries there: one set of numbers."""
    rng = np.random.default_rng(0)
    steps = [rng.integers(0, LIMIT + 1, rng.integers(1, 6)) for _ in range(40)]
    depth, cost = rng.integers(1, 5, 40), rng.uniform(0, LIMIT, 40)
    counts = np.stack([np.bincount(row, minlength=LIMIT + 1) for row in steps])
    columns = {
        "label": np.zeros(40, dtype=int),
        "prediction": np.zeros(40, dtype=int),
        "steps": np.array([row.mean() for row in steps]),
        "deepest": np.array([row.max() for row in steps]),
        "ponder_cost": cost,
        "forced": np.array([(row == LIMIT).mean() for row in steps]),
        "mass": counts / counts.sum(axis=1, keepdims=True),
        "step_counts": counts,
    }
    fields = {"halting": "token", "unit": "token", "max_steps": LIMIT, "threshold": 0.999}
    record = HaltingRecord.from_columns(columns, {"depth": depth}, **fields)
    table = halting_table(record)
    result = halting_statistics(steps, LIMIT, difficulty=depth, ponder_cost=cost, slices=depth)
    for name in ("n", "steps", "ponder_cost", "forced_halt_rate", "steps_histogram"):
        assert result[name] == pytest.approx(table[name]), name
    assert result["spearman"] == pytest.approx(table["slices"]["depth"]["spearman"])
    for row in table["slices"]["depth"]["rows"]:
        ours = result["slices"][row["low"]]
        assert ours["steps"] == pytest.approx(row["steps"])
        assert (ours["n"], ours["forced_halt_rate"]) == (row["n"], pytest.approx(row["forced_halt_rate"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": []}, "steps must hold at least one example"),
        ({"steps": [1, -1]}, "steps must be whole numbers of at least 0, got -1"),
        ({"steps": [[1], [-2]]}, "steps must be whole numbers of at least -1, got -2"),
        ({"steps": [1, 2.5]}, "steps must be whole numbers.*got 2.5"),
        ({"steps": [1, 7], "max_steps": 6}, r"0\.\.6 \(max_steps.*got 1\.\.7"),
        ({"steps": [[1], [-1, -1]]}, r"steps\[1\] has no halting unit"),
        ({"steps": [[], [1]]}, r"steps\[0\] has no halting unit"),
        ({"steps": [1, [2]]}, "steps must be N sequences"),
        ({"steps": [0], "max_steps": 0}, "max_steps must be whole numbers of at least 1, got 0"),
        ({"steps": [1], "max_steps": 1.5}, "max_steps must be whole numbers"),
        ({"steps": [1, 2], "difficulty": [1]}, r"difficulty has shape \(1,\), expected \(2,\)"),
        ({"steps": [1, 2], "difficulty": [1, np.nan]}, "difficulty must be finite"),
        ({"steps": [1, 2], "ponder_cost": [1, 2, 3]}, "ponder_cost has shape"),
        ({"steps": [1, 2], "ponder_cost": [1, np.inf]}, "ponder_cost must be finite"),
        ({"steps": [1, 2], "slices": ["a"]}, r"slices have shape \(1,\), but there are 2"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        halting_statistics(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [1, 2], [1, 2]), r"predictions and labels, got shapes \(1,\) and \(2,\)"),
        (([], [], []), "non-empty predictions and labels"),
        (([1, 2], [1, 2], [1]), "slices have shape"),
        (([1, 2], [1, 2], [1.0, np.nan]), "slices must not hold NaN"),
        (([1, 2], [1, 2], ["a", None]), "all numbers or all strings"),
    ],
)
def test_accuracy_by_slice_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        accuracy_by_slice(*arguments)


def test_accuracy_of_strings_is_exact_match():
    assert accuracy(["ab", "a", "c"], ["ab", "ab", "C"]) == pytest.approx(1 / 3)
