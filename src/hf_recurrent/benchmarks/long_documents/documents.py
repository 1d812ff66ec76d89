"""Documents: their examples, which split each belongs to, and those of the Python standard library.

In the library, a package is one document: its source files in the order of their paths. A module that is a single file
is one document if it has `SMALL` bytes or more. Smaller modules and packages are put together by their first letter
(`GROUPS`), so that every document is long and keeps its name from one version of Python to the next.

Modules are those of `sys.stdlib_module_names`: neither what is installed beside the library nor what a build generates.
Folders of tests are left out.
"""

import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..files import SPLITS
from ..sampling import digest

_HASH_DIGITS = 13
# the sum of two shares may be off by as much
_ROUNDING = 1e-9


class Document(NamedTuple):
    """A document and the files, relative to their folder or archive, that it is made of, in order."""

    name: str
    parts: tuple[str, ...]


def shares(params: Mapping[str, Any]) -> dict[str, float]:
    """The share of each split that is to have documents.

    Raises:
        ValueError: the shares of validation and test are more than everything.
    """
    validation, test = params["validation_share"], params["test_share"]
    train = 1.0 - validation - test
    if train < -_ROUNDING:
        raise ValueError(
            f"validation_share={validation} and test_share={test} add up to more than 1: give smaller shares"
        )
    found = zip(SPLITS, (train, validation, test), strict=True)
    return {split: share for split, share in found if share > _ROUNDING}


def split_of(name: str, params: Mapping[str, Any]) -> str:
    """The split of a document: a function of its name, the seed and the shares alone.

    So a document keeps its split when others are added or removed.
    """
    drawn = int(digest("long_documents", params["seed"], name)[:_HASH_DIGITS], 16) / 16**_HASH_DIGITS
    bound, wanted = 0.0, shares(params)
    for split in reversed(wanted):
        bound += wanted[split]
        if drawn < bound:
            return split
    # rounding
    return next(iter(wanted))


def divide(documents: Sequence[Document], params: Mapping[str, Any]) -> dict[str, list[Document]]:
    """The documents of each split that has a share.

    Raises:
        ValueError: a split has a share, but no document falls into it.
    """
    splits: dict[str, list[Document]] = {split: [] for split in shares(params)}
    for document in documents:
        splits[split_of(document.name, params)].append(document)
    for split, members in splits.items():
        if not members:
            raise ValueError(
                f"none of {len(documents)} documents falls into the {split} split (seed={params['seed']}, "
                f"validation_share={params['validation_share']}, test_share={params['test_share']}): give another seed "
                "or other shares (0 for a split that is not wanted), or put the files into folders named train, "
                "validation and test"
            )
    return splits


def joined(texts: Iterable[str]) -> str:
    """Texts one after the other; a newline is put between two where the first does not end with one."""
    pieces: list[str] = []
    for text in texts:
        if pieces and text and not pieces[-1].endswith("\n"):
            pieces.append("\n")
        if text:
            pieces.append(text)
    return "".join(pieces)


def make_example(name: str, source: str, text: str) -> dict[str, object]:
    """The example of a document; words are the parts between white space."""
    return {
        "text": text,
        "name": name,
        "source": source,
        "num_bytes": len(text.encode()),
        "num_characters": len(text),
        "num_words": len(text.split()),
    }


SMALL = 16_384
# each has 40 to 110 thousand bytes in Python 3.11
GROUPS = ("ab", "c", "def", "ghi", "jkl", "mno", "pqr", "s", "tuvwxyz")
_TESTS = {"test", "tests", "idle_test"}


def library_folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def library_documents(root: Path, modules: Iterable[str] = sys.stdlib_module_names) -> list[Document]:
    """The documents of a standard library, by name.

    Raises:
        ValueError: it has no source files.
    """
    documents: list[Document] = []
    small: dict[str, list[str]] = {}
    for module in sorted(modules):
        if (root / f"{module}.py").is_file():
            parts: tuple[str, ...] = (f"{module}.py",)
        else:
            found = sorted(path.relative_to(root) for path in (root / module).rglob("*.py") if path.is_file())
            parts = tuple(path.as_posix() for path in found if not _TESTS & set(path.parts))
        size = sum((root / part).stat().st_size for part in parts)
        if size >= SMALL:
            documents.append(Document(module, parts))
        elif size:
            letter = module.lstrip("_")[0].lower()
            group = next((group for group in GROUPS if letter in group), GROUPS[-1])
            name = f"small modules {group[0]}-{group[-1]}" if len(group) > 1 else f"small modules {group}"
            small.setdefault(name, []).extend(parts)
    if not documents and not small:
        raise ValueError(f"{root} has no source files of the Python standard library: use config 'folder' and data_dir")
    documents += [Document(name, tuple(parts)) for name, parts in small.items()]
    return sorted(documents)
