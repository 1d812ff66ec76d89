"""The model code of a checkpoint: the modules of the package that an architecture imports, merged into a few files.

`trust_remote_code` loads files that lie beside config.json and import nothing but each other and installed libraries.
Modules are written one after another, in the order in which Python would finish their import, each under its path, and
what they import from libraries stands at the top. So a name may mean one thing only in all modules of an architecture.
"""

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from ..registry import ARCHITECTURES

SOURCE = Path(__file__).parents[2]
IMPORTS = (ast.Import, ast.ImportFrom)


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
        imported: what it imports from the package.
        libraries: its other imports.
        rest: further top-level statements, and their text with what stands above them.
    """

    def __init__(self, name: str, source: Path):
        stem = source.joinpath(*name.split("."))
        self.name, self.path = name, stem.with_suffix(".py")
        text = self.path.read_text(encoding="utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        self.docstring = ast.get_docstring(tree)
        self.imported: list[ast.ImportFrom] = []
        self.libraries: list[ast.Import | ast.ImportFrom] = []
        self.rest: list[tuple[ast.stmt, str]] = []
        end = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                self.imported.append(node)
            elif isinstance(node, IMPORTS):
                self.libraries.append(node)
            elif any(isinstance(inner, ast.ImportFrom) and inner.level for inner in ast.walk(node)):
                self.refuse(node, "an import from the package inside a statement cannot be bundled: put it on top")
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                self.rest.append((node, "\n".join(lines[end : node.end_lineno])))
            end = node.end_lineno or end

    @property
    def for_whole_file(self) -> bool:
        """Whether it imports from `__future__`."""
        return any(getattr(node, "module", None) == "__future__" for node in self.libraries)

    @property
    def file(self) -> str:
        """The name of a file that begins with it."""
        package, stem = self.name.split(".")[-2:]
        return stem if stem.endswith(package) else f"{stem}_{package}"

    def origins(self) -> Iterator[tuple[str, list[str]]]:
        """The modules of the package that it imports from, with the names."""
        for node in self.imported:
            names = [alias.name for alias in node.names]
            if node.module is None or any(alias.asname for alias in node.names):
                self.refuse(node, "import names from modules of the package, under no other names")
            yield ".".join([*self.name.split(".")[: -node.level], node.module]), names

    def refuse(self, node: ast.AST, why: str) -> NoReturn:
        raise ValueError(f"{self.path}:{getattr(node, 'lineno', 1)}: {why}")


def bundle(entries: Iterable[str], source: Path, maker: str) -> dict[str, str]:
    """Merge modules with what they import from their package: name of each file -> its text.

    Args:
        entries: modules with an `__all__`. Each begins a file that imports from those before it, and so does a module
            that imports from `__future__`, which holds for a whole file.
        source: the folder that holds the package.
        maker: name and version of the package, for the headings.

    Raises:
        ValueError: a statement that cannot be merged, and where.
    """
    read = cache(lambda name: Module(name, source))

    def imports(name: str, path: tuple[str, ...] = ()) -> dict[str, Module]:
        if name in path:
            raise ValueError(f"circular imports cannot be bundled: {' -> '.join([*path, name])}")
        found: dict[str, Module] = {}
        for origin, _ in read(name).origins():
            found |= {} if origin in found else imports(origin, (*path, name))
        return found | {name: read(name)}

    files: dict[str, list[Module]] = {}
    homes: dict[str, str] = {}
    for entry in entries:
        needed = imports(entry)
        for first in [*(module for module in needed.values() if module.for_whole_file), read(entry)]:
            files[first.file] = [module for name, module in imports(first.name).items() if name not in homes]
            homes |= {module.name: first.file for module in files[first.file]}
    check_names([module for modules in files.values() for module in modules])
    return {f"{file}.py": render(file, modules, homes, maker) for file, modules in files.items()}


def check_names(modules: Iterable[Module]) -> None:
    """Raise a ValueError for a name that two modules give different meanings, or that is one of Python's own."""
    known: dict[str, Any] = dict.fromkeys(dir(builtins))
    for module in modules:
        for node in [*module.libraries, *(node for node, _ in module.rest)]:
            for name, meaning in bound(node):
                if known.setdefault(name, meaning) != meaning and name != "__all__":
                    module.refuse(node, f"{name} means something else in another module, or in Python: rename it")


def bound(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """The names that a top-level statement binds, and what to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name, ast.unparse(node)
    elif isinstance(node, IMPORTS):
        origin = getattr(node, "module", None)
        for alias in node.names:
            whole = alias.name.partition(".")[0]
            yield alias.asname or whole, (origin, alias.name if origin or alias.asname else whole)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
            if isinstance(name.ctx, ast.Store):
                yield name.id, ast.unparse(node)
    elif isinstance(node, ast.If | ast.Try):
        for inner in node.body:
            yield from bound(inner)


def render(file: str, modules: list[Module], homes: dict[str, str], maker: str) -> str:
    """The text of a file."""
    entry = modules[-1]
    lines = [f"# generated by {maker} from {entry.path.name}; do not edit"]
    lines += [f'"""{entry.docstring}"""', ""] if entry.docstring else []
    lines += import_lines(node for module in modules for node in module.libraries)
    local = defaultdict(set)
    for origin, names in (found for module in modules for found in module.origins()):
        if homes[origin] != file:
            local[homes[origin]] |= set(names)
    lines += [f"from .{home} import {', '.join(sorted(names))}" for home, names in sorted(local.items())]
    for module in modules:
        heading = [f"--- {'/'.join(module.name.split('.'))}.py ({maker})"]
        if module is not entry and module.docstring:
            heading += module.docstring.splitlines()
        lines += ["", "", *(f"# {line}".rstrip() for line in heading)]
        public = [text for node, text in module.rest if module is entry or dict(bound(node)).keys() != {"__all__"}]
        lines.append("\n".join(public).rstrip())
    return "\n".join(lines) + "\n"


def import_lines(nodes: Iterable[ast.Import | ast.ImportFrom]) -> list[str]:
    """Imports of libraries, each once; those from `__future__` come first."""
    whole, named = set(), defaultdict(set)
    for node in nodes:
        for alias in node.names:
            names = whole if isinstance(node, ast.Import) else named[node.module]
            names.add(ast.unparse(alias))
    lines = [f"import {name}" for name in sorted(whole)]
    lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(named.items())]
    return sorted(lines, key=lambda line: not line.startswith("from __future__"))
