"""An extension of griffe: the sessions of docstrings become blocks of code."""

import re

import griffe

# from a prompt to the next empty line
SESSION = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring and "```" not in obj.docstring.value:
            obj.docstring.value = SESSION.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
