"""The card's section on what stopping earlier costs, in a copy of a committed checkpoint's folder."""

import shutil
from pathlib import Path

import pytest

from hf_recurrent.cli.shared import write_tables
from hf_recurrent.hub import lint_card, read_results
from hf_recurrent.hub.findings import lowest_harmless
from hf_recurrent.hub.gallery import gallery_problems, refresh
from hf_recurrent.hub.results import SWEEP_FILE
from hf_recurrent.hub.staging import is_publishable
from hf_recurrent.utils import changed_files
from support.checkpoints import GUT_LISTOPS

NAME = GUT_LISTOPS.name


def make_row(threshold, accuracy, share, lost=0, gained=0, **more):
    stack = {"calls": round(800 * share), "share": share, "mean_depth": 8 * share}
    return {
        "threshold": threshold,
        "accuracy": accuracy,
        "lost": lost,
        "gained": gained,
        "stacks": {"model": stack},
        "seconds": 2 * share,
        "relative_time": share,
        **more,
    }


def make_sweep(**changes):
    rows = [make_row(0.3, 0.4, 0.2, 9, 1), make_row(0.6, 0.47, 0.5, 5, 3), make_row(0.999, 0.5, 0.75)]
    table = {
        "halting": "global",
        "own_threshold": 0.999,
        "measured": "accuracy",
        "n": 100,
        "most_steps": {"model": 8},
        "repeats": 3,
        "full_depth": make_row(None, 0.5, 1.0),
        "thresholds": rows,
        "batch_size": 64,
        "device": "CPU, 1 thread",
        "dtype": "float32",
        "seed": 0,
    }
    return table | changes


def show_sweep(folder, tables):
    with changed_files(folder) as change:
        write_tables(change, SWEEP_FILE, tables, True, "sweep")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A gallery of one checkpoint that was swept."""
    root = tmp_path_factory.mktemp("gallery")
    for source in GUT_LISTOPS.glob("**/*"):
        path = source.relative_to(GUT_LISTOPS.parent)
        if source.is_file() and source.suffix != ".py" and is_publishable("/".join(path.parts[1:])):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / path)
    folder, tables = root / NAME, {"test": make_sweep()}
    show_sweep(folder, tables)
    refresh(root)
    return root


@pytest.fixture
def root(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "cards")


def test_the_card_tells_the_sweep(root):
    text = (root / NAME / "README.md").read_text()
    assert "<summary>Lower halting thresholds on test</summary>" in text
    assert "on 100 examples down to a threshold of 0.6; the checkpoint's own is 0.999." in text
    assert "| full depth | 50.0% | 100.0% | 8.00 | 100.0% |" in text
    assert "| 0.6 | 47.0% | 50.0% | 4.00 | 50.0% |" in text


def test_it_is_rendered_from_committed_data_and_publishable(root):
    folder = root / NAME
    lint_card(folder)
    assert gallery_problems(root) == []
    rendered = (folder / "README.md").read_text()
    (folder / "README.md").write_text(rendered[:99])
    assert refresh(root) == [Path(NAME) / "README.md"]
    assert (folder / "README.md").read_text() == rendered


def test_a_second_sweep_takes_the_place_of_the_first(root):
    folder = root / NAME
    other = make_sweep(n=50)
    show_sweep(folder, {"deep": other})
    refresh(root)
    assert gallery_problems(root) == []
    shown = [figure["split"] for figure in read_results(folder)["figures"]]
    assert shown.count("deep") == 1
    assert not list(folder.glob("assets/test_trade_off.png"))
    assert "Lower halting thresholds on deep" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("lost", "gained", "expected"),
    [(0, 0, False), (4, 0, False), (5, 0, True), (12, 5, False), (14, 5, True), (0, 9, False)],
)
def test_a_loss_is_measurable_beyond_two_standard_errors(lost, gained, expected):
    rows = [{"threshold": 0.5, "lost": lost, "gained": gained}, {"threshold": 0.9, "lost": 0, "gained": 0}]
    found = lowest_harmless({"own_threshold": 0.9, "thresholds": rows})
    assert found["threshold"] == (0.9 if expected else 0.5)
