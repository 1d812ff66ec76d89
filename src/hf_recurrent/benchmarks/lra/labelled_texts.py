"""Texts with a folder for each label, `neg` and `pos`, in a folder or a zip file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..archive import Archive, Folder, open_files
from ..sampling import Shard, make_shards
from .rows import text_row

# the place of each is its label
FOLDERS = ("neg", "pos")
PATTERN = "*.txt"


class Text(NamedTuple):
    """A text file: its path in its folder or zip file."""

    name: str
    label: int


class Texts(NamedTuple):
    """Texts of a folder or zip file."""

    root: str
    texts: Sequence[Text]
    max_bytes: int


def labelled(files: Folder | Archive, base: str) -> dict[str, list[Text]]:
    """The texts in each of the folders under `base` (empty, or with a slash at its end), by their names."""
    return {
        f"{base}{folder}": [
            Text(name, label) for name in files.inside(f"{base}{folder}") if name.endswith(PATTERN.removeprefix("*"))
        ]
        for label, folder in enumerate(FOLDERS)
    }


def text_shards(root: Path, texts: Sequence[Text], max_bytes: int) -> list[Shard]:
    return [
        Shard(shard.number, shard.source, Texts(str(root), shard.payload, max_bytes))
        for shard in make_shards("file", texts)
    ]


def text_paths(texts: Texts) -> tuple[str, ...]:
    """The files that texts are read from."""
    root = Path(texts.root)
    return tuple(str(root / text.name) for text in texts.texts) if root.is_dir() else (texts.root,)


def text_rows(texts: Texts) -> Iterator[dict[str, object]]:
    """The rows of texts.

    Raises:
        ValueError: a file cannot be read, or is empty.
    """
    with open_files(Path(texts.root)) as files:
        for name, label in texts.texts:
            content = files.read(name)
            if not content:
                raise ValueError(f"{texts.root}: {name} is empty: is the data set whole? Remove the file if it is")
            yield text_row(content, label, texts.max_bytes)
