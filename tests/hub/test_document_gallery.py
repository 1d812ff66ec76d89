"""Checkpoints of long documents among others: checked, staged, in the index and on the page."""

import json
import re
import shutil

import pytest
from committed_cards import copy_cards
from document_run import make_document_run
from test_gallery import NAME, contents, index_rows

from hf_recurrent.hub.gallery import build_page, gallery_problems, read_gallery, refresh, render_index
from hf_recurrent.hub.staging import stage_checkpoint


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
    (entry,) = (entry for entry in read_gallery(root) if entry.of_documents)
    return entry


def test_the_gallery_is_sound_and_stays_as_it_is(root):
    assert gallery_problems(root) == []
    before = contents(root)
    assert refresh(root) == []
    assert contents(root) == before


def test_what_is_published_is_all_that_the_card_shows(root, tmp_path):
    staged = stage_checkpoint(root / "rec", tmp_path / "staged", "org/rec")
    assert (staged / "results.json").is_file()
    assert sorted(path.name for path in (staged / "assets").iterdir()) == [
        "test_loss_position.png",
        "validation_loss_position.png",
    ]


def test_the_index_has_a_table_of_documents(root):
    entry, text = documents_of(root), render_index(read_gallery(root))
    rows = index_rows(text, 1)
    assert [row["Split"] for row in rows] == ["`test`", "`validation`"]
    for row, table in zip(rows, entry.results["splits"].values(), strict=True):
        assert row["Checkpoint"] == "[rec](rec)"
        assert row["Bits"] == f"**{table['bits_per_byte']:.3f}**"
        assert row["Constant prediction"] == f"{table['constant_bits_per_byte']:.3f}"
        assert row["More bits when reset"].startswith(f"{table['carries'][1]['difference']:+.4f} \u00b1 ")
        assert row["Measured in"] == "bits per byte"
    # and the others have theirs without them
    assert {row["Checkpoint"].partition("]")[0] for place in (0, 2) for row in index_rows(text, place)} == {f"[{NAME}"}


def test_an_index_of_documents_alone(root):
    text = render_index([documents_of(root)])
    assert "## Long documents" in text
    assert "Majority class" not in text
    assert "Long documents" not in render_index([entry for entry in read_gallery(root) if entry.name == NAME])


def test_the_page_shows_bits(pristine, page):
    shown = page.split('id="rec"')[1].split("<footer>")[0]
    table = documents_of(pristine).main_table
    assert f'{table["bits_per_byte"]:.3f} <span class="of">bits per byte</span>' in shown
    assert shown.count("<img ") == 2
    assert shown.count("no better than constant") == 1
    assert "no better than constant" not in page.split('id="rec"')[0]


def test_fewer_bits_are_sorted_as_better_and_apart_from_accuracies(pristine, page):
    (found,) = re.findall(r'<td class="number" data-sort="(-[\d.]+)">', page)
    assert float(found) == -documents_of(pristine).main_table["bits_per_byte"]
    assert "of long documents, the fewer the better" in page
    assert json.loads((pristine / "rec" / "results.json").read_text())["metric"] == "bits_per_byte"
