"""Parts of a rendered card."""

import re

FIGURE = re.compile(r"^!\[(?P<alt>[^\]\n]*)\]\((?P<path>[^)\s]+)\)\n(?:\n\*(?P<caption>.+)\*\n)?", re.MULTILINE)


def section(readme: str, title: str) -> str:
    """The text under the heading `## title`."""
    return readme.split(f"\n## {title}\n")[1].split("\n## ")[0]


def figures(readme: str) -> list[re.Match]:
    """The `alt`, `path` and `caption` of each figure, in order."""
    return list(FIGURE.finditer(readme))
