"""Text files in a folder or a zip file, read alike."""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

_ENCRYPTED = 0x1
# archives made on a Mac carry a shadow of every file
_SHADOWS = "__MACOSX"


class Folder:
    """`files` maps the files' paths, relative and with slashes, to their sizes in bytes."""

    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def files(self) -> dict[str, int]:
        found = {path.relative_to(self.root).as_posix(): path for path in self.root.rglob("*") if path.is_file()}
        return {name: found[name].stat().st_size for name in sorted(found) if is_visible(name)}

    def inside(self, folder: str) -> list[str]:
        """The paths of the files that lie in a folder itself, sorted; none where there is no such folder."""
        try:
            with os.scandir(self.root / folder) as entries:
                names = sorted(entry.name for entry in entries if is_visible(entry.name) and entry.is_file())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [f"{folder}/{name}" if folder else name for name in names]

    def read(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise ValueError(f"{self.root / name} cannot be read ({error}): check its permissions") from error


class Archive:
    """A zip file; where all of it lies in one folder, paths are relative to that folder."""

    def __init__(self, root: Path, archive: zipfile.ZipFile):
        self.root, self.archive = root, archive
        entries = [entry for entry in archive.infolist() if not entry.is_dir() and is_visible(entry.filename)]
        top = {PurePosixPath(entry.filename).parts[0] for entry in entries}
        single = len(top) == 1 and all("/" in entry.filename for entry in entries)
        prefix = f"{top.pop()}/" if single else ""
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            name = entry.filename.removeprefix(prefix)
            if name in self.entries:
                raise ValueError(f"{root} holds {entry.filename} twice: keep one of them")
            self.entries[name] = entry
        self.files = {name: self.entries[name].file_size for name in sorted(self.entries)}

    def inside(self, folder: str) -> list[str]:
        """The paths of the files that lie in a folder itself, sorted; none where there is no such folder."""
        return [name for name in self.files if name.rpartition("/")[0] == folder]

    def read(self, name: str) -> bytes:
        entry = self.entries[name]
        if entry.flag_bits & _ENCRYPTED:
            raise ValueError(f"{self.root}: {entry.filename} is encrypted; unpack the archive and give the folder")
        try:
            return self.archive.read(entry)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise ValueError(
                f"{self.root}: {entry.filename} cannot be unpacked ({error}): is the archive whole?"
            ) from error


def is_visible(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not any(part.startswith(".") or part == _SHADOWS for part in parts)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether the last part of a path fits one of some patterns."""
    return any(fnmatchcase(PurePosixPath(name).name, pattern) for pattern in patterns)


@contextmanager
def open_files(root: Path) -> Iterator[Folder | Archive]:
    """The files of a folder or zip file.

    Raises:
        ValueError: there is no such place, or it is neither, or the archive is damaged.
    """
    if root.is_dir():
        yield Folder(root)
        return
    if not root.exists():
        raise ValueError(f"data_dir={str(root)!r}: there is no such folder or zip file")
    try:
        archive = zipfile.ZipFile(root)
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"data_dir={str(root)!r}: expected a folder or a zip file ({error})") from error
    with archive:
        yield Archive(root, archive)
