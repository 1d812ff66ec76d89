"""Data in files: plain Python scalars only, no half-written file, and nothing read beyond its limit."""

import errno
import glob
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import SafetensorError

from . import limits

try:
    import fcntl
except ImportError:
    # not on Windows
    fcntl = None

# of a card: YAML between lines of three hyphens
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
# the end of the names of files that are being written
PARTIAL = ".partial"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# what errors of writers in native code say of it
NO_ROOM_MESSAGES = ("PytorchStreamWriter failed", *(f"(os error {number})" for number in NO_ROOM))


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
    """Write a file in one step: readers get the old content or the new one, never a part.

    A device or pipe is written to, and never replaced by a file.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_bytes(content)
        return path
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
    return path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary file that becomes `path` when the block ends well, and is removed when it does not."""
    with _named(path), new_parents(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = _partial_file(path)
        try:
            yield Path(temporary)
            # mkstemp makes the file private; a published one is readable by everybody
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            # it was locked until here
            os.close(handle)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let the error of a file that is being written name it, and not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def no_room(error: BaseException) -> bool:
    """Whether an error, or what caused it, is that of a disk without room."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return True
    if isinstance(error, (RuntimeError, SafetensorError)) and any(text in str(error) for text in NO_ROOM_MESSAGES):
        return True
    cause = error.__cause__ or error.__context__
    return cause is not None and no_room(cause)


@contextmanager
def new_parents(path: Path) -> Iterator[None]:
    """Remove the folders above `path` that a block made, if it fails and they are empty."""
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        raise


def _partial_file(path: Path) -> tuple[int, str]:
    """Descriptor and name of a new file beside `path`, whose like that killed processes have left is removed."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):
            handle = os.open(stale, os.O_RDWR)
            try:
                if lock(handle):
                    stale.unlink()
            finally:
                os.close(handle)
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
        lock(handle)
        if os.path.exists(temporary):
            return handle, temporary
        # another process took it for one that was left
        os.close(handle)


def lock(handle: int) -> bool | None:
    """Lock an open file or folder until it is closed -> whether nobody else has; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EACCES, errno.EAGAIN) else None
    return True


def file_hash(path: str | os.PathLike) -> str:
    """The sha256 of a file, in hexadecimal."""
    content = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            content.update(block)
    return content.hexdigest()


def write_json(path: str | os.PathLike, data: Any) -> Path:
    """Write `plain(data)` as indented JSON with a trailing newline, in one step."""
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    return write_bytes(path, (text + "\n").encode())


def read_json(path: str | os.PathLike) -> Any:
    """The data in a JSON file.

    Raises:
        ValueError: it is not JSON, says something twice, or exceeds a limit.
    """
    return parse_json(_read_text(path, limits.JSON), str(path))


def parse_json(text: str, place: str) -> Any:
    """The data in a JSON text from `place`; errors are those of `read_json`."""
    try:
        data = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise ValueError(f"{place} is not JSON: {error}") from error
    except RecursionError as error:
        raise limits.NESTING.exceeded(place) from error
    _check_nesting(data, place)
    return data


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises a ValueError where it has a key more than once, of which `json` would take the last."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has {[name for name in data if names.count(name) > 1]} more than once")
    return data


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets a later key replace the same one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"the key {key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | os.PathLike) -> Any:
    """The data in a YAML file.

    Raises:
        ValueError: it is not YAML of plain data without aliases, has a key twice, or exceeds a limit.
    """
    return parse_yaml(_read_text(path, limits.YAML), str(path))


def parse_yaml(text: str, place: str, loader: type[UniqueKeyLoader] = UniqueKeyLoader) -> Any:
    """The data in a YAML text from `place`; errors are those of `read_yaml`."""
    limits.YAML.check(len(text.encode()), place)
    starts = (yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken)
    starts += (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
    ends = (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
    levels, most, aliases = 0, limits.NESTING.value, False
    try:
        # the scanner's time grows with the square of the levels
        for token in yaml.scan(text, yaml.SafeLoader):
            levels += isinstance(token, starts) - isinstance(token, ends)
            aliases = aliases or isinstance(token, yaml.AliasToken)
            if levels > most:
                break
        data = None if aliases or levels > most else loader(text).get_single_data()
    # a date that does not exist is a ValueError
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{place} is not valid YAML: {' '.join(str(error).split())}") from error
    limits.NESTING.check(levels, place)
    if aliases:
        # a few lines of them stand for more data than there is memory, or for data without end
        raise ValueError(f"{place} holds an alias (*name): write out the data that it stands for")
    return data


def _read_text(path: str | os.PathLike, limit: limits.Limit) -> str:
    limit.check(os.stat(path).st_size, str(path))
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error


def _check_nesting(data: Any, place: str) -> None:
    level, levels = [data], 0
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        levels += 1
        limits.NESTING.check(levels, place)
        level = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]


def absolute(path: str | os.PathLike) -> Path:
    """A path without `~` and links; a link in a circle stays."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def one_line(error: BaseException, most: int = 400) -> str:
    """An error's message without its line breaks, and no longer than `most` letters."""
    return " ".join(str(error).split())[:most] or type(error).__name__
