import numpy as np
import pytest
import torch
from fake_classifier import FakeClassifier, batches_of
from PIL import Image

from hf_recurrent.analysis import plots
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.halting import halting_table

SLICES = {"depth": list(range(40)), "operator": ["MIN", "a|b$"] * 20}
HEAT_MAP = {"rows": ["a", "$x$_" * 9] * 40, "mass": [[0.25, 0.75], [1.0, 0.0]] * 40, "steps": [1, 0] * 40}


@pytest.fixture
def table():
    model = FakeClassifier(torch.rand(40, 5, generator=torch.Generator().manual_seed(0)))
    return halting_table(evaluate_batches(model, batches_of(40, 40), slices=SLICES).record)


@pytest.fixture
def fixed():
    model = FakeClassifier(None, halting=None)
    return halting_table(evaluate_batches(model, batches_of(40, 40), slices=SLICES).record)


def check_picture(path):
    assert path.stat().st_size <= 100_000
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert min(image.size) > 150
        assert "Software" not in image.info
        assert len(np.unique(np.asarray(image.convert("L")))) > 10


@pytest.mark.slow
def test_every_figure_and_its_bytes(table, tmp_path):
    drawn = {}
    for run in ("a", "b"):
        folder = tmp_path / run
        listed = plots.save_figures(folder, table, prefix="test", heat_map=HEAT_MAP)
        for entry in listed:
            check_picture(folder / entry["path"])
        drawn[run] = [(entry["path"], (folder / entry["path"]).read_bytes()) for entry in listed]
    assert drawn["a"] == drawn["b"]
    assert [entry["kind"] for entry in listed] == [
        "steps",
        "mass",
        *["difficulty"] * 2,
        "heat_map",
    ]
    assert listed[2] == {"kind": "difficulty", "path": "assets/test_difficulty_depth.png", "column": "depth"}


def test_fixed_depth_draws_accuracy_only(fixed, tmp_path):
    listed = plots.save_figures(tmp_path, fixed)
    assert {entry["kind"] for entry in listed} == {"difficulty"}
    for entry in listed:
        check_picture(tmp_path / entry["path"])


@pytest.mark.parametrize(("baselines", "drawn"), [((1.0, 1.0), []), ((1.0, 0.5), [[1, 0.5]])])
def test_slices_of_one_label_each_have_no_majority_baseline(baselines, drawn, fixed):
    """A constant answer is right on all examples of a label, which no model can beat."""
    for row, baseline in zip(fixed["slices"]["operator"]["rows"], baselines, strict=True):
        row["majority_baseline"] = baseline
    (axes,) = plots.plot_difficulty(fixed, "operator").axes
    lines = [line for line in axes.get_lines() if line.get_label() == "majority class"]
    assert [[point for point in line.get_xydata().tolist() if not np.isnan(point[1])] for line in lines] == [
        [point] for point in drawn
    ]


def test_titles_are_findings(table):
    steps, slices = table["steps"]["mean"], table["slices"]
    first, last = (slices["depth"]["rows"][place] for place in (0, -1))
    named = [row["accuracy"] for row in slices["operator"]["rows"]]
    mass = table["halting_mass"]
    titles = {
        plots.plot_steps(table): f"Examples stop after {steps:.1f} of 5 steps on average",
        plots.plot_mass(
            table
        ): f"Depth {np.argmax(mass)} has the most weight in the output: {max(mass):.1%} of the halting",
        plots.plot_difficulty(
            table, "depth"
        ): f"By depth: steps {first['steps']['mean']:.2f} → {last['steps']['mean']:.2f}",
        plots.plot_difficulty(table, "operator"): f"accuracy {min(named):.1%} to {max(named):.1%}",
        plots.plot_heat_map(HEAT_MAP): "One example stops after 0 to 1 steps (first 64 of 80)",
    }
    for figure, title in titles.items():
        assert title in figure.axes[0].get_title(loc="left")


def test_a_model_that_never_steps(tmp_path):
    model = FakeClassifier(torch.ones(3, 4))
    table = halting_table(evaluate_batches(model, batches_of(3, 3), slices={"depth": [1, 1, 1]}).record)
    assert table["steps"]["max"] == 0
    listed = plots.save_figures(tmp_path, table)
    # a column with one value compares nothing
    assert [entry["kind"] for entry in listed] == ["steps", "mass"]
    for entry in listed:
        check_picture(tmp_path / entry["path"])
