"""Files that are never half-written, plain data in them, templates, and names that were probably meant."""

import difflib
import filecmp
import functools
import hashlib
import json
import math
import os
import re
import reprlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

if TYPE_CHECKING:
    import jinja2

# of a card: YAML between lines of three hyphens
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
# an object of a JSON file
Json = Mapping[str, Any]
# the end of the names of files that are being written
PARTIAL = ".partial"


def plain(value: Any) -> Any:
    """`value` with numpy scalars and arrays as Python ones, and NaN and infinities as None.

    YAML dumps numpy scalars as Python object tags, and JSON has no NaN: readers choke on both.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"cannot store a {type(value).__name__} as plain data")


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """A partial file next to `path`, which becomes `path` when the block ends well, and is removed when it does not.

    A device or pipe is written to, and never replaced by a file.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    partial = path.with_name(f".{path.name}{PARTIAL}")
    with new_parents(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


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


def write_bytes(path: str | os.PathLike, content: bytes) -> Path:
    """Write a file in one step: readers get the old content or the new one, never a part."""
    with whole_file(path) as partial:
        partial.write_bytes(content)
    return Path(path)


@dataclass
class Change:
    """A change of the files of a folder.

    Attributes:
        folder: whose files they are.
        new: the folder to write them into meanwhile, at the paths that they will have.
        removed: paths of files that will be removed.
        written: once the change is made, the files that it added or replaced.
    """

    folder: Path
    new: Path
    removed: set[str] = field(default_factory=set)
    written: list[Path] = field(default_factory=list)


@contextmanager
def changed_files(folder: str | os.PathLike) -> Iterator[Change]:
    """A change of the files of `folder`, which may not exist yet, that is made when the block ends well.

    Files are put in their places one after another, each in one step; files with the content that is there stay.

    Raises:
        ValueError: a folder is where a file should be.
    """
    folder = Path(folder)
    with temporary_folder(folder / "new") as temporary:
        change = Change(folder, temporary)
        yield change
        files = {path: folder / path.relative_to(temporary) for path in sorted(temporary.rglob("*")) if path.is_file()}
        if wrong := next(filter(Path.is_dir, files.values()), None):
            raise ValueError(f"{wrong} is a folder where a file should be: remove it")
        for path, target in files.items():
            if target.is_file():
                if filecmp.cmp(path, target, shallow=False):
                    continue
                shutil.copymode(target, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            change.written.append(target)
        for path in map(folder.joinpath, change.removed):
            # a name may come from a file of others
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                path.unlink()


@contextmanager
def new_folder(target: str | os.PathLike, may_replace: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary folder that becomes `target` when the block ends well, and is removed when it does not.

    `may_replace(target)` raises an error if the target exists, is not empty, and must stay.

    Raises:
        ValueError: `target`, or a folder that it would be in, is a file.
    """
    path = absolute(target)
    if file := next(filter(Path.is_file, (path, *path.parents)), None):
        raise ValueError(f"folder={str(path)!r}: {file} is a file; name a folder that does not exist yet")

    def check() -> None:
        if path.is_dir() and any(path.iterdir()):
            may_replace(path)

    check()
    with temporary_folder(path) as temporary:
        built, old = temporary / "new", temporary / "old"
        built.mkdir()
        yield built
        # what has appeared meanwhile is not to be lost
        check()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(old)
        try:
            built.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A temporary folder in the nearest folder above `path` that exists, and so on its file system."""
    base = next(parent for parent in path.absolute().parents if parent.exists())
    with tempfile.TemporaryDirectory(prefix=".", suffix=PARTIAL, dir=base, ignore_cleanup_errors=True) as temporary:
        yield Path(temporary)


def file_name(*words: str | None) -> str:
    """A name for every file system, of the `words` that are not empty."""
    return "_".join(re.sub(r"[^\w-]+", "_", word) for word in words if word)


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
    """The data in a JSON file. Raises a ValueError if it is not JSON."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, place: str) -> Any:
    """The data in a JSON text from `place`. Raises a ValueError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not JSON: {error}") from error


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | os.PathLike) -> Any:
    """The data in a YAML file. Raises a ValueError if it is not YAML of plain data, or has a key twice."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, place: str, loader: type[UniqueKeyLoader] = UniqueKeyLoader) -> Any:
    """The data in a YAML text from `place`; errors are those of `read_yaml`."""
    try:
        return loader(text).get_single_data()
    # a date that does not exist is a ValueError, a list for a key a TypeError
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{place} is not valid YAML: {one_line(error)}") from error


def read_text(path: str | os.PathLike) -> str:
    """The text of a file in UTF-8. Raises a ValueError if it is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error


class RecipeLoader(UniqueKeyLoader):
    """YAML 1.1 reads 7e-4 as a string, where people mean the number, and 010 as 8, 1:30 as 90."""


INTEGER, FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float"))
RecipeLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in (INTEGER, FLOAT)]
    for first, pairs in UniqueKeyLoader.yaml_implicit_resolvers.items()
}
NUMBERS = {
    INTEGER: r"[-+]?(?:0|[1-9][\d_]*|0x[\da-f]+)",
    FLOAT: r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:e[-+]?\d+)?|\d+e[-+]?\d+|\.inf)|\.nan",
}
for tag, pattern in NUMBERS.items():
    RecipeLoader.add_implicit_resolver(
        tag, re.compile(f"^(?:{pattern})$", re.ASCII | re.IGNORECASE), list("-+.0123456789")
    )


def mapping(name: str, value: Any) -> dict[str, Any]:
    """A mapping, or the YAML or JSON of one as a flag gives it; nothing is an empty one."""
    parsed = (
        parse_yaml(value, f"{name} is {reprlib.repr(value)}, which", RecipeLoader) if isinstance(value, str) else value
    )
    if parsed is not None and not isinstance(parsed, dict):
        raise ValueError(f"{name} is {reprlib.repr(value)}: expected a mapping such as '{{key: value}}'")
    return dict(parsed or {})


def absolute(path: str | os.PathLike) -> Path:
    """A path without `~` and links; a link in a circle stays."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def one_line(error: BaseException, most: int = 400) -> str:
    """An error's message without its line breaks, and no longer than `most` letters."""
    return " ".join(str(error).split())[:most] or type(error).__name__


NOTHING = "\u2013"
# a text that Markdown, HTML or a reader would take for something else than a value
MISTAKABLE = re.compile(r"[\[\]<>`*]|\{\{|\{%|%\}|\}\}|(?i:More Information Needed)|^(?:None|nan|NaN|Undefined)$")


@functools.cache
def template(path: Path, autoescape: bool = False, **filters: Callable) -> "jinja2.Template":
    """The template in a file, compiled once. A name that it uses and is not given is an error.

    Args:
        path: the file; templates that it includes lie beside it.
        autoescape: for HTML, where every value is text until it is marked up.
        filters: functions that the template may apply to values, beside those of `FILTERS`.
    """
    # slow to import, and most commands render nothing
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS | filters
    return environment.get_template(path.name)


def percent(value: float | None) -> str:
    """A fraction in percent with one decimal, or as many as keep a fraction below 1 from being rounded to 100%."""
    if value is None:
        return NOTHING
    for digits in (1, 2, 3, 4):
        text = f"{100 * value:.{digits}f}%"
        if value >= 1 or float(text[:-1]) < 100:
            break
    return text


def number(value: float | None, digits: int = 2) -> str:
    """A number with at most `digits` decimals, thousands separated, without trailing zeros."""
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def steps(value: float | None) -> str:
    """A mean number of steps, or a weight: two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def bits(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount) or "0 s"


def near_matches(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' or nothing."""
    near = difflib.get_close_matches(str(name), known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise a ValueError that lists the known names and the likely one, if `name` is not among them."""
    known = list(known)
    if name not in known:
        raise ValueError(f"{kind} is {name!r}: expected one of {', '.join(known)}{near_matches(name, known)}")


def near_names(path: Path) -> str:
    """The names beside a path that were probably meant, as a question, or nothing."""
    return near_matches(path.name, (other.name for other in path.parent.glob("*")))


def literal(value: Any) -> str:
    """A value as JSON; for a string this is a Python literal as well."""
    return json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Text that cannot end its table cell or break its line; as code where it could be taken for something else."""
    text = str(value)
    return code(text) if MISTAKABLE.search(text) else text.replace("|", "\\|").replace("\n", " ")


def code(text: str, in_table: bool = True) -> str:
    """A text as inline code that cannot end its table cell, break its line or be taken for markup."""
    text = text.replace("\n", "\\n")
    if in_table:
        text = text.replace("|", "\\|")
    # more backticks than the text has in a row
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"


FILTERS = {item.__name__: item for item in (percent, number, steps, bits, signed, duration, literal, cell, code)}


def reader_versions() -> list[str]:
    """The packages that decide what is read from a file and how it is cut into tokens, with their versions.

    They are part of every cached data set's identity, so that a newer reader reads a file again.
    """
    return [f"{name} {version(name)}" for name in ("hf-recurrent", "datasets", "tokenizers", "transformers")]
