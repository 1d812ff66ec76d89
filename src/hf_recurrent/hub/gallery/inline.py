"""The Markdown that cards use within a line, as HTML."""

import re

from markupsafe import Markup, escape

CODE = re.compile(r"(`[^`\n]+`)")
STRONG = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
EMPHASIS = re.compile(r"\*(\S(?:[^*]*\S)?)\*")


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
