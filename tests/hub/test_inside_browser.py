"""Looking inside in a real browser: stored examples in the gallery's page, and any text in that of `serve`."""

import shutil

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from test_gallery_browser import CONTRAST
from test_live_server import serving

from hf_recurrent.hub.gallery import build_page
from hf_recurrent.hub.inside import read_inside
from hf_recurrent.tasks.checkpoints import load_checkpoint
from support.browser import chromium, console_errors, emulate, evaluate
from support.checkpoints import MODEL_CARDS

pytestmark = pytest.mark.slow

TOKENS, ROWS = "ut-flip-flop-cpu", "ndr-ctl-forward"
STOPPED = "[...document.querySelectorAll('.token')].map((token) => token.classList.contains('stopped'))"
SHADES = (
    "[...document.querySelectorAll('.map g')].map((row) => [...row.children].map((cell) => cell.style.fillOpacity))"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A gallery's page of one checkpoint whose tokens stop one by one."""
    root = tmp_path_factory.mktemp("gallery") / "cards"
    shutil.copytree(MODEL_CARDS / TOKENS, root / TOKENS)
    return build_page(root, root.parent / "page.html").as_uri()


@pytest.fixture
def page(browser, page_file):
    emulate(browser)
    browser.get("about:blank")
    browser.get(f"{page_file}#{TOKENS}")
    yield browser
    assert console_errors(browser) == []


def find(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def rule(page, inside, name):
    """Choose a stopping rule -> what is stored of it."""
    (number,) = [number for number, run in enumerate(inside["runs"]) if run["rule"] == name]
    Select(find(page, ".rule")).select_by_index(number)
    return inside["runs"][number]


def test_tokens_stop_answers_change_and_maps_are_those_that_are_stored(page):
    examples = read_inside(MODEL_CARDS / TOKENS)
    choice = Select(find(page, ".example"))
    assert [option.text for option in choice.options] == [example["text"] for example in examples]
    choice.select_by_index(2)
    inside = examples[2]["inside"]
    slider = find(page, "input.steps")
    for name in ("learned", "confidence"):
        run = rule(page, inside, name)
        own = inside["passes"][run["pass"]]
        while slider.get_attribute("value") != "1":
            slider.send_keys(Keys.ARROW_LEFT)
        for step in range(1, 7):
            assert slider.get_attribute("value") == str(step)
            stopped = [step > taken for taken in run["steps"]]
            assert evaluate(page, STOPPED) == stopped
            said = find(page, ".said").text
            assert f"{stopped.count(False)} of {len(stopped)} tokens alive" in said
            answer, share = run["answer"] if step >= run["steps"][-1] else own["answers"][step - 1]
            assert f"next token: {answer} ({100 * share:.0f}%)" in said
            assert ("settled" in said) == (step >= run["steps"][-1])
            assert "right answer: 0" in said
            shades = evaluate(page, SHADES)
            for place, row in enumerate(shades):
                weights = own["attention"][step - 1][place] if not stopped[place] else []
                weights = [*weights, *[0] * (len(row) - len(weights))]
                assert [round(100 * float(shade)) for shade in row] == weights
            slider.send_keys(Keys.ARROW_RIGHT)
    # where each rule would have stopped for the answer
    for row, step in zip(page.find_elements(By.CSS_SELECTOR, ".answers tbody tr"), range(1, 7), strict=True):
        stops = [run["label"] for run in inside["runs"] if run["steps"][-1] == step]
        ends = "not before: " if step == 6 and stops else ""
        assert row.find_elements(By.TAG_NAME, "td")[2].text == ends + "; ".join(stops)


def test_a_token_shows_what_it_attends_to(page):
    inside = read_inside(MODEL_CARDS / TOKENS)[0]["inside"]
    chips = page.find_elements(By.CSS_SELECTOR, ".token")
    assert [chip.text for chip in chips] == inside["tokens"]
    assert [chip.get_attribute("aria-pressed") for chip in chips] == ["false"] * 4 + ["true"]
    chips[1].send_keys(Keys.ENTER)
    weights = inside["passes"][0]["attention"][0][1]
    best = max(range(len(weights)), key=weights.__getitem__)
    said = find(page, ".read").text
    expected = f"\u201c1\u201d at 1 attends most to \u201c{inside['tokens'][best]}\u201d at {best} ({weights[best]}%)"
    assert said.startswith(expected)
    assert chips[1].get_attribute("aria-pressed") == "true"
    find(page, ".next").click()
    assert find(page, ".count").text == "step 2 of 6"
    find(page, ".back").click()
    assert not find(page, ".back").is_enabled()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it(page, dark):
    emulate(page, width=390, height=844, dark=dark)
    find(page, ".next").click()
    find(page, ".next").click()
    assert True in evaluate(page, STOPPED)
    assert evaluate(page, "document.documentElement.scrollWidth") <= 390
    right = "Math.max(...[...document.querySelectorAll('.inside *')].map((part) => part.getBoundingClientRect().right))"
    assert evaluate(page, f"{right} - document.querySelector('.panel').getBoundingClientRect().right") <= 1
    found = [item for item in evaluate(page, CONTRAST) if item[1] < 4.5]
    assert found == []


@pytest.fixture(scope="module")
def served():
    """The address of a checkpoint's page, served from here."""
    folder = str(MODEL_CARDS / ROWS)
    loaded = load_checkpoint(folder, "cpu")
    with serving(folder, loaded.model, loaded.tokenizer) as server:
        yield server.address


def test_a_typed_text_gets_an_answer_and_a_wrong_one_the_reason(browser, served):
    emulate(browser)
    browser.get(served)
    field, button = find(browser, "textarea"), find(browser, ".ask button")
    # the card's own example is there to begin with
    assert field.get_attribute("value")
    wait = WebDriverWait(browser, 60, poll_frequency=0.2)
    for text, tokens in (("101 e b", 5), ("000 g d b f", 7)):
        field.clear()
        field.send_keys(text)
        button.click()
        wait.until(lambda page, tokens=tokens: len(page.find_elements(By.CSS_SELECTOR, ".token")) == tokens)
    assert find(browser, ".count").text == "step 1 of 16"
    find(browser, "input.steps").send_keys(Keys.END)
    assert "0 of 7 tokens alive" in find(browser, ".said").text
    assert "prediction: 110 (100%), settled" in find(browser, ".said").text
    assert console_errors(browser) == []
    for text, reason in (
        ("101 <img src=x>", "'<' at character 5, is not in the vocabulary"),
        ("e " * 127, "129 tokens"),
    ):
        field.clear()
        field.send_keys(text)
        button.click()
        wait.until(lambda page, reason=reason: reason in find(page, ".problem").text)
        assert browser.find_elements(By.TAG_NAME, "img") == []
    # what the browser itself reports of a refused request
    assert all("400 (Bad Request)" in error for error in console_errors(browser))
    assert evaluate(browser, "document.documentElement.scrollWidth") <= 1280
