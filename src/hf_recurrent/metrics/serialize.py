"""Numbers to files: plain Python scalars only, and never a half-written file."""

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


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
    """Write a file in one step: readers see the old content or the new one, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


def write_folder(folder: str | os.PathLike, files: Mapping[str, bytes]) -> Path:
    """Write a folder of `files` (relative path -> content), replacing it as a whole if it exists.

    If writing fails, what was there before stays.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        new.mkdir()
        for name, content in files.items():
            write_bytes(new / name, content)
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except BaseException:
            if old.exists():
                os.rename(old, folder)
            raise
    return folder


def write_json(path: str | os.PathLike, data: Any) -> Path:
    """Write `plain(data)` as indented JSON with a trailing newline, in one step."""
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    return write_bytes(path, (text + "\n").encode())
