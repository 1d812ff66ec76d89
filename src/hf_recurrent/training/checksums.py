"""Checksums of the JSON files of a checkpoint, of which many would be believed with other contents."""

from pathlib import Path
from typing import Any

from ..files import file_hash, read_json, write_json
from .values import check_type

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Keep the checksums of the JSON files that are in `folder` now."""
    # a folder that is saved to again has them already
    files = sorted(path for path in folder.glob("*.json") if path.name != CHECKSUMS)
    write_json(folder / CHECKSUMS, {path.name: file_hash(path) for path in files})


def check_checksums(folder: Path) -> None:
    """Raise a ValueError for a file that has changed or is missing; earlier versions wrote no checksums."""
    path = folder / CHECKSUMS
    if not path.is_file():
        return
    kept = read_json(path)
    check_type("its content", kept, dict[str, Any], CHECKSUMS)
    for name, expected in kept.items():
        if file_hash(folder / name) != expected:
            raise ValueError(f"{name} has changed since it was written, by its sum in {CHECKSUMS}")
