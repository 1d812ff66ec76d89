"""Numbers in files: plain Python scalars only, and no half-written file or folder."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

# the end of the names of files that are being written
PARTIAL = ".partial"


def plain(value: Any) -> Any:
    """`value` with numpy scalars and arrays as Python ones, and NaN and infinities as None.

    YAML dumps numpy scalars as Python object tags, and JSON has no NaN: readers choke on both.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"cannot store a {type(value).__name__} as plain data")


def write_bytes(path: str | os.PathLike, content: bytes) -> Path:
    """Write a file in one step: readers get the old content or the new one, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp makes the file private; a published one is readable by everybody
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def write_json(path: str | os.PathLike, data: Any) -> Path:
    """Write `plain(data)` as indented JSON with a trailing newline, in one step."""
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    return write_bytes(path, (text + "\n").encode())


@contextmanager
def new_folder(target: str | os.PathLike, may_replace: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary folder that becomes `target` when the block ends well, and is removed when it does not.

    `may_replace(target)` raises an error if the target exists, is not empty, and must stay. It is called before the
    block and again before the replacement.

    Raises:
        ValueError: `target`, or a folder that it would be in, is a file.
    """
    path = Path(target).expanduser().resolve()
    _check_target(path, may_replace)
    # a folder on the same file system that exists already: missing parents are made at the very end
    base = next(parent for parent in path.parents if parent.exists())
    temporary = Path(tempfile.mkdtemp(dir=base, prefix=f".{path.name}."))
    try:
        built = temporary / "new"
        built.mkdir()
        yield built
        _check_target(path, may_replace)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(built, path, temporary / "old")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def changed_files(folder: str | os.PathLike) -> Iterator[Path]:
    """A temporary folder whose files replace those of `folder` when the block ends well: all of them, or none."""
    path = Path(folder)
    temporary = Path(tempfile.mkdtemp(dir=path, prefix=".changed."))
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        old.mkdir()
        yield new
        names = sorted(file.name for file in new.iterdir())
        try:
            for name in names:
                if (path / name).exists():
                    shutil.copymode(path / name, new / name)
                    (path / name).rename(old / name)
                (new / name).rename(path / name)
        except BaseException:
            for name in names:
                if (old / name).exists():
                    (old / name).replace(path / name)
                elif not (new / name).exists():
                    (path / name).unlink()
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_target(path: Path, may_replace: Callable[[Path], None]) -> None:
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"folder={str(path)!r}: {place} is a file; name a folder that does not exist yet")
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
