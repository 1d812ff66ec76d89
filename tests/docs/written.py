"""README and the pages under docs/: their blocks, prose and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]

# the reason why a block is not run, above it, or for all blocks of a page
REASON = r"<!-- not run: (?P<reason>[^\n]+) -->\n"
FENCE = re.compile(
    rf"^(?P<indent> *)(?:{REASON}(?P=indent))?```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
WHOLE_PAGE = re.compile(r"<!-- blocks not run: ([^\n]+) -->")
LINK = re.compile(r"(?<=\]\()(?!\w+:)[^)\s]+")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass
class Block:
    """A block of code: the page's line that it begins in, and why it is not run, if it is not."""

    line: int
    language: str
    code: str
    reason: str | None


def blocks(text: str) -> Iterator[Block]:
    whole = WHOLE_PAGE.search(text)
    for found in FENCE.finditer(text):
        indent = len(found["indent"])
        code = "".join(line[indent:] for line in found["code"].splitlines(keepends=True))
        reason = found["reason"] or (whole and whole[1])
        yield Block(text.count("\n", 0, found.start()) + 1, found["language"].strip(), code, reason)


def links(text: str) -> list[str]:
    """Targets of links and figures to files and places, not to other sites."""
    return LINK.findall(FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Places in a page that links may name: its headings, as GitHub and the site call them."""
    titles = [re.sub(r"\]\([^)]*\)|[\[`*]", "", title) for title in HEADING.findall(FENCE.sub("", text))]
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}
