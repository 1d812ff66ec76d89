"""Output of the commands, and errors as one line."""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

out = Console(soft_wrap=False, highlight=False)
# messages go one to a line, whatever the width of the terminal
err = Console(stderr=True, soft_wrap=True, highlight=False)
FULL_WARNING = warnings.formatwarning
# exit status of a process that was stopped by Ctrl-C
INTERRUPTED = 130


def table(title: str | None, columns: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Any]]) -> Table:
    """A table whose columns are (heading, whether it holds numbers)."""
    drawn = Table(title=title, title_justify="left", title_style="bold")
    for heading, numeric in columns:
        drawn.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        drawn.add_row(*map(str, row))
    return drawn


def show_rows(title: str | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of rows, heading -> cell; all columns but the first hold numbers."""
    rows = list(rows)
    columns = [(heading, place > 0) for place, heading in enumerate(rows[0])] if rows else []
    out.print(table(title, columns, (row.values() for row in rows)))


def wrote(path: Any) -> None:
    """Report a file or folder that was written."""
    out.print(f"wrote {path}", markup=False, soft_wrap=True)


def size(number: int) -> str:
    """A number of bytes in B, kB, MB or GB."""
    if number < 1000:
        return f"{number} B"
    power = min(3, int(math.log(number, 1000)))
    return f"{number / 1000**power:.1f} {' kMG'[power]}B"


def run(command: Callable[[], Any]) -> int:
    """Run a command line -> exit status; a user's mistake is reported in one line, without a traceback."""
    warnings.formatwarning = brief_warning
    try:
        status = command()
    except Exception as error:
        if hasattr(error, "format_message"):
            return misused(error)
        problem = str(error)
        if not isinstance(error, ValueError) or "torch" in sys.modules:
            # slow to import, which would delay the report of a mistyped name
            from ..hub.errors import explanation

            problem = explanation(error)
        if problem is None:
            raise
        err.quiet = False
        err.print(f"error: {problem}", markup=False)
        return 1
    if status == INTERRUPTED:
        err.print("interrupted")
    return status if isinstance(status, int) else 0


def brief_warning(message: Any, category: type[Warning], *place: Any, **line: Any) -> str:
    """A warning that is for the user in one line, without the place in the code that gives it."""
    return f"warning: {message}\n" if category is UserWarning else FULL_WARNING(message, category, *place, **line)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a command that publishes, after a line for each thing that it left on the Hub."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        for leftover in stopped.args:
            err.print(leftover, markup=False)
        raise typer.Exit(INTERRUPTED) from stopped


def misused(error: Any) -> int:
    """Report an error of click, or of the copy of it that typer may have, in one line -> exit status."""
    message, context = " ".join(error.format_message().split()), getattr(error, "ctx", None)
    if hasattr(error.__cause__, "errors"):
        # some of pydantic's messages do not show the value
        message, value = message.replace("Value error, ", "").rstrip("."), repr(error.__cause__.errors()[0]["input"])
        message += "" if value in message else f", not {value}"
    # a group without a command has printed its help
    if message:
        place = "" if context is None else f" (see `{context.command_path} --help`)"
        err.print(f"error: {message}{place}", markup=False)
    return error.exit_code


def quiet_libraries() -> None:
    """Keep bars and reports of loading a few tensors, and of retries, out of the output, and bars out of files."""
    import datasets
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    if not err.is_terminal:
        datasets.disable_progress_bars()
