"""Cards as HTML: their Markdown with the figures in it, and no other HTML than that of folded parts."""

import base64
import re
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from ...utils import FRONT_MATTER

FOLD = re.compile(r"</details>|<details(?: open)?><summary>(?:<code>[^<>]*</code>)?[^<>]*</summary>")


def folds_alone(renderer: Any, tokens: Any, index: int, *_: Any) -> str:
    """HTML in a card: folded parts as they are, and everything else as text."""
    content = tokens[index].content
    return content if FOLD.fullmatch(content.strip()) else str(escape(content))


PARSER = MarkdownIt("commonmark").enable("table")
PARSER.add_render_rule("html_block", folds_alone)
PARSER.add_render_rule("html_inline", folds_alone)
PARSER.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0">\n<table>\n')
PARSER.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")


def card_html(folder: Path, readme: str) -> Markup:
    """The text of the card in a folder, one level of headings below the page's.

    Raises:
        OSError: a figure is missing.
    """
    tokens = PARSER.parse(FRONT_MATTER.sub("", readme))
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{int(token.tag[1]) + 1}"
        elif token.attrs.pop("style", "") == "text-align:right":
            token.attrs["class"] = "number"
        for part in token.children or ():
            if part.type == "image":
                part.attrs |= image(folder / str(part.attrs["src"]))
    return Markup(PARSER.renderer.render(tokens, PARSER.options, {}))


def inline_html(text: str) -> Markup:
    """One line of a card as HTML."""
    return Markup(PARSER.renderInline(text))


def image(file: Path) -> dict[str, str | int]:
    """The attributes of an element that holds a PNG file."""
    content = file.read_bytes()
    width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
    return {"src": f"data:image/png;base64,{base64.b64encode(content).decode()}", "width": width, "height": height}
