"""Checkpoints of long documents among others: checked, staged, in the index and on the page."""

import json
import re
import shutil

import pytest
from committed_cards import copy_cards
from document_run import make_document_run
from selenium.webdriver.common.by import By
from test_gallery import NAME, contents, edit_json, index_rows
from test_gallery_layout import OVERFLOW, TITLES

from hf_recurrent.hub.gallery import build_page, gallery_problems, read_gallery, refresh, render_index
from hf_recurrent.hub.gallery.markdown import document_sentences, figures, inline_markdown
from hf_recurrent.hub.staging import stage_checkpoint
from support.browser import chromium, console_errors, emulate, evaluate

SORTED = "document.querySelector('[data-key=accuracy]').ariaSort"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    root = copy_cards(tmp_path_factory.mktemp("documents") / "cards", [NAME])
    folder = make_document_run(root / "rec")
    for code in folder.glob("*.py"):
        code.unlink()
    refresh(root)
    return root


@pytest.fixture
def root(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "cards")


@pytest.fixture(scope="module")
def page(pristine, tmp_path_factory):
    return build_page(pristine, tmp_path_factory.mktemp("page") / "page.html").read_text(encoding="utf-8")


def documents_of(root):
    (entry,) = (entry for entry in read_gallery(root) if entry.card.of_documents)
    return entry


def test_the_gallery_is_sound_and_stays_as_it_is(root):
    assert gallery_problems(root) == []
    before = contents(root)
    assert refresh(root) == []
    assert contents(root) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "rec/recurrence_stats.json is missing: copy it"),
        (
            lambda path: edit_json(path, lambda data: data["splits"]["test"].update(bits_per_byte=0.1)),
            "rec/recurrence_stats.json disagrees with card.json",
        ),
    ],
)
def test_statistics_must_be_those_of_the_card(root, change, words):
    change(root / "rec" / "recurrence_stats.json")
    (problem,) = gallery_problems(root)
    assert problem.startswith(words)


def test_halting_statistics_are_not_needed(root):
    assert not (root / "rec" / "halting_stats.json").exists()
    assert (root / NAME / "halting_stats.json").is_file()


def test_what_is_published_is_all_that_the_card_shows(root, tmp_path):
    staged = stage_checkpoint(root / "rec", tmp_path / "staged", "org/rec")
    assert (staged / "recurrence_stats.json").read_bytes() == (root / "rec" / "recurrence_stats.json").read_bytes()
    assert sorted(path.name for path in (staged / "assets").iterdir()) == [
        *("test_gate_openness.png", "test_loss_position.png"),
        *("validation_gate_openness.png", "validation_loss_position.png"),
    ]


def test_the_index_has_a_table_of_documents(root):
    entry, text = documents_of(root), render_index(read_gallery(root))
    rows = index_rows(text, 1)
    assert [row["Split"] for row in rows] == ["`test`", "`validation`"]
    for row, result in zip(rows, entry.card.results, strict=True):
        assert row["Checkpoint"] == "[rec](rec)"
        assert row["Bits"] == f"**{result.table['bits_per_byte']:.3f}**"
        assert row["Constant prediction"] == f"{result.table['constant_bits_per_byte']:.3f}"
        assert row["More bits when reset"].startswith(f"{result.table['carries'][1]['difference']:+.4f} \u00b1 ")
        assert row["Measured in"] == "bits per byte"
    # and the others have theirs without them
    assert {row["Checkpoint"].partition("]")[0] for place in (0, 2) for row in index_rows(text, place)} == {f"[{NAME}"}


def test_an_index_of_documents_alone(root):
    text = render_index([documents_of(root)])
    assert "## Long documents" in text
    assert "Majority class" not in text
    assert "Long documents" not in render_index([entry for entry in read_gallery(root) if entry.name == NAME])


def test_the_page_shows_bits_sentences_and_figures(pristine, page):
    entry = documents_of(pristine)
    shown = page.split('id="rec"')[1].split("<footer>")[0]
    table = entry.main_table
    assert f'{table["bits_per_byte"]:.3f} <span class="of">bits per byte</span>' in shown
    for result in entry.card.results:
        sentences = document_sentences(entry.readme, result.split)
        # one for each of the two resets and the gates, and a comparison on one split
        assert len(sentences) == 3 + (result.split == "test")
        for sentence in sentences:
            assert str(inline_markdown(sentence)) in shown
        for row in result.table["by_position"]:
            assert f'<td class="number">{row["tokens"]:,}</td>' in shown
    assert [figure.path for figure in figures(entry.readme)] == [plot.path for plot in entry.card.plots]
    assert shown.count("<img ") == shown.split("<h3>What the state is for")[1].count("<img ") == 4
    assert "runs all 2 steps on every window" in shown
    assert "By difficulty" not in shown.split("What the state is for")[1].split("<h3>Usage")[0]
    # in the summary, and in the row of each split
    assert shown.count("no better than constant") == 3
    assert "no better than constant" not in page.split('id="rec"')[0]


def test_fewer_bits_are_sorted_as_better_and_apart_from_accuracies(pristine, page):
    (found,) = re.findall(r'<td class="number" data-sort="(-[\d.]+)">', page)
    assert float(found) == -documents_of(pristine).main_table["bits_per_byte"]
    assert "of long documents, the fewer the better" in page
    assert json.loads((pristine / "rec" / "card.json").read_text())["metric"] == "bits_per_byte"


@pytest.mark.slow
def test_in_a_browser_nothing_is_wider_than_the_page(pristine, page, tmp_path):
    with chromium(tmp_path / "profile") as browser:
        for width, height, columns in ((1280, 800, 10), (390, 844, 3)):
            emulate(browser, width=width, height=height)
            # another address than before, so that it is loaded anew
            (tmp_path / f"{width}.html").write_text(page, encoding="utf-8")
            browser.get((tmp_path / f"{width}.html").as_uri() + "#rec")
            assert len(evaluate(browser, TITLES)) == columns
            assert evaluate(browser, OVERFLOW) == 0
            assert evaluate(browser, "document.documentElement.scrollWidth") <= width
            panel = browser.find_element(By.CSS_SELECTOR, "#rec .panel")
            assert "What the state is for" in panel.text
        # fewer bits than nothing: behind all accuracies, from the best on
        for head in (0, 1):
            browser.execute_script("document.querySelector('[data-key=accuracy] button').click()")
            names = evaluate(browser, "[...document.querySelectorAll('.checkpoint')].map((row) => row.id)")
            assert names.index("rec") == (1 if "descending" in evaluate(browser, SORTED) else 0), head
        assert console_errors(browser) == []
