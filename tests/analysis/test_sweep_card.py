"""The card's section on what stopping earlier costs, in a copy of a committed checkpoint's folder."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hf_recurrent.analysis.plots import save_sweep_figures
from hf_recurrent.analysis.tables import SWEEP_FILE, write_tables
from hf_recurrent.cli.sweep import draw
from hf_recurrent.files import changed_files
from hf_recurrent.hub import lint_card, render_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.hub.card_data import SECTION_PLOTS
from hf_recurrent.hub.findings import loses, lowest_harmless
from hf_recurrent.hub.gallery import gallery_problems, refresh
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.hub.sections import with_sweep
from hf_recurrent.hub.staging import is_publishable
from support.card_text import section
from support.checkpoints import GUT_LISTOPS

NAME = GUT_LISTOPS.name
TITLE = "What stopping earlier costs"


def make_row(threshold, accuracy, share, lost=0, gained=0, **more):
    stack = {"calls": round(800 * share), "share": share, "mean_depth": 8 * share}
    bucket = {"value": "1|2", "n": 100, "accuracy": accuracy, "share": share, "mean_depth": 8 * share}
    return {
        "threshold": threshold,
        "accuracy": accuracy,
        "lost": lost,
        "gained": gained,
        "stacks": {"model": stack},
        "seconds": 2 * share,
        "relative_time": share,
        "slices": {"depth": [bucket]},
        **more,
    }


def make_sweep(**changes):
    rows = [make_row(0.3, 0.4, 0.2, 9, 1), make_row(0.6, 0.47, 0.5, 5, 3), make_row(0.999, 0.5, 0.75)]
    picture = {"names": ["2 tokens", "3 tokens"], "steps": [1, 2], "remaining": [[0.5, 0.0], [1.0, 0.25]]}
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
        "pictures": [{"stack": "model", "unit": "example", "examples": [picture]}],
    }
    return table | changes


def show_sweep(folder, tables):
    with changed_files(folder) as change:
        write_tables(change.new, SWEEP_FILE, tables)
        draw(change, tables, save_sweep_figures, with_sweep)


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


def test_the_section_tells_the_sweep(root):
    text = section((root / NAME / "README.md").read_text(), TITLE)
    assert "| full depth | 50.0% | 100.0% | 8.00 | 100.0% |" in text
    assert "| 0.6 | 47.0% | 50.0% | 4.00 | 50.0% |" in text
    assert "| **0.999** | 50.0% | 75.0% | 6.00 | 75.0% |" in text
    assert "| 1\\|2 | 100 | 50.0% | 75.0% | 47.0% | 50.0% |" in text
    assert "(8 steps)" in text
    assert "full depth, 2.00 s: medians of 3 alternating passes (CPU, 1 thread, float32, batches of 64)" in text
    assert (
        "- On `test`, no accuracy is measurably lost down to a threshold of 0.6 (47.0%, and 50.0% at the checkpoint's "
        "own 0.999): it takes 50.0% instead of 75.0% of the block calls of full depth, and 50.0% instead of 75.0% of "
        "its time." in text
    )


def test_it_is_rendered_from_committed_data_and_publishable(root):
    folder = root / NAME
    lint_card(folder)
    assert gallery_problems(root) == []
    rendered = (folder / "README.md").read_text()
    (folder / "README.md").write_text(section(rendered, "Usage"))
    assert refresh(root) == [Path(NAME) / "README.md"]
    assert (folder / "README.md").read_text() == rendered
    # what is drawn alone needs no second place
    assert "pictures" not in read_card(folder).sweep["test"]
    assert "remaining" in (folder / "halting_sweep.json").read_text()


def test_a_second_sweep_takes_the_place_of_the_first(root):
    folder = root / NAME
    other = make_sweep(n=50)
    show_sweep(folder, {"deep": other})
    refresh(root)
    assert gallery_problems(root) == []
    assert [plot.split for plot in read_card(folder).plots if plot.kind in SECTION_PLOTS["sweep"]] == ["deep", "deep"]
    assert not list(folder.glob("assets/test_trade_off.png"))
    assert "On 50 examples of `deep`" in (folder / "README.md").read_text()


def test_without_a_sweep_there_is_no_section():
    card = replace(read_card(GUT_LISTOPS), sweep=None)
    assert TITLE not in render_card(card)
    assert TITLE in render_card(replace(card, sweep={"test": make_sweep()}))


def test_two_stacks_have_columns_each():
    rows = []
    for row in (make_row(None, 0.5, 1.0), make_row(0.999, 0.5, 0.75)):
        stacks = {name: row["stacks"]["model"] for name in ("encoder", "decoder", "both")}
        rows.append({**row, "stacks": stacks, "token_accuracy": 0.9, "loss": 0.25, "written_accuracy": 0.45})
    pair = {"most_steps": {"encoder": 8, "decoder": 4}, "measured": "exact match", "full_depth": rows[0]}
    table = make_sweep(**pair, thresholds=rows[1:])
    card = read_card(GUT_LISTOPS)
    card = type(card).from_dict({**card.to_dict(), "sweep": {"test": table}})
    text = section(render_card(card), TITLE)
    head = "| Threshold | Exact match | Tokens | Loss | Written | Block calls, encoder | Block calls, decoder | "
    assert f"{head}Block calls, both | Mean steps | Time |" in text
    assert "| **0.999** | 50.0% | 90.0% | 0.2500 | 45.0% | 75.0% | 75.0% | 75.0% | 6.00 | 75.0% |" in text
    assert "encoder 8 steps; decoder 4 steps" in text
    widths = [len(re.split(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert widths == [12] * 4 + [6] * 3


@pytest.mark.parametrize(
    ("lost", "gained", "expected"),
    [(0, 0, False), (4, 0, False), (5, 0, True), (12, 5, False), (14, 5, True), (0, 9, False)],
)
def test_a_loss_is_measurable_beyond_two_standard_errors(lost, gained, expected):
    assert loses({"lost": lost, "gained": gained}) == expected


def test_the_lowest_harmless_threshold_has_none_above_it_that_harms():
    rows = [make_row(0.2, 0.5, 0.1), make_row(0.4, 0.3, 0.2, 30, 0), make_row(0.6, 0.5, 0.3), make_row(0.9, 0.5, 0.5)]
    # thresholds above the checkpoint's own are no saving
    rows.append(make_row(0.99, 0.5, 0.9, 30, 0))
    table = make_sweep(thresholds=rows, own_threshold=0.9)
    assert lowest_harmless(table)["threshold"] == 0.6
    table = make_sweep(thresholds=rows[1:2] + rows[3:], own_threshold=0.9)
    assert lowest_harmless(table)["threshold"] == 0.9
    assert phrase("saving", table).startswith(
        "no threshold below the checkpoint's own (0.9) keeps its accuracy of 50.0%"
    )
