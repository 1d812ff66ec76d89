"""A hook of mkdocs: formulas as MathML, so that browsers draw them without a script."""

import html
import re

from latex2mathml.converter import convert

# what pymdownx.arithmatex leaves of `$x$` and `$$x$$`
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def on_page_content(content: str, **_) -> str:
    content = INLINE.sub(lambda found: convert(html.unescape(found[1])), content)
    return DISPLAY.sub(
        lambda found: f'<div class="formula">{convert(html.unescape(found[1]), display="block")}</div>', content
    )
