"""The arena's ListOps files: those that config `lra` of benchmark `listops` reads, wherever the release has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..listops import files
from ..sampling import Shard
from .release import find

FOLDERS = ("listops-1000",)

paths = files.paths
rows = files.rows


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """One shard per split.

    Raises:
        ValueError: files are missing; all of them are named.
    """
    return files.plan("lra", params, find(data_dir, FOLDERS, tuple(files.FILES["lra"].values())))
