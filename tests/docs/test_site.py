"""The documentation, built strictly, in a real browser, from its files."""

import subprocess
import sys
import time

import pytest
from selenium.webdriver.common.by import By
from written import ROOT

from support.browser import chromium, console_errors, emulate, evaluate

pytestmark = pytest.mark.nightly

# one of each kind: prose, tables, formulas, figures, a card, and what is made at the build
KINDS = (
    "index.html",
    "get_started/quickstart.html",
    "guides/speed.html",
    "compatibility.html",
    "model_cards/index.html",
    "model_cards/ndr-ctl-forward/index.html",
    "reference/command_line.html",
    "reference/configs.html",
    "reference/models/ut.html",
)
LOADED = "performance.getEntriesByType('resource').map((entry) => entry.name)"
BROKEN = "[...document.images].filter((image) => !image.naturalWidth).map((image) => image.src)"
RESULTS = "[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="needs the extra docs: `make docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_and_load_nothing_from_elsewhere(site, browser, kind):
    colours = set()
    for look in ({}, {"dark": True}, {"width": 390, "height": 844}):
        emulate(browser, **look)
        browser.get((site / kind).as_uri())
        assert evaluate(browser, "document.documentElement.scrollWidth <= innerWidth"), look
        assert all(name.startswith(("file:", "data:")) for name in evaluate(browser, LOADED))
        assert evaluate(browser, BROKEN) == []
        assert evaluate(browser, "document.querySelector('h1').textContent")
        colours.add(evaluate(browser, "getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    assert console_errors(browser) == []


def test_search_finds_without_a_server(site, browser):
    emulate(browser)
    browser.get((site / "index.html").as_uri())
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("stick-breaking")
    end = time.monotonic() + 60
    while not (found := evaluate(browser, RESULTS)) and time.monotonic() < end:
        time.sleep(0.2)
    assert any("configs.html" in link or "halting" in link for link in found)


def test_formulas_are_drawn_by_the_browser(site, browser):
    browser.get((site / "guides/speed.html").as_uri())
    assert evaluate(browser, "document.querySelector('math').getBoundingClientRect().height") > 10
