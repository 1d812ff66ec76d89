"""Parts of a rendered card for other renderings of the same text, and the Markdown within a line as HTML."""

import re
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

FIGURE = re.compile(r"^!\[(?P<alt>[^\]\n]*)\]\((?P<path>[^)\s]+)\)\n(?:\n\*(?P<caption>.+)\*\n)?", re.MULTILINE)
PART = re.compile(rf"{FIGURE.pattern}|^```.*\n(?P<code>(?:.*\n)*?)```\n|(?:^\|.*\n)+|(?:^- .*\n)+|^.+\n", re.MULTILINE)
DEPTH_SECTION = "Does it think longer on harder input?"
STATE_SECTION = "What the state is for"
# others with figures, in the order of the page
DRAWN_SECTIONS = (
    "When it stops",
    STATE_SECTION,
    "How it routes",
    "What it attends to",
    "What stopping earlier costs",
    "What the experts do",
)
CELL_END = re.compile(r"(?<!\\)\|")
CODE = re.compile(r"(`[^`\n]+`)")
STRONG = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
EMPHASIS = re.compile(r"\*(\S(?:[^*]*\S)?)\*")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Figure:
    """A figure of a card; `path` is relative to the card."""

    alt: str
    path: str
    caption: str


@dataclass(frozen=True)
class Table:
    """A table of a card: the cells of its `head` and of its `rows`, and which columns are `numeric`."""

    head: list[str]
    numeric: list[bool]
    rows: list[list[str]]

    @classmethod
    def of(cls, text: str) -> "Table":
        head, rule, *rows = (
            [cell.strip().replace("\\|", "|") for cell in CELL_END.split(line)[1:-1]] for line in text.splitlines()
        )
        return cls(head, [cell.endswith(":") for cell in rule], rows)


def depth_parts(readme: str) -> list[tuple[str, Any]]:
    """The parts of the section on depth and difficulty in order, each with its kind; none without such a section.

    A part is a "figure", "code", a "table", a "list" of lines, a "heading", or "text".
    """
    text = section(readme, DEPTH_SECTION) if has_section(readme, DEPTH_SECTION) else ""
    return [_part(match) for match in PART.finditer(text)]


def _part(match: re.Match) -> tuple[str, Any]:
    text = match[0].strip()
    if match["path"]:
        return "figure", _figure(match)
    if match["code"] is not None:
        return "code", match["code"].rstrip()
    if text.startswith("|"):
        return "table", Table.of(text)
    if text.startswith("- "):
        return "list", [line.removeprefix("- ") for line in text.splitlines()]
    return ("heading", text.removeprefix("### ")) if text.startswith("### ") else ("text", text)


def _figure(match: re.Match) -> Figure:
    return Figure(match["alt"], match["path"], match["caption"] or match["alt"])


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
    """The figures of the sections after the first: on halting, the state, routing and so on, in order."""
    shown = (title for title in DRAWN_SECTIONS if has_section(readme, title))
    return [_figure(match) for match in FIGURE.finditer("".join(section(readme, title) for title in shown))]


def limitations(readme: str) -> list[str]:
    """The limitations that a card tells, in order."""
    return [line.removeprefix("- ") for line in section(readme, "Limitations").splitlines() if line.startswith("- ")]


def halting_sentences(readme: str, split: str) -> list[str]:
    """Sentences of the section on halting about one split: whether steps follow difficulty, and where the mass lies."""
    return _sentences(section(readme, "When it stops"), split)


def document_sentences(readme: str, split: str) -> list[str]:
    """Sentences about one split of documents: comparisons, the effect of the state, how far gates are open."""
    state = section(readme, STATE_SECTION) if has_section(readme, STATE_SECTION) else ""
    return _sentences(section(readme, "Results") + state, split)


def _sentences(text: str, split: str) -> list[str]:
    lines = (line for line in text.splitlines() if line.startswith(f"- On `{split}`, "))
    return [line.removeprefix("- ") for line in lines]


def inline_markdown(text: str) -> Markup:
    """One line of a card as HTML: code, strong and emphasis; everything else, tags included, is text."""
    parts = []
    for part in CODE.split(text):
        if CODE.fullmatch(part):
            parts.append(Markup("<code>%s</code>") % part[1:-1])
            continue
        marked = STRONG.sub(r"<strong>\1</strong>", str(escape(part)))
        parts.append(Markup(EMPHASIS.sub(r"<em>\1</em>", marked)))
    return Markup("").join(parts)
