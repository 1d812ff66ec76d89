"""README.md as the text of a package page, where its links to files of the repository would lead nowhere.

They lead to the files at the address that `project.urls` gives as `Repository`; without one they are plain text.
"""

import re
import sys
from pathlib import Path

from setuptools import setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent
# a link or a figure of Markdown that is neither at a web address nor a place in the same text
RELATIVE_LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?://|#)([^)]*)\)")


def readme(repository: str | None) -> str:
    """README.md with links and figures that work outside of the repository; without one, figures are left out."""

    def elsewhere(found: re.Match) -> str:
        is_figure, text, target = found.groups()
        if repository is None:
            return "" if is_figure else text
        return f"{is_figure}[{text}]({repository.rstrip('/')}/{'raw' if is_figure else 'blob'}/HEAD/{target})"

    return RELATIVE_LINK.sub(elsewhere, (ROOT / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = readme(project.get("urls", {}).get("Repository"))
    setup(long_description=text, long_description_content_type="text/markdown")
