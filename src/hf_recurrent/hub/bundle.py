"""The model code of a checkpoint: the modules of the package that an architecture imports, merged into a few files.

`trust_remote_code` loads files that lie beside config.json and import nothing but each other and installed libraries.
Modules are written one after another, each under its path, in the order in which Python would finish their import. So a
name may mean one thing only in all modules of an architecture.
"""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..registry import ARCHITECTURES

SOURCE = Path(__file__).parents[2]
# holds for a whole file
FUTURE = "from __future__ import annotations"


@cache
def code_files(model_type: str) -> dict[str, str]:
    """The Python files that `trust_remote_code` needs for an architecture: name -> text.

    Raises:
        ValueError: the package's code is written in a way that cannot be bundled.
    """
    from .. import __version__

    entries = sorted(set(ARCHITECTURES[model_type].class_names.values()))
    return bundle(entries, SOURCE, f"hf_recurrent {__version__}")


class Module:
    """A module of a package.

    Attributes:
        imported: modules of the package that it imports from -> names.
        meanings: name -> what else its top-level statements bind it to.
        code: its text without these imports.
    """

    def __init__(self, name: str, source: Path):
        self.name, self.path = name, source.joinpath(*name.split(".")).with_suffix(".py")
        text = self.path.read_text(encoding="utf-8")
        self.future, lines, tree = FUTURE in text, text.replace(FUTURE, "").splitlines(), ast.parse(text)
        self.imported: dict[str, list[str]] = {}
        self.meanings = {name: meaning for node in tree.body for name, meaning in bound(node).items()}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                if node not in tree.body or node.module is None or any(alias.asname for alias in node.names):
                    raise ValueError(
                        f"{self.path}:{node.lineno}: import names from modules of the package at the top, under no "
                        "other names: nothing else can be bundled"
                    )
                origin = ".".join([*name.split(".")[: -node.level], node.module])
                self.imported[origin] = [alias.name for alias in node.names]
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[number] = ""
        self.code = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()

    @property
    def file(self) -> str:
        """The name of a file that begins with it."""
        package, stem = self.name.split(".")[-2:]
        return f"{stem if stem.endswith(package) else f'{stem}_{package}'}.py"


def bound(node: ast.AST) -> dict[str, Any]:
    """The names that a top-level statement binds, and what to."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name: ast.unparse(node)}
        case ast.Import():
            return {name: name for name in (alias.asname or alias.name.partition(".")[0] for alias in node.names)}
        case ast.ImportFrom(level=0):
            return {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (inner for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))
            return {name.id: ast.unparse(node) for name in names if isinstance(name.ctx, ast.Store)}
        case ast.If() | ast.Try():
            return {name: meaning for inner in node.body for name, meaning in bound(inner).items()}
    return {}


def bundle(entries: Iterable[str], source: Path, maker: str) -> dict[str, str]:
    """Merge modules with what they import from their package: name of each file -> its text.

    Args:
        entries: modules, each of which is the last of a file that imports from those before it. So is a module with an
            import from `__future__`.
        source: the folder that holds the package.
        maker: name and version of the package, for the headings.

    Raises:
        ValueError: a statement that cannot be merged, and where.
    """
    read = cache(lambda name: Module(name, source))

    @cache
    def needed(name: str) -> dict[str, Module]:
        """A module with those that it imports, in the order in which their imports end."""
        before = {name: module for origin in read(name).imported for name, module in needed(origin).items()}
        return before | {name: read(name)}

    files: dict[str, list[Module]] = {}
    homes: dict[str, str] = {}
    for entry in entries:
        for last in [*(module for module in needed(entry).values() if module.future), read(entry)]:
            files[last.file] = [module for name, module in needed(last.name).items() if name not in homes]
            homes |= {module.name: last.file for module in files[last.file]}
    check_names(module for modules in files.values() for module in modules)
    return {file: render(file, modules, homes, maker) for file, modules in files.items()}


def check_names(modules: Iterable[Module]) -> None:
    """Raise a ValueError for a name that two modules give different meanings, or that is one of Python's own."""
    known: dict[str, Any] = dict.fromkeys(dir(builtins))
    for module in modules:
        for name, meaning in module.meanings.items():
            if known.setdefault(name, meaning) != meaning and name != "__all__":
                raise ValueError(
                    f"{module.path}: {name} means something else in another module, or in Python: rename it"
                )


def render(file: str, modules: Sequence[Module], homes: dict[str, str], maker: str) -> str:
    """The text of a file. The `__all__` of its last module is the one that counts."""
    local = defaultdict(set)
    for module in modules:
        for origin, names in module.imported.items():
            if homes[origin] != file:
                local[homes[origin].removesuffix(".py")] |= set(names)
    lines = [f"# generated by {maker}; do not edit", *([FUTURE] if modules[-1].future else ())]
    lines += [f"from .{home} import {', '.join(sorted(names))}" for home, names in sorted(local.items())]
    for module in modules:
        lines.append(f"\n\n# --- {module.name.replace('.', '/')}.py ({maker})\n\n{module.code}")
    return "\n".join(lines) + "\n"
