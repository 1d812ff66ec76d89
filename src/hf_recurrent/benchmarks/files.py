"""Files that benchmarks are read from: folders and zip files alike, text lines, Parquet tables, data on the Hub."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow.parquet


_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, UnicodeDecodeError)
# archives made on a Mac carry a shadow of every file
_SHADOWS = "__MACOSX"
SPLITS = ("train", "validation", "test")


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
        found = [path for path in (self.root / folder).glob("*") if is_visible(path.name) and path.is_file()]
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


class Archive:
    """A zip file; where all of it lies in one `folder` that is no split's, paths are relative to that folder."""

    def __init__(self, root: Path, archive: zipfile.ZipFile):
        self.root, self.archive = root, archive
        entries = [entry for entry in archive.infolist() if not entry.is_dir() and is_visible(entry.filename)]
        top = {PurePosixPath(entry.filename).parts[0] for entry in entries}
        # a folder of a split says what its files are for
        single = len(top) == 1 and not top & set(SPLITS) and all("/" in entry.filename for entry in entries)
        self.folder = top.pop() if single else None
        prefix = f"{self.folder}/" if single else ""
        self.entries = {entry.filename.removeprefix(prefix): entry for entry in entries}
        self.files = {name: self.entries[name].file_size for name in sorted(self.entries)}

    def inside(self, folder: str) -> list[str]:
        """The paths of the files that lie in a folder itself, sorted; none where there is no such folder."""
        return [name for name in self.files if name.rpartition("/")[0] == folder]

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError where it cannot be unpacked."""
        entry = self.entries[name]
        try:
            return self.archive.read(entry)
        except _UNREADABLE as error:
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
    try:
        archive = zipfile.ZipFile(root)
    except _UNREADABLE as error:
        raise ValueError(f"{root}: expected a folder or a zip file ({error})") from error
    with archive:
        yield Archive(root, archive)


def snapshot(dataset: str, revision: str, patterns: Sequence[str]) -> Path:
    """The folder of a data set's files that match `patterns`; what is not here yet is downloaded.

    Raises:
        ValueError: the data set cannot be downloaded.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(dataset, repo_type="dataset", revision=revision, allow_patterns=list(patterns)))
    # its bases are OSError and the HTTP client's own error, which a connection that breaks raises
    except HfHubHTTPError.__bases__ as error:
        raise ValueError(
            f"dataset={dataset!r}, revision={revision!r} cannot be downloaded from the Hub: {error}\nCheck both and "
            "the network, or give data_dir"
        ) from error


@contextmanager
def open_parquet(path: str) -> "Iterator[pyarrow.parquet.ParquetFile]":
    """A Parquet file; what goes wrong within is a ValueError that names it."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}): is it whole?") from error


def parquet_columns(path: str) -> list[str]:
    """The columns of a Parquet file. Raises ValueError if it is damaged."""
    with open_parquet(path) as file:
        return file.schema_arrow.names


def parquet_length(path: str) -> int:
    """The number of rows of a Parquet file. Raises ValueError if it is damaged."""
    with open_parquet(path) as file:
        return file.metadata.num_rows


def parquet_rows(
    path: str, columns: Sequence[str] | None = None, rows_at_a_time: int = 1000
) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file with these columns (None: all), a few in memory at a time.

    Raises:
        ValueError: the file is damaged, or lacks a column.
    """
    found = parquet_columns(path)
    for column in columns or ():
        if column not in found:
            raise ValueError(f"{path}: expected a column {column}, found {', '.join(found) or 'none'}")
    with open_parquet(path) as file:
        for batch in file.iter_batches(rows_at_a_time, columns=list(columns or found)):
            yield from batch.to_pylist()


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their 1-based numbers. Raises ValueError where it is not UTF-8."""
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text ({error})") from error


def read_picture(source: "str | Path | IO[bytes]", place: str, size: tuple[int, int], mode: str) -> "np.ndarray":
    """The pixels of a PNG picture of `size` (width, height) and PIL's `mode`: (height, width, ...) uint8.

    Raises:
        ValueError: it is another picture, or none.
    """
    import numpy as np
    from PIL import Image

    try:
        with Image.open(source, formats=("PNG",)) as picture:
            found = f"{picture.width} x {picture.height} pixels of kind {picture.mode!r}"
            # before its pixels are unpacked
            if picture.size == size and picture.mode == mode:
                return np.asarray(picture)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place}: no PNG image that can be read ({error}): is the file whole?") from error
    raise ValueError(f"{place}: the image has {found}; expected {size[0]} x {size[1]} pixels of kind {mode!r}")


def split_tables(folder: Path) -> dict[str, list[str]]:
    """The tables of a folder in their order, such as `train-00000-of-00002.parquet`; splits without any are left out.

    Raises:
        ValueError: some tables of a split are missing.
    """
    found = {split: sorted(folder.glob(f"{split}-*.parquet")) for split in SPLITS}
    for split, paths in found.items():
        counts = {path.stem.rpartition("-of-")[2] for path in paths}
        if any(count.isdecimal() and int(count) != len(paths) for count in counts):
            raise ValueError(
                f"{folder} has {len(paths)} tables {split}-*.parquet, which are not all: download the data set again"
            )
    return {split: list(map(str, paths)) for split, paths in found.items() if paths}


def split_tables_folder(params: Mapping[str, Any], subfolder: str) -> Path:
    """The snapshot of a data set on the Hub, by the parameters `dataset` and `revision`, that has split tables.

    Raises:
        ValueError: the data set cannot be downloaded, or has no tables in `subfolder`.
    """
    patterns = [f"{subfolder}/{split}-*.parquet" for split in SPLITS]
    folder = snapshot(params["dataset"], params["revision"], patterns)
    if not split_tables(folder / subfolder):
        raise ValueError(
            f"dataset={params['dataset']!r} has no files {subfolder}/<split>-*.parquet: name another one, or give "
            "data_dir"
        )
    return folder


def check_pair(source: str, target: str, place: str) -> None:
    """Raises ValueError, with the `place`, where one of two texts has no words: there is nothing to read or learn."""
    for name, text in (("source", source), ("target", target)):
        if not text.strip():
            raise ValueError(f"{place}: the {name} is empty: every example needs words on both sides; remove the pair")
