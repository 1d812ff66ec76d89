"""The Python standard library as documents.

A package is one document: its source files in the order of their paths. A module that is a single file is one document
if it has `SMALL` bytes or more. Smaller modules and packages are put together by their first letter (`GROUPS`), so that
every document is long and keeps its name from one version of Python to the next.

Modules are those of `sys.stdlib_module_names`: neither what is installed beside the library nor what a build generates.
Folders of tests are left out.
"""

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from .documents import Document

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
        parts = _sources(root, module)
        size = sum((root / part).stat().st_size for part in parts)
        if size >= SMALL:
            documents.append(Document(module, parts))
        elif size:
            small.setdefault(_group(module), []).extend(parts)
    if not documents and not small:
        raise ValueError(f"{root} has no source files of the Python standard library: use config 'folder' and data_dir")
    documents += [Document(name, tuple(parts)) for name, parts in small.items()]
    return sorted(documents)


def _sources(root: Path, module: str) -> tuple[str, ...]:
    if (root / f"{module}.py").is_file():
        return (f"{module}.py",)
    found = [path.relative_to(root) for path in (root / module).rglob("*.py") if path.is_file()]
    return tuple(path.as_posix() for path in sorted(found) if not _TESTS & set(path.parts))


def _group(module: str) -> str:
    letter = module.lstrip("_")[0].lower()
    group = next((group for group in GROUPS if letter in group), GROUPS[-1])
    return f"small modules {group[0]}-{group[-1]}" if len(group) > 1 else f"small modules {group}"
