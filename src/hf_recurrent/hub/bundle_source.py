"""A module's source as top-level statements: which names each defines, uses and changes, and its text."""

import ast
import symtable
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ALLOWED = (*DEFINITIONS, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.Try)
IMPORTS = (ast.Import, ast.ImportFrom)


class Symbol(NamedTuple):
    """A name that a module of the package defines."""

    module: str
    name: str


class External(NamedTuple):
    """An import from outside the package.

    Attributes:
        name: None imports the module itself.
        typing: it stands under `if TYPE_CHECKING`.
        guard: the lines of the `try` statement that it is part of.
    """

    module: str
    name: str | None
    alias: str | None
    typing: bool = False
    guard: tuple[str, ...] = ()

    @property
    def meaning(self) -> tuple[str | None, ...]:
        """The same for imports that bind the same thing: `import a` and `import a.b` both bind `a`."""
        whole = self.name is None and self.alias is None
        return (self.module.partition(".")[0], None) if whole else (self.module, self.name)


def refuse(module: "Module", node: ast.AST, why: str) -> NoReturn:
    raise ValueError(f"{module.path}:{getattr(node, 'lineno', 1)}: {why}")


@dataclass(eq=False)
class Statement:
    """A top-level statement of a module, with the comments above it from line `first` on."""

    module: "Module"
    node: ast.stmt
    first: int

    def __post_init__(self):
        for node in ast.walk(self.node):
            package = self.module.name.partition(".")[0]
            if isinstance(node, ast.ImportFrom) and self.module.absolute(node).partition(".")[0] == package:
                refuse(self.module, node, "this import inside a statement cannot be bundled: put it on top")
        if any(symbol.is_declared_global() for scope in self.scopes[1:] for symbol in scope.get_symbols()):
            refuse(self.module, self.node, "`global` cannot be bundled: pass the value as an argument")

    @property
    def lines(self) -> list[str]:
        return self.module.lines[self.first - 1 : self.node.end_lineno]

    @cached_property
    def scopes(self) -> list[symtable.SymbolTable]:
        """The statement's own scope, then those of the functions and classes in it."""
        scopes = [symtable.symtable("\n".join(self.lines), str(self.module.path), "exec")]
        for scope in scopes:
            scopes += scope.get_children()
        return scopes

    @cached_property
    def names(self) -> set[str]:
        """The names of the module that it defines."""
        return {symbol.get_name() for symbol in self.scopes[0].get_symbols() if symbol.is_assigned()}

    @cached_property
    def used(self) -> set[str]:
        """The names of the module in its text, its own included."""
        found = set(self.scopes[0].get_identifiers()) | {name for name, _, _ in self.names_in_text}
        for scope in self.scopes[1:]:
            # the body of a class may use a name of the module before it gives it another meaning
            own = scope.get_type() == "class"
            found |= {s.get_name() for s in scope.get_symbols() if s.is_global() or (own and s.is_referenced())}
        return found

    @cached_property
    def variables(self) -> set[str]:
        """The variables of the functions and classes in it."""
        symbols = [symbol for scope in self.scopes[1:] for symbol in scope.get_symbols()]
        return {symbol.get_name() for symbol in symbols if symbol.is_local() and not symbol.is_namespace()}

    @cached_property
    def annotation_texts(self) -> list[ast.Constant]:
        """Annotations, or parts of them, that are written as text."""
        found = [getattr(node, name, None) for node in ast.walk(self.node) for name in ("annotation", "returns")]
        waiting, texts = [node for node in found if node is not None], []
        for node in waiting:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node)
            elif not (isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")):
                waiting += ast.iter_child_nodes(node)
        return texts

    @cached_property
    def names_in_text(self) -> list[tuple[str, int, int]]:
        """Names in annotations that are written as text, with line and column."""
        return [
            (node.id, text.lineno, text.col_offset + 1 + node.col_offset)
            for text in self.annotation_texts
            for node in ast.walk(ast.parse(text.value, mode="eval"))
            if isinstance(node, ast.Name)
        ]

    @cached_property
    def strings(self) -> set[str]:
        """The texts in it that are not annotations."""
        found = [node for node in ast.walk(self.node) if isinstance(node, ast.Constant)]
        return {node.value for node in found if isinstance(node.value, str) and node not in self.annotation_texts}

    @property
    def effect(self) -> bool:
        """Whether it defines nothing, but changes something."""
        return not self.names

    @property
    def subject(self) -> str | None:
        """What an effect changes: `TABLE` in `TABLE["key"] = value` and in `TABLE.register(...)`."""
        node = self.node.targets[0] if isinstance(self.node, ast.Assign) else getattr(self.node, "value", None)
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        return node.id if isinstance(node, ast.Name) else None

    def blank_lines_after(self, before: "Statement | None") -> int:
        """How many blank lines come before it, as the formatter wants it; `before` is None after a heading."""
        if isinstance(self.node, DEFINITIONS) or (before and isinstance(before.node, DEFINITIONS)):
            return 2
        return 1 if before is None else min(1, self.first - before.node.end_lineno - 1)

    def render(self, final_name: Callable[[str], str]) -> list[str]:
        """Its lines, with each name replaced by the one that it has in the bundle."""
        changed = {name: final_name(name) for name in self.used if final_name(name) != name}
        if not changed:
            return self.lines
        for name, final in changed.items():
            if not self.variables.isdisjoint((name, final)):
                refuse(
                    self.module, self.node, f"{name} becomes {final}, one of which is also a variable here: rename it"
                )
        lines = [line.encode() for line in self.lines]
        for name, number, column in sorted(self.places(), key=lambda place: (place[1], -place[2])):
            if name in changed:
                line, end = lines[number - self.first], column + len(name.encode())
                if line[column:end] != name.encode():
                    refuse(self.module, self.node, f"{name} becomes {changed[name]}, but not in this text: rename it")
                lines[number - self.first] = line[:column] + changed[name].encode() + line[end:]
        return [line.decode() for line in lines]

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Each name of the module in its text, with line and column in bytes."""
        if isinstance(self.node, DEFINITIONS):
            start = self.module.lines[self.node.lineno - 1].index(f" {self.node.name}") + 1
            yield self.node.name, self.node.lineno, start
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name):
                yield node.id, node.lineno, node.col_offset
        yield from self.names_in_text


@dataclass(eq=False)
class Module:
    """A module of the package.

    Attributes:
        internal: name -> what it is imported from in the package.
        external: name -> how it is imported from elsewhere.
        imports, type_imports: the modules of the package that it imports, always or for type checkers only.
        future: the lines that import from `__future__`.
    """

    name: str
    path: Path
    lines: list[str]
    tree: ast.Module
    statements: list[Statement] = field(default_factory=list)
    internal: dict[str, Symbol] = field(default_factory=dict)
    external: dict[str, list[External]] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    type_imports: list[str] = field(default_factory=list)
    future: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, source: Path) -> "Module":
        stem = source.joinpath(*name.split("."))
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        if not path.is_file():
            raise ValueError(f"{name} is not a module of the package: {path} does not exist")
        text = path.read_text(encoding="utf-8")
        module = cls(name, path, text.splitlines(), ast.parse(text))
        end = 0
        for node in module.tree.body:
            start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            comments = (number for number in range(end + 1, start) if module.lines[number - 1].startswith("#"))
            module.add(node, next(comments, start))
            end = node.end_lineno
        return module

    @property
    def docstring(self) -> str | None:
        return ast.get_docstring(self.tree)

    @property
    def shown(self) -> str:
        """Its path, from the package's folder."""
        return "/".join(self.path.parts[-self.name.count(".") - 1 - (self.path.stem == "__init__") :])

    @cached_property
    def defined(self) -> dict[str, list[Statement]]:
        """Name -> the statements that define it."""
        names = {name for statement in self.statements for name in statement.names}
        return {name: [statement for statement in self.statements if name in statement.names] for name in names}

    @cached_property
    def public(self) -> tuple[str, ...]:
        """The names in `__all__`."""
        return tuple(name for s in self.defined.get("__all__", ()) for name in ast.literal_eval(s.node.value))

    @cached_property
    def libraries(self) -> set[str]:
        return {external.module.partition(".")[0] for several in self.external.values() for external in several}

    def add(self, node: ast.stmt, first: int) -> None:
        """Enter a top-level statement, whose comments begin in line `first`."""
        body = node.body if isinstance(node, ast.If | ast.Try) else [None]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            self.future = tuple(self.lines[first - 1 : node.end_lineno])
        elif isinstance(node, IMPORTS):
            self.add_import(node)
        elif all(isinstance(inner, IMPORTS) for inner in body) and (
            isinstance(node, ast.Try) or ast.unparse(node.test).endswith("TYPE_CHECKING")
        ):
            for inner in body:
                guard = tuple(self.lines[first - 1 : node.end_lineno]) if isinstance(node, ast.Try) else ()
                self.add_import(inner, typing=not guard, guard=guard)
        elif isinstance(node, ALLOWED):
            self.statements.append(Statement(self, node, first))
        else:
            kind = type(node).__name__.lower()
            refuse(self, node, f"a `{kind}` statement at the top of a module cannot be bundled: put it in a function")

    def add_import(self, node: ast.Import | ast.ImportFrom, typing: bool = False, guard: tuple[str, ...] = ()) -> None:
        origin = self.absolute(node) if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            bound, target = alias.asname or alias.name.partition(".")[0], origin or alias.name
            if target.partition(".")[0] != self.name.partition(".")[0]:
                external = External(target, alias.name if origin else None, alias.asname, typing, guard)
                self.external.setdefault(bound, []).append(external)
            elif origin is None or alias.name == "*" or self.is_module(f"{origin}.{alias.name}"):
                refuse(self, node, f"`{ast.unparse(node)}` imports a whole module: import names from it")
            elif guard:
                refuse(self, node, "imports from the package under `try` cannot be bundled: import them always")
            else:
                self.internal[bound] = Symbol(origin, alias.name)
                (self.type_imports if typing else self.imports).append(origin)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that an import is from, with its packages."""
        parts = self.name.split(".")[: None if self.path.name == "__init__.py" else -1]
        before = parts[: len(parts) - node.level + 1] if node.level else []
        return ".".join([*before, *([node.module] if node.module else [])])

    def is_module(self, name: str) -> bool:
        root = self.path.parents[self.name.count(".") + (self.path.name == "__init__.py")]
        stem = root.joinpath(*name.split("."))
        return stem.is_dir() or stem.with_suffix(".py").is_file()
