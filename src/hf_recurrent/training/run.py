"""Runs by their command lines: from a recipe or flags to the task, and to the messages for the user."""

import dataclasses
import sys
import warnings
from collections.abc import Callable, Sequence
from signal import SIGINT

from ..data.arguments import CHOOSING, DEFAULT_BENCHMARK
from ..hub.errors import explanation
from ..tasks import TASKS, get_task, task_of_benchmark
from ..utils import require_known
from .documents import DocumentRun
from .recipes import raw_settings
from .stages import Run, argument_types


def chosen_task(argv: Sequence[str], task: str | None = None) -> str:
    """The task of a command line: the one that it names, that of its benchmark, or of the flags of your own data.

    Args:
        task: of the script that was called; None of a command for any task.

    Raises:
        ValueError: there is no such task, or it is another one than the script's.
    """
    settings = raw_settings(argv)
    named, benchmark = settings.get("task"), settings.get("benchmark")
    if named is not None:
        require_known("task", named, TASKS)
        if task not in (None, named):
            raise ValueError(f"task is {named!r}, but {get_task(task).script} is for {task}: leave it out")
    task = named or task
    if any(settings.get(name) is not None for name in CHOOSING):
        return task or next((tag for tag in TASKS if settings.keys() <= settings_of(tag)), next(iter(TASKS)))
    if benchmark is None and task is not None:
        return task
    found = task_of_benchmark(benchmark or DEFAULT_BENCHMARK)
    if task not in (None, found):
        kind = get_task(found)
        warnings.warn(
            f"benchmark {benchmark!r} {kind.data_kind}: running {kind.script} instead of {get_task(task).script}",
            stacklevel=2,
        )
    return found


def settings_of(tag: str) -> set[str]:
    """The names of a task's settings, with their aliases."""
    fields = [field for kind in argument_types(tag) for field in dataclasses.fields(kind)]
    aliases = {alias.lstrip("-") for field in fields for alias in field.metadata.get("aliases", ())}
    return {field.name for field in fields} | aliases


def run(argv: Sequence[str], task: str | None = None) -> str | None:
    """Train on a recipe's data, evaluate and, with `push_to_hub`, publish; or resume an earlier call's run.

    Args:
        argv: `[RECIPE] [--flag value ...]`.
        task: of the script that was called; that of another task gives way to the benchmark's own, with a warning.

    Returns:
        Messages for the user; None on every process but the main one.

    Raises:
        FileNotFoundError, ValueError: the recipe, a flag, the data or the folder is wrong.
        DivergedError: a loss or weight is no longer a finite number.
        OSError: the Hub cannot be reached or refuses.
    """
    tag = chosen_task(argv, task)
    return (DocumentRun if tag == "long-documents" else Run)(argv, tag).execute()


def run_and_print(argv: Sequence[str], task: str | None = None) -> None:
    """`run`, its messages written to standard output."""
    messages = run(argv, task)
    if messages is not None:
        sys.stdout.write(f"{messages}\n")


def as_command(main: Callable[[list[str]], None]) -> None:
    """Call `main` with the command line; errors of recipes, data and publishing, and Ctrl-C, end it in one line."""
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt as stopped:
        # what a publication left on the Hub comes first
        sys.stderr.write("\n".join([*map(str, stopped.args), "interrupted", ""]))
        sys.exit(128 + SIGINT)
    except Exception as error:
        problem = explanation(error)
        if problem is None:
            raise
        sys.exit(f"error: {problem}")
