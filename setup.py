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
# a link of Markdown that is neither a web address nor a place in the same text
RELATIVE_LINK = re.compile(r"\[([^]]*)\]\((?!https?://|#)([^)]*)\)")


def readme(repository: str | None) -> str:
    """README.md with links that work outside of the repository."""
    link = r"\1" if repository is None else rf"[\1]({repository.rstrip('/')}/blob/HEAD/\2)"
    return RELATIVE_LINK.sub(link, (ROOT / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = readme(project.get("urls", {}).get("Repository"))
    setup(long_description=text, long_description_content_type="text/markdown")
