"""From a folder, a zip file, the standard library or a data set of the Hub to the rows of every split.

Text files: each is a document; for `github`, each folder is one, with all its files. Where there are folders named
`train`, `validation` or `test`, they are the splits; otherwise a hash of each document's name says where it goes.
A file of no bytes is no document. In `github`, files with a zero byte near their beginning are binary, as for git, and
left out.

Tables: see `tables.py`. Splits are those that the tables' paths name, such as `data/train-00000-of-00023.parquet`.
"""

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..archive import Archive, Folder, matches, open_files
from ..hub_files import snapshot
from ..sampling import Shard, make_shards
from . import tables
from .configs import DATASETS
from .documents import SPLITS, Document, divide, joined, make_row, shares, split_of
from .library import library_documents, library_folder

# where git looks for a zero byte
_BINARY_PREFIX = 8000


class Origin(NamedTuple):
    """Where a shard's documents are, and what they are called by their column `source`."""

    config: str
    params: Mapping[str, Any]
    root: str
    source: str


class Texts(NamedTuple):
    """A shard of text files; with `folder`, paths are relative to that part of the root."""

    origin: Origin
    documents: list[Document]
    folder: str


class Tables(NamedTuple):
    """A shard of tables; with `split`, only the documents whose names belong to it."""

    origin: Origin
    paths: tuple[str, ...]
    split: str | None


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """The folder of a config's files where the user gives none; what is not here yet is downloaded.

    Raises:
        ValueError: the config has no files but the user's.
    """
    if config_name == "python":
        return library_folder()
    if config_name not in DATASETS:
        raise ValueError(f"config {config_name!r} reads your own files: give data_dir, a folder or zip file of texts")
    dataset, revision = params["dataset"], params["revision"]
    folder = snapshot(dataset, revision, [f"*{suffix}" for suffix in tables.SUFFIXES])
    if not tables.among(Folder(folder).files):
        raise ValueError(
            f"dataset={dataset!r} has no files that end with {', '.join(tables.SUFFIXES)}: name another one, or "
            "download it and give data_dir"
        )
    return folder


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split.

    Raises:
        ValueError: there are no documents, or none for a split.
    """
    if config_name == "python":
        origin = Origin(config_name, params, str(data_dir), f"python-{platform.python_version()}")
        return _shards(origin, divide(library_documents(data_dir), params), {})
    if "dataset" in params:
        # a snapshot of the Hub is called by its commit
        origin = Origin(config_name, params, str(data_dir), f"{params['dataset']}@{data_dir.name}")
        return _plan_tables(origin, tables.among(Folder(data_dir).files))
    origin = Origin(config_name, params, str(data_dir), data_dir.name)
    with open_files(data_dir) as files:
        if config_name in DATASETS and isinstance(files, Folder) and tables.only(files.files):
            return _plan_tables(origin, tables.among(files.files))
        return _plan_texts(origin, files)


def _plan_tables(origin: Origin, found: list[str]) -> dict[str, list[Shard]]:
    own = tables.by_split(sorted(found))
    if None in own:
        splits = {split: own[None] for split in shares(origin.params)}
    else:
        splits = {split: own[split] for split in SPLITS if split in own}
    planned = {}
    for split, names in splits.items():
        paths = [str(Path(origin.root) / name) for name in names]
        # the files of a repository may be in any table
        groups = [tuple(paths)] if origin.config == "github" else [(path,) for path in paths]
        payloads = [Tables(origin, group, split if None in own else None) for group in groups]
        planned[split] = [Shard(number, "file", payload) for number, payload in enumerate(payloads)]
    return planned


def _plan_texts(origin: Origin, files: Folder | Archive) -> dict[str, list[Shard]]:
    patterns = origin.params["patterns"]
    wanted = [name for name, size in files.files.items() if matches(name, patterns)]
    filled = [name for name in wanted if files.files[name]]
    if not filled:
        raise ValueError(
            f"data_dir={origin.root!r}: no text in it: {len(wanted)} of {len(files.files)} files match "
            f"patterns={list(patterns)!r}, and none of them has text (found: {_kinds(files)}); give patterns that the "
            "names of your files match"
        )
    named = [split for split in SPLITS if any(name.startswith(f"{split}/") for name in files.files)]
    if not named:
        return _shards(origin, divide(_documents(origin, filled), origin.params), {})
    own = {split: [name for name in filled if name.startswith(f"{split}/")] for split in named}
    for split, names in own.items():
        if not names:
            raise ValueError(
                f"data_dir={origin.root!r}: the folder {split} has no text that matches patterns={list(patterns)!r}: "
                "put text into it, or rename it"
            )
    beside = [name for name in filled if name.split("/")[0] not in named]
    if beside:
        raise ValueError(
            f"data_dir={origin.root!r} has folders for splits ({', '.join(named)}), but {beside[0]} and "
            f"{len(beside) - 1} more text files lie outside of them: move them, or leave them out by patterns="
        )
    splits = {
        split: _documents(origin, [name.removeprefix(f"{split}/") for name in names]) for split, names in own.items()
    }
    return _shards(origin, splits, {split: split for split in splits})


def _documents(origin: Origin, names: list[str]) -> list[Document]:
    if origin.config != "github":
        return [Document(name, (name,)) for name in names]
    repositories: dict[str, list[str]] = {}
    for name in names:
        if "/" not in name:
            raise ValueError(
                f"data_dir={origin.root!r}: {name} is in no folder: a repository is a folder with its files; move it, "
                "or leave it out by patterns="
            )
        repositories.setdefault(name.split("/")[0], []).append(name)
    return [Document(name, tuple(parts)) for name, parts in repositories.items()]


def _kinds(files: Folder | Archive) -> str:
    kinds = sorted({PurePosixPath(name).suffix or PurePosixPath(name).name for name in files.files})
    return ", ".join(kinds[:8]) + (", ..." if len(kinds) > 8 else "") or "no files"


def _shards(origin: Origin, splits: Mapping[str, list[Document]], folders: Mapping[str, str]) -> dict[str, list[Shard]]:
    return {
        split: [
            Shard(shard.number, "file", Texts(origin, shard.payload, folders.get(split, "")))
            for shard in make_shards("file", documents)
        ]
        for split, documents in splits.items()
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    if isinstance(shard.payload, Tables):
        return shard.payload.paths
    origin, documents, folder = shard.payload
    root = Path(origin.root)
    if not root.is_dir():
        return (origin.root,)
    return tuple(str(root / folder / part) for document in documents for part in document.parts)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    if isinstance(shard.payload, Texts):
        yield from _text_rows(shard.payload)
        return
    origin, table_paths, split = shard.payload
    for name, text in tables.named_texts(
        origin.config, table_paths, lambda name: split is None or split_of(name, origin.params) == split
    ):
        if text:
            yield make_row(name, origin.source, text)


def _text_rows(texts: Texts) -> Iterator[dict[str, object]]:
    origin = texts.origin
    with open_files(Path(origin.root)) as files:
        for document in texts.documents:
            parts = [f"{texts.folder}/{part}" if texts.folder else part for part in document.parts]
            text = joined(_part_texts(origin, files, parts))
            if text:
                yield make_row(document.name, origin.source, text)


def _part_texts(origin: Origin, files: Folder | Archive, parts: list[str]) -> Iterator[str]:
    for part in parts:
        content = files.read(part)
        if origin.config == "github" and b"\0" in content[:_BINARY_PREFIX]:
            continue
        if origin.config == "python":
            try:
                yield content.decode()
            except UnicodeDecodeError:
                # a source file may declare another encoding; the library has such files for tests only
                continue
        else:
            yield _decode(content, origin.params["encoding"], f"{origin.root}: {part}")


def _decode(content: bytes, encoding: str, place: str) -> str:
    """The text of a file, with its line ends as they are.

    Raises:
        ValueError: it is not in that encoding; the message names the place and the byte.
    """
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: byte {error.start} (0x{content[error.start]:02x}) is not {encoding}: convert the file, leave it "
            "out by patterns=, or name its encoding by encoding= (latin-1 reads any file)"
        ) from error
