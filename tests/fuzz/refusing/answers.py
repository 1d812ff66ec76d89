"""Answers of commands and training scripts to command lines, run in this process, and what they leave on the disk."""

import contextlib
import io
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from fuzz.refusing.verdict import Case, command_verdict
from hf_recurrent.cli.app import app
from hf_recurrent.cli.console import run
from hf_recurrent.training.run import as_command, run_and_print

ERROR = "error: "


class Answer(NamedTuple):
    """`shown` is the error or the traceback, `left` are the files and folders that were made, changed or removed."""

    code: int
    shown: str
    left: list[str]


def answer(call: Callable[[], int | str | None], watched: Path) -> Answer:
    """The answer of a call that returns or exits with a status, or with a text as a script does."""
    before, shown = contents(watched), io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = call()
        except SystemExit as finished:
            code = finished.code
        except Exception:
            shown.write(traceback.format_exc())
            code = 1
    text = code if isinstance(code, str) else shown.getvalue()
    after = contents(watched)
    left = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    status = 1 if isinstance(code, str) else code or 0
    return Answer(status, text[text.find(ERROR) if ERROR in text and "Traceback" not in text else 0 :], left)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of each file in a folder; folders have neither."""
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return {str(path): (0, 0) if path.is_dir() else (stat.st_size, stat.st_mtime_ns) for path, stat in found}


def command_answer(words: Sequence[str], watched: Path) -> Answer:
    """The answer of `hf-recurrent WORDS`."""
    return answer(lambda: run(lambda: app([str(word) for word in words], standalone_mode=False)), watched)


def script_answer(script: str, words: Sequence[str], watched: Path) -> Answer:
    """The answer of a training script, such as `training/run_clm.py`."""

    def call() -> None:
        with mock.patch.object(sys, "argv", [script, *map(str, words)]):
            as_command(lambda argv: run_and_print(argv, script))

    return answer(call, watched)


def judged(subject: str, name: str, value: object, given: Answer, spelled: Iterable[str] = ()) -> Case:
    """The case of a malformed thing; an answer that leaves something behind is not clear."""
    verdict = command_verdict(given.code, given.shown, name, value, spelled)
    if verdict == "clear" and given.left:
        return Case(subject, name, value, "half", f"left {given.left}")
    return Case(subject, name, value, verdict, given.shown)
