"""What a door is: a way in, and what it is declared to do for each architecture."""

import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import torch
from transformers.utils import logging

WORKS = "✓"
OURS = "hf_recurrent"
EXTRA = "hf-recurrent[ecosystem,export]"


@dataclass(frozen=True)
class Refusal:
    """An error that says what cannot be.

    Attributes:
        message: a pattern of it; of a tool's error, which may say more than it, of all that is to be shown.
        by: the package whose code raises it.
    """

    message: str
    by: str = OURS


@dataclass(frozen=True)
class Door:
    """A way in.

    Attributes:
        group, name: its place in the table.
        enter: takes the name of an architecture and an empty folder, uses a tiny model, and asserts an effect.
        refusals: architecture -> how it is refused; the others work.
        packages: distributions that it needs, the one that it is about first.
    """

    group: str
    name: str
    enter: Callable[[str, Path], None]
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    packages: tuple[str, ...] = ("transformers",)

    def __str__(self) -> str:
        return self.name

    @property
    def missing(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        return [name for name in self.packages if not is_installed(name)]

    def outcome(self, architecture: str) -> str:
        """Enter, with tools' own warnings and logs left out -> `WORKS`, or the message of the declared refusal.

        Raises:
            AssertionError: it ends otherwise than declared.
        """
        refusal = self.refusals.get(architecture)
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.set_verbosity_error()
            try:
                self.enter(architecture, Path(folder))
            except Exception as error:
                if refusal is None:
                    raise AssertionError(f"{self.name} is declared to work with {architecture}") from error
                message, package = " ".join(str(error).split()), raised_by(error)
                found = re.search(refusal.message, message)
                if package != refusal.by or found is None:
                    raise AssertionError(
                        f"{self.name} of {architecture} is declared to be refused by {refusal.by} with "
                        f"{refusal.message!r}, not by {package} with {message!r}"
                    ) from error
                # tools write what surrounds an error into its message, too
                return message if package == OURS else found.group()
        assert refusal is None, f"{self.name} works with {architecture}, but is declared to be refused"
        return WORKS


@dataclass
class Room:
    """The doors of a group, as its module declares them by a decorator."""

    group: str
    doors: list[Door] = field(default_factory=list)

    def door(
        self, name: str, refusals: Mapping[str, Refusal] | None = None, packages: Iterable[str] = ("transformers",)
    ):
        def declare(enter: Callable[[str, Path], None]):
            self.doors.append(Door(self.group, name, enter, refusals or {}, tuple(packages)))
            return enter

        return declare


def is_installed(distribution: str) -> bool:
    try:
        return bool(metadata.version(distribution))
    except metadata.PackageNotFoundError:
        return False


def raised_by(error: BaseException) -> str:
    """The package of the code that raised an error."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals["__name__"].partition(".")[0]
