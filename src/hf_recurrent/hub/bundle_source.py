"""A module's source as top-level statements: which names each defines, uses and changes, and its text."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Symbol(NamedTuple):
    """A name that a module defines."""

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


class Reference(NamedTuple):
    """Where a statement's text has a name of its module; `locals` are the names of the functions around it."""

    name: str
    line: int
    column: int
    locals: frozenset[str]


def refuse(module: "Module", node: ast.AST, why: str) -> NoReturn:
    raise ValueError(f"{module.path}:{getattr(node, 'lineno', 1)}: {why}")


@dataclass(eq=False)
class Statement:
    """A top-level statement with the comments above it.

    Attributes:
        first, last: its lines, from 1.
        names: what it defines.
        subject: what it changes, if it is an effect with a subject.
        references: the names of its module in its text, its own included.
    """

    module: "Module"
    node: ast.stmt
    first: int
    names: frozenset[str]
    effect: bool
    subject: str | None
    references: list[Reference]

    @property
    def last(self) -> int:
        return self.node.end_lineno

    @cached_property
    def used(self) -> set[str]:
        return {reference.name for reference in self.references}

    def blank_lines_after(self, before: "Statement | None") -> int:
        """How many blank lines come before it, as the formatter wants it; `before` is None after a heading."""
        if before is None:
            return 1 if not isinstance(self.node, DEFINITIONS) else 2
        if isinstance(self.node, DEFINITIONS) or isinstance(before.node, DEFINITIONS):
            return 2
        return min(1, self.first - before.last - 1)

    def render(self, final_name: Callable[[str], str]) -> list[str]:
        """Its lines, with each name replaced by the one that it has in the bundle."""
        lines = {number: self.module.lines[number - 1].encode() for number in range(self.first, self.last + 1)}
        for name, number, column, around in sorted(set(self.references), key=lambda r: (r.line, -r.column)):
            final, old = final_name(name), name.encode()
            if final == name:
                continue
            line = lines[number]
            if final in around:
                refuse(self.module, self.node, f"{name} becomes {final}, which is the name of a local variable here")
            if line[column : column + len(old)] != old:
                refuse(self.module, self.node, f"{name} becomes {final}, but not in this text: rename it in the module")
            lines[number] = line[:column] + final.encode() + line[column + len(old) :]
        return [line.decode() for line in lines.values()]


@dataclass(eq=False)
class Module:
    """A module of the package.

    Attributes:
        defined: name -> the statements that define it.
        internal: name -> what it is imported from in the package.
        external: name -> how it is imported from elsewhere.
        imports, type_imports: the modules of the package that it imports, always or for type checkers only.
        public: the names in `__all__`.
        strings: the texts that are not documentation or annotations.
        future: the lines that import from `__future__`.
    """

    name: str
    path: Path
    lines: list[str]
    tree: ast.Module
    statements: list[Statement] = field(default_factory=list)
    defined: dict[str, list[Statement]] = field(default_factory=dict)
    internal: dict[str, Symbol] = field(default_factory=dict)
    external: dict[str, list[External]] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    type_imports: list[str] = field(default_factory=list)
    public: tuple[str, ...] = ()
    strings: set[str] = field(default_factory=set)
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
            module.add(node, end + 1)
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
    def libraries(self) -> set[str]:
        return {external.module.partition(".")[0] for several in self.external.values() for external in several}

    def add(self, node: ast.stmt, gap: int) -> None:
        """Enter a top-level statement; `gap` is the line after the one before."""
        body = node.body if isinstance(node, ast.If | ast.Try) else []
        only_imports = body and all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in body)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", "") == "__future__":
                self.future = tuple(self.text_from(self.first_comment(gap, node), node))
            else:
                self.add_import(node)
        elif only_imports and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in body:
                self.add_import(inner, typing=True)
        elif only_imports and isinstance(node, ast.Try):
            guard = tuple(self.text_from(self.first_comment(gap, node), node))
            for inner in body:
                self.add_import(inner, guard=guard)
        else:
            self.add_statement(node, self.first_comment(gap, node))

    def first_comment(self, gap: int, node: ast.stmt) -> int:
        """The line where the comments above a statement begin."""
        start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        return next((n for n in range(gap, start) if self.lines[n - 1].startswith("#")), start)

    def text_from(self, first: int, node: ast.stmt) -> list[str]:
        return self.lines[first - 1 : node.end_lineno]

    def add_import(self, node: ast.Import | ast.ImportFrom, typing: bool = False, guard: tuple[str, ...] = ()) -> None:
        package = self.name.partition(".")[0]
        origin = self.absolute(node) if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            target = origin or alias.name
            if target.partition(".")[0] != package:
                name = alias.name if origin else None
                self.external.setdefault(bound, []).append(External(target, name, alias.asname, typing, guard))
            elif origin is None or alias.name == "*" or self.is_module(f"{origin}.{alias.name}"):
                refuse(self, node, f"`{ast.unparse(node)}` imports a whole module: import names from it")
            elif guard:
                refuse(self, node, "imports from the package under `try` cannot be bundled: import them always")
            else:
                self.internal[bound] = Symbol(origin, alias.name)
                (self.type_imports if typing else self.imports).append(origin)

    def absolute(self, node: ast.ImportFrom) -> str:
        parts = self.name.split(".")
        parts = parts if self.path.name == "__init__.py" else parts[:-1]
        before = parts[: len(parts) - node.level + 1] if node.level else []
        return ".".join([*before, *([node.module] if node.module else [])])

    def is_module(self, name: str) -> bool:
        stem = self.path.parents[self.name.count(".") + (self.path.name == "__init__.py")].joinpath(*name.split("."))
        return stem.is_dir() or stem.with_suffix(".py").is_file()

    def add_statement(self, node: ast.stmt, first: int) -> None:
        names, effect, subject = frozenset(bound_names(node)), False, None
        if not isinstance(node, (*DEFINITIONS, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.Try)):
            kind = type(node).__name__.lower()
            refuse(self, node, f"a `{kind}` statement at the top of a module cannot be bundled: put it in a function")
        if not names:
            effect, subject = True, changed_name(node)
        finder = References(self)
        finder.visit(node)
        statement = Statement(self, node, first, names, effect, subject, finder.found)
        self.statements.append(statement)
        self.strings |= finder.strings
        for name in names:
            self.defined.setdefault(name, []).append(statement)
        if "__all__" in names:
            self.public = tuple(ast.literal_eval(node.value))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its own scope."""
    if isinstance(node, DEFINITIONS):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    inner = ast.iter_child_nodes(node)
    if isinstance(node, COMPREHENSIONS):
        # its variables are its own; what it assigns by := is not
        inner = (n for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
    for child in inner:
        yield from bound_names(child)


def changed_name(node: ast.stmt) -> str | None:
    """`TABLE` of `TABLE["key"] = value` and of `TABLE.register(...)`."""
    target = node.value if isinstance(node, ast.Expr) else getattr(node, "targets", [getattr(node, "target", None)])[0]
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else None


class References(ast.NodeVisitor):
    """Finds the names of a module in one of its statements, in annotations written as text too."""

    def __init__(self, module: Module):
        self.module = module
        self.found: list[Reference] = []
        self.strings: set[str] = set()
        # the variables of the functions around, and those of the class if it is the innermost
        self.functions: tuple[frozenset[str], ...] = ()
        self.of_class: set[str] = set()

    def add(self, name: str, line: int, column: int) -> None:
        around = frozenset().union(*self.functions, self.of_class)
        if name not in around:
            self.found.append(Reference(name, line, column, around))

    def visit(self, node: ast.AST) -> None:
        self.visit_comprehension_scope(node) if isinstance(node, COMPREHENSIONS) else super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.add(node.id, node.lineno, node.col_offset)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.strings.add(node.value)

    def visit_Global(self, node: ast.Global) -> None:
        refuse(self.module, node, "`global` cannot be bundled: pass the value as an argument")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if self.module.absolute(node).partition(".")[0] == self.module.name.partition(".")[0]:
            refuse(self.module, node, "an import from the package inside a function cannot be bundled: put it on top")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit_signature(node)
        self.in_scope(node.args, [*without_docstring(node.body)])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        self.in_scope(node.args, [node.body])

    def visit_signature(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.add_own_name(node)
        self.visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                self.visit_annotation(argument.annotation)
        if node.returns is not None:
            self.visit_annotation(node.returns)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        self.add_own_name(node)
        outer, self.of_class = self.of_class, set()
        for statement in without_docstring(node.body):
            self.visit(statement)
            self.of_class |= set(bound_names(statement))
        self.of_class = outer

    def add_own_name(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if self.module.tree.body.count(node):
            column = self.module.lines[node.lineno - 1].index(node.name, node.col_offset + 4)
            self.add(node.name, node.lineno, column)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target) if not isinstance(node.target, ast.Name) or not self.of_class else None
        self.visit_annotation(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def visit_comprehension_scope(self, node: ast.AST) -> None:
        targets = {name for generator in node.generators for name in bound_names(generator.target)}
        self.visit(node.generators[0].iter)
        outer, self.functions = self.functions, (*self.functions, frozenset(targets))
        self.generic_visit(node)
        self.functions = outer

    def visit_annotation(self, node: ast.expr) -> None:
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            self.visit(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for inner in ast.walk(ast.parse(node.value, mode="eval")):
                if isinstance(inner, ast.Name):
                    self.add(inner.id, node.lineno, node.col_offset + 1 + inner.col_offset)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Constant):
            self.visit(node)
        else:
            for inner in ast.iter_child_nodes(node):
                self.visit_annotation(inner) if isinstance(inner, ast.expr) else None

    def visit_all(self, nodes: list[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def in_scope(self, arguments: ast.arguments, body: list[ast.AST]) -> None:
        names = {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
        names |= {name for node in body for name in bound_names(node)}
        outer = self.functions, self.of_class
        self.functions, self.of_class = (*self.functions, frozenset(names)), set()
        self.visit_all(body)
        self.functions, self.of_class = outer


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    return body[1:] if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else body
