"""Folders whose files change as a whole: all of a command's files are there in the end, or those of before."""

import filecmp
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .files import PARTIAL, absolute, fcntl, lock, new_parents, no_room

# folders in a folder that is changed: the change in the making, and one that only needs to be carried out
MAKING, DECIDED = ".changing", ".changed"


@dataclass
class Change:
    """A change of the files of a folder.

    Attributes:
        folder: whose files they are.
        new: the folder to write them into meanwhile, at the paths that they will have.
        removed: paths of files that will be removed.
        names: once the change is made, the paths of all files that it added, replaced or removed.
    """

    folder: Path
    new: Path
    removed: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)

    def file(self, name: str) -> Path:
        """The file that will be at a path: the new one, or else that of before."""
        return self.new / name if (self.new / name).is_file() else self.folder / name

    @property
    def written(self) -> list[Path]:
        """Once the change is made, the files that it added or replaced."""
        return [path for path in map(self.folder.joinpath, self.names) if path.is_file()]


@contextmanager
def new_folder(target: str | os.PathLike, may_replace: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary folder that becomes `target` when the block ends well, and is removed when it does not.

    `may_replace(target)` raises an error if the target exists, is not empty, and must stay. It is called before the
    block and again before the replacement.

    Raises:
        ValueError: `target`, or a folder that it would be in, is a file, or another process writes it.
    """
    path = absolute(target)
    _check_place(path)
    # a folder on the same file system that exists already: missing parents are made at the very end
    base = next(parent for parent in path.parents if parent.exists())
    temporary = base / f".{'.'.join(path.relative_to(base).parts)}{PARTIAL}"
    built, old = temporary / "new", temporary / "old"
    with new_parents(path), room_named(path), alone(temporary):
        try:
            # of a process that was killed
            if old.exists() and not path.exists():
                old.rename(path)
            for left in (built, old):
                if left.exists():
                    shutil.rmtree(left)
            _check_target(path, may_replace)
            built.mkdir()
            yield built
            _check_target(path, may_replace)
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(built, path, old)
        finally:
            for left in (built, old):
                shutil.rmtree(left, ignore_errors=True)
            temporary.rmdir()


@contextmanager
def changed_files(folder: str | os.PathLike) -> Iterator[Change]:
    """A change of the files of `folder`, which may not exist yet, that is made when the block ends well.

    An error, also while files are put in their places, leaves the folder as it was. A kill then leaves a change that
    the next one carries out first; before, it leaves a folder that the next change removes.

    Raises:
        ValueError: another process changes the folder, or a folder is where a file should be.
    """
    path = Path(folder)
    with new_parents(path / MAKING), room_named(path), alone(path):
        complete_change(path)
        making = path / MAKING
        try:
            change = Change(path, making / "new")
            change.new.mkdir(parents=True)
            yield change
            _decide(change)
            try:
                _carry_out(path)
            except BaseException:
                _undo(change)
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)


def complete_change(folder: Path) -> None:
    """Carry out the change of a folder that was interrupted, and remove one that was not ready."""
    if (folder / DECIDED).exists():
        _carry_out(folder)
    shutil.rmtree(folder / MAKING, ignore_errors=True)


def is_unfinished(folder: Path) -> bool:
    """Whether a change of the folder was interrupted while files were put in their places."""
    return (folder / DECIDED).exists()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a block like this for `folder`, which is made if it does not exist."""
    if fcntl is None:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        return
    handle = _locked(folder)
    try:
        yield
    finally:
        os.close(handle)


def _locked(folder: Path) -> int:
    """The descriptor of a folder that is locked."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if lock(handle) is False:
                raise ValueError(f"{folder} is being changed by another process: wait until that has ended")
            # it may have been removed by who had locked it
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _decide(change: Change) -> None:
    """Compare the new files with the folder's, and mark the change as ready."""
    for name in _names(change.new):
        old, new = change.folder / name, change.new / name
        if old.is_dir():
            raise ValueError(f"{old} is a folder where a file should be: remove it")
        if old.is_file():
            if filecmp.cmp(old, new, shallow=False):
                new.unlink()
                continue
            shutil.copymode(old, new)
        change.names.append(name)
    for name in sorted(change.removed):
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if inside and (change.folder / name).is_file():
            mark = change.new.parent / "removed" / name
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            change.names.append(name)
    change.new.parent.rename(change.folder / DECIDED)


def _carry_out(folder: Path) -> None:
    """Put the files of a change that is ready in their places; what was done already is skipped."""
    place = folder / DECIDED
    for name in _names(place / "new"):
        _keep(folder / name, place / "old" / name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "new" / name).replace(folder / name)
    for name in _names(place / "removed"):
        _keep(folder / name, place / "old" / name)
        (folder / name).unlink(missing_ok=True)
    # no longer to be carried out, whatever may be left of it
    place.rename(folder / MAKING)


def _undo(change: Change) -> None:
    """Let the folder be as it was before a change that could not be carried out."""
    place = change.folder / DECIDED
    for name in change.names:
        if (place / "old" / name).is_file():
            (place / "old" / name).replace(change.folder / name)
        elif not any((place / kind / name).is_file() for kind in ("new", "removed")):
            (change.folder / name).unlink(missing_ok=True)
    place.rename(change.folder / MAKING)


def _keep(path: Path, copy: Path) -> None:
    """Let an old file have a second name, for as long as it may be needed."""
    if not path.is_file() or copy.is_file():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, copy)
    except OSError:
        # not on every file system
        path.rename(copy)


def _names(folder: Path) -> list[str]:
    """Paths of the files below a folder, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@contextmanager
def room_named(folder: Path) -> Iterator[None]:
    """Raise the error of a full disk as a ValueError that names the folder."""
    try:
        yield
    except Exception as error:
        if not no_room(error):
            raise
        raise ValueError(
            f"{folder} stays as it was, there is no room on the disk for its files ({' '.join(str(error).split())}): "
            "make room, then give the same command again"
        ) from error


def _check_place(path: Path) -> None:
    for place in (path, *path.parents):
        if os.path.lexists(place) and not place.is_dir():
            raise ValueError(f"folder={str(path)!r}: {place} is a file; name a folder that does not exist yet")


def _check_target(path: Path, may_replace: Callable[[Path], None]) -> None:
    _check_place(path)
    if path.is_dir() and any(path.iterdir()):
        may_replace(path)


def _replace(built: Path, path: Path, old: Path) -> None:
    if not path.exists():
        built.rename(path)
        return
    path.rename(old)
    try:
        built.rename(path)
    except BaseException:
        old.rename(path)
        raise
