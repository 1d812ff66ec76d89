"""README.md as the text of a package page: the links in it lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^]]*\]\(([^)]*)\)")


@pytest.fixture(scope="module")
def readme():
    return runpy.run_path(str(ROOT / "setup.py"))["readme"]


def test_links_lead_to_files_of_the_repository(readme):
    text = readme("https://example.org/owner/name/")
    files = [
        target for target in LINK.findall((ROOT / "README.md").read_text()) if not target.startswith(("http", "#"))
    ]
    assert len(files) > 20
    for target in files:
        assert (ROOT / target.partition("#")[0]).exists(), target
        assert f"](https://example.org/owner/name/blob/HEAD/{target})" in text
        assert f"]({target})" not in text


def test_without_a_repository_links_to_files_are_text(readme):
    text = readme(None)
    assert all(target.startswith(("https://", "#")) for target in LINK.findall(text))
    assert "docs/promises.md says what is promised" in text


def test_places_in_the_text_are_there(readme):
    text = readme(None)
    headings = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)
    }
    places = [target[1:] for target in LINK.findall(text) if target.startswith("#")]
    assert places
    assert set(places) <= headings
