"""The browsable page in a real browser, headless, from a file."""

import re

import pytest
from committed_cards import copy_cards
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_gallery import NAME

from hf_recurrent.hub.findings import above_majority
from hf_recurrent.hub.gallery import build_page, read_gallery
from hf_recurrent.utils import write_json
from support.browser import chromium, console_errors, emulate, evaluate, find_programs
from support.results import make_results, make_table

pytestmark = pytest.mark.slow

ROWS = "[...document.querySelectorAll('.checkpoint')].filter((row) => row.checkVisibility())"
NAMES = f"{ROWS}.map((row) => row.id)"
SHOWN = "[...document.querySelectorAll('[data-key]')].filter((head) => head.checkVisibility())"
TITLES = f"{SHOWN}.map((head) => head.innerText)"
OVERFLOW = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.outer'))"
OPEN = f"{ROWS}.filter((row) => row.querySelector('.details').checkVisibility()).map((row) => row.id)"
SORTED = "[...document.querySelectorAll('[aria-sort]')].map((head) => [head.dataset.key, head.ariaSort])"
# relative luminance and contrast of the Web Content Accessibility Guidelines 2, over the nearest opaque background
CONTRAST = """(() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const background = (element) => {
    const colour = parse(getComputedStyle(element).backgroundColor);
    return colour.length > 3 && colour[3] === 0 ? background(element.parentElement) : colour;
  };
  const contrast = (element) => {
    const pair = [parse(getComputedStyle(element).color), background(element)].map(luminance).sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  };
  const text = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.body.querySelectorAll("*")].filter((element) => element.checkVisibility() && text(element))
    .map((element) => [`${element.tagName} ${element.className}`, contrast(element)]);
})()"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The committed checkpoints, and one of a fixed depth and without figures, which answers by chance."""
    folder = copy_cards(tmp_path_factory.mktemp("gallery") / "cards")
    table = make_table(fixed=True) | {"accuracy": 0.4}
    write_json(folder / "fixed" / "results.json", make_results(fixed=True, name="fixed", splits={"test": table}))
    return folder


@pytest.fixture(scope="module")
def address(root):
    return build_page(root, root.parent / "page.html").as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture
def page(browser, address):
    """The page, just opened; whatever a test does, nothing may be reported as an error."""
    emulate(browser)
    browser.get("about:blank")
    browser.get(address)
    yield browser
    assert console_errors(browser) == []


@pytest.mark.parametrize(("value", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_machine_without_a_browser_says_so(monkeypatch, tmp_path, value, outcome):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", value)
    with pytest.raises(outcome, match="needs chromium and chromedriver"):
        find_programs()


def checkpoint(page, name):
    return page.find_element(By.ID, name)


def toggle(page, name):
    checkpoint(page, name).find_element(By.CSS_SELECTOR, ".toggle").click()


def usage(entry):
    """The first program of a card."""
    return entry.files["README.md"].split("```python\n")[1].split("\n```")[0]


def test_it_opens_closed_and_loads_nothing(page, root):
    names = [entry.name for entry in sorted(read_gallery(root), key=lambda entry: entry.rank)]
    assert evaluate(page, NAMES) == names
    assert evaluate(page, SORTED) == []
    assert evaluate(page, OPEN) == []
    resources = evaluate(page, "performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in resources if not name.startswith("data:")] == []
    shown = evaluate(page, "document.getElementById('gallery--count').textContent")
    assert shown == f"{len(names)} of {len(names)} shown"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", lambda entry: entry.name),
        ("accuracy", lambda entry: entry.main_table["accuracy"]),
        # a fixed depth has none and comes before those that shrink
        ("trend", lambda entry: entry.trend["spearman"] if entry.trend else -2),
        # 234,567 comes before 64,139 in the alphabet
        ("parameters", lambda entry: entry.results["model"]["parameters"]),
    ],
)
def test_a_header_sorts_both_ways(page, root, column, value):
    entries = sorted(read_gallery(root), key=lambda entry: entry.rank)
    button = page.find_element(By.CSS_SELECTOR, f"[data-key={column}] button")
    for order, reverse in (("ascending", False), ("descending", True), ("ascending", False)):
        button.click()
        # equal ones stay in the order of their rank
        expected = [entry.name for entry in sorted(entries, key=value, reverse=reverse)]
        assert evaluate(page, NAMES) == expected
        assert evaluate(page, SORTED) == [[column, order]]


def test_an_opened_row_shows_figures_tables_and_usage(page, root):
    (entry,) = (entry for entry in read_gallery(root) if entry.name == NAME)
    toggle(page, NAME)
    assert evaluate(page, OPEN) == [NAME]
    pictures = evaluate(
        page,
        "Promise.all([...document.getElementById($0).querySelectorAll('img')].map((image) => image.decode()"
        ".then(() => [image.naturalWidth, image.width])))",
        NAME,
    )
    assert len(pictures) == len(entry.results["figures"]) > 0
    assert all(natural > 100 and shown > 100 for natural, shown in pictures)
    # folded parts count
    words = evaluate(page, "document.getElementById($0).textContent", NAME)
    assert usage(entry) in words
    for part in (entry.results["notice"], "steps shrink", *entry.results["splits"], *entry.main_table["slices"]):
        assert part in words
    toggle(page, NAME)
    assert evaluate(page, OPEN) == []


def test_an_open_row_stays_open_when_sorted(page):
    toggle(page, NAME)
    page.find_element(By.CSS_SELECTOR, "[data-key=parameters] button").click()
    assert evaluate(page, OPEN) == [NAME]


def test_all_rows_open_and_close(page):
    button = page.find_element(By.ID, "gallery--all")
    button.click()
    assert evaluate(page, OPEN) == evaluate(page, NAMES)
    assert button.text == "Close all"
    button.click()
    assert evaluate(page, OPEN) == []
    assert button.text == "Open all"


def test_the_address_opens_a_row(page, address):
    toggle(page, NAME)
    assert page.current_url == f"{address}#{NAME}"
    toggle(page, NAME)
    assert page.current_url == address
    page.get("about:blank")
    page.get(f"{address}#ut-logical-inference")
    assert evaluate(page, OPEN) == ["ut-logical-inference"]
    top = evaluate(page, "document.getElementById($0).getBoundingClientRect().top", "ut-logical-inference")
    assert 0 <= top < 450
    page.get(f"{address}#{NAME}")
    assert set(evaluate(page, OPEN)) == {NAME, "ut-logical-inference"}
    for strange in ("#absent", "#%E0%A4%A", "#gallery--table"):
        page.get(address + strange)
    assert len(evaluate(page, OPEN)) == 2


def test_the_filter_keeps_rows_with_every_word(page, address):
    field, in_order = page.find_element(By.ID, "gallery--filter"), evaluate(page, NAMES)
    for words, expected in (
        ("GUT", [name for name in in_order if name.startswith("gut-")]),
        ("gut  logical", ["gut-logical-inference"]),
        ("convergence", ["ndr-ctl-forward", "ndr-ctl-backward"]),
        ("nothing like it", []),
    ):
        field.clear()
        field.send_keys(words)
        assert evaluate(page, f"{NAMES}.filter((name) => name !== 'fixed')") == expected
        message = page.find_element(By.ID, "gallery--none")
        assert message.is_displayed() == (not evaluate(page, NAMES))
    page.get(f"{address}#{NAME}")
    assert evaluate(page, OPEN) == [NAME]
    assert field.get_attribute("value") == ""


def test_the_keyboard_is_enough(page):
    focus = "document.activeElement.closest('[data-key], .checkpoint, input, #gallery--all')"
    page.find_element(By.ID, "gallery--filter").click()
    keys = page.switch_to.active_element
    keys.send_keys(Keys.TAB)
    assert evaluate(page, f"{focus}.id") == "gallery--all"
    for _ in range(3):
        page.switch_to.active_element.send_keys(Keys.TAB)
    assert evaluate(page, f"{focus}.dataset.key") == "architecture"
    page.switch_to.active_element.send_keys(Keys.ENTER)
    page.switch_to.active_element.send_keys(Keys.SPACE)
    assert evaluate(page, SORTED) == [["architecture", "descending"]]
    for _ in range(10):
        page.switch_to.active_element.send_keys(Keys.TAB)
    first = evaluate(page, f"{NAMES}[0]")
    assert evaluate(page, f"{focus}.id") == first
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert evaluate(page, OPEN) == [first]
    assert evaluate(page, "document.activeElement.getAttribute('aria-expanded')") == "true"
    outline = evaluate(page, "getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_readable_in_both_schemes(page, dark):
    emulate(page, dark=dark)
    page.find_element(By.ID, "gallery--all").click()
    # away from the button, whose hover has its own colour
    page.find_element(By.TAG_NAME, "h1").click()
    found = evaluate(page, CONTRAST)
    assert len(found) > 100
    assert [item for item in found if item[1] < 4.5] == []
    colour = evaluate(page, "getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3]))
    assert (brightness < 150) if dark else (brightness > 700)


def test_usage_is_copied(page, root):
    (entry,) = (entry for entry in read_gallery(root) if entry.name == NAME)
    toggle(page, NAME)
    blocks = checkpoint(page, NAME).find_elements(By.CSS_SELECTOR, ".code")
    block = next(block for block in blocks if "import hf_recurrent" in block.text)
    for setting, status in (("granted", "Copied"), ("denied", "Selected: press Ctrl+C")):
        for permission in ("clipboard-write", "clipboard-read"):
            request = {"permission": {"name": permission}, "setting": setting}
            page.execute_cdp_cmd("Browser.setPermission", request)
        block.find_element(By.CSS_SELECTOR, ".copy").click()
        shown = "new Promise((done) => setTimeout(done, 100)).then(() => $0)"
        assert evaluate(page, shown, 1) == 1
        assert block.find_element(By.CSS_SELECTOR, ".status").text == status
        if setting == "granted":
            assert evaluate(page, "navigator.clipboard.readText()").rstrip() == usage(entry)
    assert evaluate(page, "getSelection().toString()").rstrip() == usage(entry)


def test_without_script_everything_is_there_to_read(page, address):
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(f"{address}?")
        assert "import hf_recurrent" in checkpoint(page, NAME).text
        assert not page.find_element(By.ID, "gallery--controls").is_displayed()
        assert "need JavaScript" in page.find_element(By.TAG_NAME, "main").text
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_paper_shows_what_is_open_without_controls(page):
    toggle(page, NAME)
    emulate(page, paper=True)
    assert not page.find_element(By.ID, "gallery--controls").is_displayed()
    assert evaluate(page, OPEN) == [NAME]
    assert evaluate(page, "getComputedStyle(document.querySelector('.outer')).overflowX") == "visible"


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_accuracy_and_steps_at_first_sight(page, root, width):
    emulate(page, width=width, height=700)
    assert evaluate(page, TITLES) == ["Checkpoint", "Accuracy", "Mean steps"]
    assert evaluate(page, OVERFLOW) == 0
    for entry in read_gallery(root):
        head = checkpoint(page, entry.name).find_element(By.CSS_SELECTOR, ".summary th")
        assert head.text.split() == [entry.name, *entry.task.split()]
    # the details use all of the width
    toggle(page, NAME)
    panel = checkpoint(page, NAME).find_element(By.CSS_SELECTOR, ".panel")
    assert panel.size["width"] > width - 80


def test_a_wide_page_shows_every_column(page):
    titles = ["Checkpoint", "Architecture", "Halting", "Task", "Accuracy", "Majority class", "Mean steps"]
    titles += ["Steps vs difficulty", "Time saved", "Time vs fixed depth", "Parameters"]
    assert evaluate(page, TITLES) == titles


def test_a_majority_class_that_is_not_exceeded_stands_out(page, root):
    for entry in read_gallery(root):
        cell = checkpoint(page, entry.name).find_element(By.CSS_SELECTOR, ".summary td:nth-child(5)")
        words = cell.text.split(maxsplit=1)
        assert words[1:] == ([] if above_majority(entry.main_table) else ["not above majority"])
    note = page.find_element(By.CSS_SELECTOR, ".summary .caution")
    assert note.value_of_css_property("color") != cell.value_of_css_property("color")


@pytest.mark.parametrize("width", [320, 834, 1024, 1280, 1600])
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
