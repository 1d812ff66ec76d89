"""Bring a gallery's rendered files up to date."""

import os
from pathlib import Path

from ...metrics.serialize import write_bytes
from .entries import read_gallery
from .rendered import rendered_files, rendered_index, stale_files


def refresh(root: str | os.PathLike) -> list[Path]:
    """Render every card, its evaluation results and the index anew.

    Removes results that no longer belong. Returns the paths that changed, relative to `root`; a second call changes
    nothing.

    Raises:
        ValueError: a folder's card data cannot be used; nothing is written then.
    """
    root = Path(root)
    entries = read_gallery(root)
    contents = {root / name: content for name, content in rendered_index(entries).items()}
    stale = []
    for entry in entries:
        files = rendered_files(entry)
        contents |= {entry.folder / name: content for name, content in files.items()}
        stale += stale_files(entry, list(files))
    changed = [path for path, content in contents.items() if not path.is_file() or path.read_bytes() != content]
    for path in changed:
        write_bytes(path, contents[path])
    for path in stale:
        path.unlink()
    return sorted(path.relative_to(root) for path in (*changed, *stale))
