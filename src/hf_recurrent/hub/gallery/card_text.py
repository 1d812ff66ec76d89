"""Parts of a rendered card, so that other renderings say the same words."""

import re
from dataclasses import dataclass

FIGURE = re.compile(r"^!\[(?P<alt>[^\]\n]*)\]\((?P<path>[^)\s]+)\)\n(?:\n\*(?P<caption>.+)\*\n)?", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Figure:
    """A figure of a card; `path` is relative to the card."""

    alt: str
    path: str
    caption: str


def section(readme: str, title: str) -> str:
    """The text under the heading `## title`, without the heading.

    Raises:
        ValueError: the card has no such heading.
    """
    found, lines, fenced = False, [], False
    for line in readme.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            if found:
                break
            found = line.rstrip() == f"## {title}"
        elif found:
            lines.append(line)
    if not found:
        raise ValueError(f"the card has no section '{title}'")
    return "".join(lines)


def has_section(readme: str, title: str) -> bool:
    """Whether the card has the heading `## title`."""
    try:
        section(readme, title)
    except ValueError:
        return False
    return True


def snippet(readme: str) -> str:
    """The first Python code of the section on usage: a complete program."""
    found = PYTHON.search(section(readme, "Usage"))
    if found is None:
        raise ValueError("the card's section 'Usage' has no Python code")
    return found.group(1).rstrip()


def figures(readme: str) -> list[Figure]:
    """The figures of the section on halting and, where there is one, of that on routing, in order."""
    text = section(readme, "When it stops")
    if has_section(readme, "How it routes"):
        text += section(readme, "How it routes")
    found = FIGURE.finditer(text)
    return [Figure(match["alt"], match["path"], match["caption"] or match["alt"]) for match in found]


def halting_sentences(readme: str, split: str) -> list[str]:
    """What the section on halting says of one split: whether steps follow difficulty, and where the mass lies."""
    start = f"- On `{split}`, "
    lines = section(readme, "When it stops").splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith(start)]
