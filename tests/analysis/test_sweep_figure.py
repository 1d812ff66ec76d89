"""The figure of a sweep."""

import pytest
from PIL import Image
from sweep_models import make_pairs, make_translator

from hf_recurrent.analysis import plots
from hf_recurrent.analysis.sweep import sweep_thresholds

pytestmark = pytest.mark.slow  # draws or renders


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    table = sweep_thresholds(make_translator(), make_pairs(), (0.3, 0.7), repeats=1)
    folder = tmp_path_factory.mktemp("drawn")
    return folder, table, plots.save_figures(folder, table, prefix="a/test")


def test_figures_are_listed_and_lie_where_they_should(drawn):
    folder, _, listed = drawn
    assert listed == [
        {"kind": "trade_off", "path": "assets/a_test_trade_off.png", "column": None},
    ]
    for item in listed:
        with Image.open(folder / item["path"]) as image:
            assert image.format == "PNG"


def test_the_trade_off_shows_each_threshold(drawn):
    _, table, _ = drawn
    rows = [*table["thresholds"], table["full_depth"]]
    accuracy, work, time = plots.plot_thresholds(rows, "exact match").axes
    fast = min(rows[:-1], key=lambda row: row["relative_time"])
    points = 100 * (fast["accuracy"] - rows[-1]["accuracy"])
    title = accuracy.get_title(loc="left")
    assert title.startswith(f"Threshold {fast['threshold']:g}: {fast['relative_time']:.1%} of the time, ")
    assert title.endswith(f"exact match {points:+.1f} points")
    lines = {line.get_label(): line.get_ydata().tolist() for line in work.get_lines()}
    for stack in ("encoder", "decoder", "both"):
        assert lines[stack] == [row["stacks"][stack]["share"] for row in rows]
    for axes, key in ((accuracy, "accuracy"), (time, "relative_time")):
        assert axes.get_lines()[0].get_ydata().tolist() == [row[key] for row in rows]
    names = [label.get_text() for label in time.get_xticklabels()]
    assert names == [*(f"{row['threshold']:g}" for row in table["thresholds"]), "full depth"]
