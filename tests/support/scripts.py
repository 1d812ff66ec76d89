"""A script of this repository, run in this process as `python SCRIPT ARGUMENTS` runs it in one of its own."""

import os
import runpy
import sys
from unittest import mock


def run_script(script: str | os.PathLike, *arguments: str | os.PathLike) -> str | int | None:
    """Run `script` from its first line to its end -> what it passed to `sys.exit`; None if it did not call it.

    An interpreter prints a text to stderr and has exit status 1.
    """
    with mock.patch.object(sys, "argv", list(map(str, (script, *arguments)))):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as finished:
            return finished.code
    return None
