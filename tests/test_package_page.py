"""README.md as the text of a package page: the links in it lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[[^]]*\]\(([^)]*)\)")


@pytest.fixture(scope="module")
def readme():
    return runpy.run_path(str(ROOT / "setup.py"))["readme"]


def test_links_lead_to_files_of_the_repository(readme):
    text = readme("https://example.org/owner/name/")
    found = LINK.findall((ROOT / "README.md").read_text())
    files = [(figure, target) for figure, target in found if not target.startswith(("http", "#"))]
    assert len(files) > 20
    for figure, target in files:
        assert (ROOT / target.partition("#")[0]).exists(), target
        assert f"](https://example.org/owner/name/{'raw' if figure else 'blob'}/HEAD/{target})" in text
        assert f"]({target})" not in text


def test_without_a_repository_links_to_files_are_text(readme):
    text = readme(None)
    assert all(target.startswith(("https://", "#")) for _, target in LINK.findall(text))
    assert "![" not in text
    assert "do not change a result (guarantees)" in text
