"""Texts in two folders, `neg/*.txt` and `pos/*.txt`: reviews, or whatever people have sorted into two kinds.

Both lie in the folder or zip file that is given, or in one folder there. A hash of a text's name says which split it
belongs to, so that it stays there when others are added. Bytes that are no UTF-8 are data (`byte_text`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..archive import Archive, Folder, open_files
from ..long_documents.documents import shares, split_of
from ..lra.labelled_texts import FOLDERS, PATTERN, Text, labelled, text_paths, text_rows, text_shards
from ..sampling import Shard


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """There is none.

    Raises:
        ValueError: always; it says what to give.
    """
    raise ValueError(
        f"config {config_name!r} reads your own texts: give data_dir, a folder or zip file with "
        f"{' and '.join(f'{folder}/{PATTERN}' for folder in FOLDERS)}"
    )


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split that has a share.

    Raises:
        ValueError: a folder is missing, or a split gets no texts.
    """
    splits: dict[str, list[Text]] = {split: [] for split in shares(params)}
    with open_files(data_dir) as files:
        base, texts = _texts(files, data_dir)
    for text in texts:
        splits[split_of(text.name.removeprefix(base), params)].append(text)
    for split, members in splits.items():
        if not members:
            raise ValueError(
                f"data_dir={str(data_dir)!r}: none of {len(texts)} texts falls into the {split} split "
                f"(seed={params['seed']}, validation_share={params['validation_share']}, "
                f"test_share={params['test_share']}): give another seed or other shares (0 for no such split)"
            )
    return {split: text_shards(data_dir, members, params["max_bytes"]) for split, members in splits.items()}


def _texts(files: Folder | Archive, data_dir: Path) -> tuple[str, list[Text]]:
    """The folder of the folders, empty or with a slash at its end, and the texts."""
    beside = {name.split("/")[0] for name in files.files if name.split("/")[1:2] in [[folder] for folder in FOLDERS]}
    bases = ["", *(f"{folder}/" for folder in sorted(beside - set(FOLDERS)))]
    found = {base: folders for base in bases if any((folders := labelled(files, base)).values())}
    if len(found) > 1:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has folders {' and '.join(FOLDERS)} in several places "
            f"({', '.join(base or 'itself' for base in found)}): give one of them"
        )
    base, folders = next(iter(found.items())) if found else ("", labelled(files, ""))
    missing = [folder for folder, texts in folders.items() if not texts]
    if missing:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has no {', '.join(f'{folder}/{PATTERN}' for folder in missing)}: expected "
            f"texts in {' and '.join(FOLDERS)}, there or in one folder there"
        )
    return base, [text for texts in folders.values() for text in texts]


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    return text_paths(shard.payload)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: a file cannot be read, or is empty.
    """
    yield from text_rows(shard.payload)
