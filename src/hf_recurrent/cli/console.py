"""Output of the commands, and errors as one line."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console(soft_wrap=False, highlight=False)
# messages go one to a line, whatever the width of the terminal
err = Console(stderr=True, soft_wrap=True, highlight=False)
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
    try:
        status = command()
    except SystemExit as finished:
        if finished.code == INTERRUPTED:
            err.print("interrupted")
        raise
    except Exception as error:
        problem = explanation(error)
        if problem is None:
            raise
        err.print(f"error: {problem}", markup=False)
        return 1
    return status if isinstance(status, int) else 0


def explanation(error: Exception) -> str | None:
    """One line for an error that the user can correct; None for a defect of this package."""
    # imported only where something failed: `--help` needs to be quick
    from huggingface_hub.errors import HTTPError, StrictDataclassError

    from ..hub.errors import PublishError

    if isinstance(error, HTTPError | ConnectionError):
        return f"the Hub cannot be reached or refuses: {' '.join(str(error).split())}"
    if isinstance(error, StrictDataclassError):
        return " ".join(str(error).split())
    if isinstance(error, ValueError | OSError | PublishError):
        return str(error)
    return None


def quiet_libraries() -> None:
    """Keep progress bars and reports of loading a handful of tensors, and of retries, out of the output."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
