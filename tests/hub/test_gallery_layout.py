"""What of the browsable page is in view at which width, in a real browser."""

import pytest
from card_factory import make_card, make_table
from committed_cards import copy_cards
from selenium.webdriver.common.by import By
from test_gallery import NAME
from test_gallery_browser import checkpoint, toggle

from hf_recurrent.files import write_json
from hf_recurrent.hub.card import SplitResult
from hf_recurrent.hub.findings import above_majority
from hf_recurrent.hub.gallery import build_page, read_gallery
from support.browser import chromium, console_errors, emulate, evaluate

pytestmark = pytest.mark.slow

SHOWN = "[...document.querySelectorAll('[data-key]')].filter((head) => head.checkVisibility())"
TITLES = f"{SHOWN}.map((head) => head.innerText)"
# left, top, right and bottom of what is drawn as accuracy and as mean steps in the first row
BOXES = """[4, 6].map((column) => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector(".checkpoint").rows[0].cells[column]);
  const {left, top, right, bottom} = range.getBoundingClientRect();
  return [left, top, right, bottom];
})"""
OVERFLOW = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.outer'))"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The committed checkpoints, and one that answers by chance."""
    folder = copy_cards(tmp_path_factory.mktemp("gallery") / "cards")
    results = [SplitResult("test", make_table() | {"accuracy": 0.4})]
    write_json(folder / "chance" / "card.json", make_card(repo_id="chance", results=results).to_dict())
    return folder


@pytest.fixture(scope="module")
def browser(root, tmp_path_factory):
    build_page(root, root.parent / "page.html")
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture
def page(browser, root):
    """The page, just opened as wide as a desktop shows it."""
    emulate(browser)
    browser.get("about:blank")
    browser.get((root.parent / "page.html").as_uri())
    yield browser
    assert console_errors(browser) == []


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (768, 1024)])
def test_a_phone_shows_accuracy_and_steps_at_first_sight(page, root, width, height):
    emulate(page, width=width, height=height)
    assert evaluate(page, TITLES) == ["Checkpoint", "Accuracy", "Mean steps"]
    boxes = evaluate(page, BOXES)
    assert boxes
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    assert evaluate(page, OVERFLOW) == 0
    for entry in read_gallery(root):
        head = checkpoint(page, entry.name).find_element(By.CSS_SELECTOR, ".summary th")
        assert head.text.split() == [entry.name, *entry.task.split()]
    # what the table leaves out is among the details, and those use all of the width
    toggle(page, NAME)
    panel = checkpoint(page, NAME).find_element(By.CSS_SELECTOR, ".panel")
    assert panel.size["width"] > width - 80
    for part in ("GUT, 64,139 parameters", "global halting, at most 8 steps", "listops, original", "12.9%"):
        assert part in panel.text
    assert evaluate(page, "document.documentElement.scrollWidth") <= width


def test_a_wide_page_shows_every_column_without_scrolling(page):
    titles = ["Checkpoint", "Architecture", "Halting", "Task", "Accuracy", "Majority class", "Mean steps"]
    titles += ["Steps vs difficulty", "Time saved", "Parameters"]
    assert evaluate(page, TITLES) == titles
    assert evaluate(page, OVERFLOW) == 0
    # the task has its own column and is not repeated
    assert checkpoint(page, NAME).find_element(By.CSS_SELECTOR, ".summary").text.count("listops\n") == 1


def test_a_majority_class_that_is_not_exceeded_stands_out(page, root):
    for entry in read_gallery(root):
        cell = checkpoint(page, entry.name).find_element(By.CSS_SELECTOR, ".summary td:nth-child(5)")
        words = cell.text.split(maxsplit=1)
        assert words[1:] == ([] if above_majority(entry.main_table) else ["not above majority"])
    note = page.find_element(By.CSS_SELECTOR, ".summary .caution")
    assert note.value_of_css_property("color") != cell.value_of_css_property("color")


@pytest.mark.parametrize(("width", "columns"), [(1280, 3), (900, 2), (390, 1)])
def test_figures_are_read_from_left_to_right(page, width, columns):
    emulate(page, width=width)
    toggle(page, NAME)
    places = evaluate(
        page,
        "[...document.getElementById($0).querySelectorAll('figure:not(:only-child)')]"
        ".map((figure) => figure.getBoundingClientRect()).map(({left, top, height}) => [left, top, height])",
        NAME,
    )
    # the figure of steps by difficulty stands alone, above
    assert len(places) == 6
    rows = [places[start : start + columns] for start in range(0, len(places), columns)]
    for row in rows:
        # one line, of figures as high as each other
        assert len({(top, height) for _, top, height in row}) == 1
        assert [left for left, _, _ in row] == sorted({left for left, _, _ in row})
    bottoms = [row[0][1] + row[0][2] for row in rows]
    assert all(0 < below[0][1] - bottom < 30 for bottom, below in zip(bottoms, rows[1:], strict=False))


@pytest.mark.parametrize("width", [320, 390, 700, 834, 900, 1024, 1265, 1280, 1600])
def test_the_table_fits_every_window(page, width):
    emulate(page, width=width)
    assert evaluate(page, OVERFLOW) <= 0
    assert evaluate(page, "document.documentElement.scrollWidth") <= width
    # nor do details make it wider
    page.find_element(By.ID, "gallery--all").click()
    assert evaluate(page, OVERFLOW) <= 0
    assert evaluate(page, "document.documentElement.scrollWidth") <= width
    right = "Math.max(...[...document.querySelectorAll('.panel')].map((panel) => panel.getBoundingClientRect().right))"
    assert width / 2 < evaluate(page, right) <= width
