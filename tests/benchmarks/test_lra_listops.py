"""The config `lra` of ListOps against 20,000 expressions of the authors' generator."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hf_recurrent.benchmarks.listops.benchmark import ListOps

STATS = Path(__file__).parent.parent / "parity" / "long-range-arena" / "listops_stats_20000.json"
ROWS = 1000
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
# errors of both samples, ours and theirs
ERROR = (1 / ROWS + 1 / 20_000) ** 0.5


@pytest.fixture(scope="module")
def rows():
    params = dict(ListOps.info.parameters["lra"]) | {"num_train": ROWS, "num_validation": 0, "num_test": 0}
    return [row for shard in ListOps().plan("lra", params)["train"] for row in shard.examples()]


@pytest.fixture(scope="module")
def stats():
    return json.loads(STATS.read_text())


def root_arguments(text):
    """The arguments of the outermost list."""
    depth, count = 0, 0
    for word in text.split()[1:-1]:
        count += depth == 0 and word != "]"
        depth += (word[0] == "[") - (word == "]")
    return count


def check_share(found, expected, name):
    """A share of the rows; five standard deviations."""
    assert found == pytest.approx(expected, abs=5 * ERROR * max(expected * (1 - expected), 0.002) ** 0.5), name


def check_quantiles(values, known):
    for name, share in QUANTILES.items():
        # whole numbers: as many lie below a quantile as do not lie above it, but for those that are equal
        below, not_above = np.mean(np.array(values) < known[name]), np.mean(np.array(values) <= known[name])
        tolerance = 5 * ERROR * (share * (1 - share)) ** 0.5
        assert below - tolerance <= share <= not_above + tolerance, name
    assert min(values) >= known["min"] - 100
    assert np.mean(values) == pytest.approx(known["mean"], abs=5 * ERROR * np.std(values))


@pytest.mark.slow
def test_lengths_and_sizes(rows, stats):
    lengths = [row["length"] for row in rows]
    assert 501 <= min(lengths) <= max(lengths) <= 1999
    check_quantiles(lengths, stats["length"])
    check_quantiles([row["num_operators"] for row in rows], stats["n_ops"])
    check_quantiles([row["length"] - 2 * row["num_operators"] for row in rows], stats["n_digits"])
    # they count digits as a level
    assert {str(row["depth"] + 1) for row in rows} == set(stats["depth_hist"])
    assert max(row["max_arguments"] for row in rows) == 10


@pytest.mark.slow
def test_labels_and_roots(rows, stats):
    labels = Counter(row["label"] for row in rows)
    for label, count in enumerate(stats["label_hist"]):
        check_share(labels[label] / ROWS, count / stats["n"], f"label {label}")
    roots = Counter(row["text"].split()[0] for row in rows)
    assert sum(roots.values()) == ROWS
    for operator, count in stats["root_op"].items():
        check_share(roots[f"[{operator}"] / ROWS, count / stats["n"], operator)
    check_quantiles([root_arguments(row["text"]) for row in rows], stats["root_args"])
