"""Places that examples are read from: a file of rows, a folder of texts by label, or a split of a data set."""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.files import matches, open_files
from ..files import file_hash
from .rows import SUFFIXES, Rows, format_of

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

TEXT_FILES = ("*.txt", "*.md", "*.text")
# names of folders that hold the examples of a split
SPLITS = frozenset({"train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval"})
BYTE_ORDER_MARK = "\ufeff"


class FilePlace:
    """A CSV, TSV, JSON, JSONL, Parquet or text file.

    Attributes:
        name: the place as messages call it.
        encoding: of its text.
        columns: the names of the columns.
        fingerprint: a digest that changes with the content.
    """

    def __init__(self, path: str, encoding: str):
        self.path, self.encoding, self.name = Path(path), encoding, Path(path).name

    @cached_property
    def columns(self) -> list[str]:
        return Rows(self.path, encoding=self.encoding, on_error="skip").columns

    def rows(self, skipped: list[tuple[str, str]] | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each row with its place in words.

        Args:
            skipped: takes the place of each broken row and the reason; None: a broken row is an error.

        Raises:
            ValueError: the place cannot be read.
        """
        source = Rows(self.path, encoding=self.encoding, on_error="raise" if skipped is None else "skip")
        for number, row in source.numbered():
            yield f"{self.name}, {source.unit} {number}", row
        if skipped is not None:
            skipped += [(f"{self.name}, {source.unit} {number}", reason) for number, reason in source.skipped]

    def label_names(self, column: str | None) -> tuple[str, ...]:
        """Names of the labels in a column, where the data declare them; the labels are then their places, from 0."""
        if format_of(self.path) != "parquet":
            return ()
        from datasets import Features
        from pyarrow.parquet import read_schema

        schema = read_schema(self.path)
        if b"huggingface" not in (schema.metadata or {}):
            # others than `datasets` have types that it does not know
            return ()
        return declared_names(Features.from_arrow_schema(schema), column)

    @cached_property
    def fingerprint(self) -> str:
        return file_hash(self.path)


def is_folder(path: str) -> bool:
    """Whether a path is that of a folder or, by its name's end, a zip file."""
    return Path(path).is_dir() or path.lower().endswith(".zip")


class TextFolder:
    """A folder or zip file of texts; a text is a file.

    Attributes and methods are those of `FilePlace`.
    """

    def __init__(self, path: str, encoding: str, expected: str, in_folders: bool = False):
        self.path, self.encoding, self.name = Path(path), encoding, Path(path).name
        with open_files(self.path) as files:
            self.files = text_files((name for name in files.files if "/" in name or not in_folders), self.name)
            tables = tables_in(files.files, path)
        if not self.files:
            raise ValueError(f"{path} has no {expected}{tables}")
        require_one_split(self.files, path)

    def label_names(self, column: str | None) -> tuple[str, ...]:
        return ()

    def texts(self, skipped: list[tuple[str, str]] | None) -> Iterator[tuple[str, str, str]]:
        """Name, place in words and text of each file; arguments and errors are those of `rows`."""
        with open_files(self.path) as files:
            for name in self.files:
                place = f"{self.name}/{name}"
                try:
                    text = files.read(name).decode(self.encoding).removeprefix(BYTE_ORDER_MARK)
                    if "\0" in text:
                        # a file in UTF-16, often
                        raise ValueError(f"character {text.index(chr(0))} is a byte of zero, which is no text")
                except ValueError as error:
                    if skipped is None:
                        raise ValueError(
                            f"{place}: {error}: convert the file, or name its encoding with --encoding"
                        ) from error
                    skipped.append((place, str(error)))
                    continue
                yield name, place, text

    @cached_property
    def fingerprint(self) -> str:
        found = hashlib.sha256()
        with open_files(self.path) as files:
            for name in self.files:
                content = files.read(name)
                found.update(f"{name} {len(content)}\n".encode(errors="surrogatepass") + content)
        return found.hexdigest()


class LabelFolder(TextFolder):
    """A folder or zip file with a folder of texts for each label."""

    columns = ("text", "label")

    def __init__(self, path: str, encoding: str):
        remedy = "make a folder of text files for each label"
        super().__init__(path, encoding, f"texts ({', '.join(TEXT_FILES)}) in folders: {remedy}", in_folders=True)
        shallowest, deepest = (choose(self.files, key=lambda name: name.count("/")) for choose in (min, max))
        if shallowest.count("/") < deepest.count("/"):
            raise ValueError(f"{path} has texts at different depths, {shallowest} and {deepest}: {remedy}")

    def rows(self, skipped):
        for name, place, text in self.texts(skipped):
            yield place, {"text": text, "label": name.split("/")[-2]}


def tables_in(names: Iterable[str], path: str) -> str:
    """For a message: files of rows in a folder that may be meant instead of it; nothing where there are none."""
    tables = sorted(name for name in names if SUFFIXES.get(Path(name).suffix.lower(), "text") != "text")
    return f", or name a file of rows, such as {Path(path) / tables[0]}" if tables and Path(path).is_dir() else ""


def require_one_split(files: Iterable[str], place: str) -> None:
    """Raise a ValueError if files lie in folders with the names of splits, which are not for one purpose."""
    splits = sorted({name.split("/")[0] for name in files if "/" in name})
    names = {name.lower() for name in splits}
    if len(names) > 1 and "train" in names and SPLITS.issuperset(names):
        unpacked = "" if Path(place).is_dir() else "unpack it, and "
        raise ValueError(f"{place} has the splits {', '.join(splits)}: {unpacked}name the folder of each by itself")


def text_files(names: Iterable[str], place: str) -> list[str]:
    """The names of text files, sorted. Warns of the other files beside them; `place` is what the message calls them."""
    names = sorted(names)
    texts = [name for name in names if matches(name.lower(), TEXT_FILES)]
    others = sorted(set(names) - set(texts))
    if texts and others:
        warnings.warn(
            f"{place}: {len(others):,} of {len(names):,} files are no texts ({', '.join(TEXT_FILES)}) and are left "
            f"out, such as {others[0]}",
            stacklevel=3,
        )
    return texts


class DatasetPlace:
    """A split of a data set that is loaded, or read while it is downloaded.

    Attributes and methods are those of `FilePlace`; its texts have no encoding.
    """

    encoding = None

    def __init__(self, dataset: "Dataset | IterableDataset", name: str):
        self.dataset, self.name = dataset, name

    @cached_property
    def columns(self) -> list[str]:
        return list(self.dataset.column_names or next(iter(self.dataset), {}))

    def rows(self, skipped):
        for number, row in enumerate(self.dataset):
            yield f"row {number} of {self.name}", row

    def label_names(self, column):
        return declared_names(self.dataset.features, column)

    @property
    def fingerprint(self) -> str:
        return self.dataset._fingerprint


def declared_names(features: Mapping[str, Any], column: str | None) -> tuple[str, ...]:
    """Names of the labels in a column; of several labels of an example, those of the elements."""
    feature = features.get(column)
    return tuple(getattr(getattr(feature, "feature", feature), "names", None) or ())


# rows of one split
Place = FilePlace | TextFolder | DatasetPlace
