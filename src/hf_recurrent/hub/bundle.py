"""The model code of a checkpoint: a few files, generated from the package without what an architecture does not use.

`trust_remote_code` loads modules that lie beside config.json and import nothing but each other and installed libraries.
The definitions that an architecture's public classes reach are copied as they are written, module by module in the
order in which Python would import them. A definition is a top-level statement; a class keeps all its methods.
"""

import builtins
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ..registry import ARCHITECTURES
from .bundle_source import External, Module, Statement, Symbol, refuse

SOURCE = Path(__file__).parents[2]
# modules that import it become a file of their own
KERNEL_LIBRARY = "triton"
TYPE_CHECKING = External("typing", "TYPE_CHECKING", None)
LINE_LENGTH = 120


@cache
def code_files(model_type: str) -> dict[str, str]:
    """The Python files that `trust_remote_code` needs for an architecture: name -> text.

    Raises:
        ValueError: the package's code is written in a way that cannot be bundled.
    """
    from .. import __version__

    modules = dict.fromkeys(ARCHITECTURES[model_type].class_names.values())
    entries = {module.rpartition(".")[2]: module for module in sorted(modules)}
    return bundle(entries, SOURCE, __version__, kernels=f"kernels_{model_type}")


def bundle(entries: dict[str, str], source: Path, version: str, kernels: str = "kernels") -> dict[str, str]:
    """Merge packages into flat files.

    Args:
        entries: name of a file, without .py -> the module whose `__all__` it offers; a file imports from earlier ones.
        source: the folder that holds the package.
        version: of the package, for the headings.
        kernels: name of the file for the modules that import Triton; left out where there are none.

    Returns:
        The name of each file -> its text.

    Raises:
        ValueError: a statement that cannot be merged: where it is, and how to write it instead.
    """
    program = Program(source)
    files: dict[str, set[Statement]] = {}
    below: set[Statement] = set()
    for file, entry in entries.items():
        program.load(entry)
        roots = program.public(entry)
        kept = program.reach(roots, entry, below)
        in_kernels = [statement for statement in kept if KERNEL_LIBRARY in statement.module.libraries]
        if in_kernels:
            files[kernels] = program.reach(in_kernels, entry, below)
            below |= files[kernels]
        files[file] = program.reach(roots, entry, below)
        below |= files[file]
    names = program.unique_names(files, [program.modules[entry] for entry in entries.values()])
    writer = Writer(program, files, names, version)
    return {f"{file}.py": writer.render(file, program.modules.get(entries.get(file, ""))) for file in files}


@cache
def package_module(name: str) -> Module:
    """A module of this package: most are of several architectures."""
    return Module.read(name, SOURCE)


class Program:
    """The modules that a set of entry points imports, and which of their statements need which."""

    def __init__(self, source: Path):
        self.source = source
        # in the order in which Python would finish their import
        self.modules: dict[str, Module] = {}
        self.loading: list[str] = []

    def load(self, name: str) -> None:
        """Read a module and, before it, those that it imports."""
        if name in self.modules:
            return
        if name in self.loading:
            raise ValueError(f"circular imports cannot be bundled: {' -> '.join([*self.loading, name])}")
        self.loading.append(name)
        module = package_module(name) if self.source == SOURCE else Module.read(name, self.source)
        for imported in module.imports:
            self.load(imported)
        self.loading.pop()
        self.modules[name] = module
        for imported in module.type_imports:
            if imported not in self.loading:
                self.load(imported)

    def public(self, entry: str) -> list[Statement]:
        """The statements that define what a module's `__all__` lists, and that list."""
        module = self.modules[entry]
        if not module.public:
            raise ValueError(f"{module.path} has no __all__: list its public classes there")
        return [s for name in (*module.public, "__all__") for s in self.defining(Symbol(entry, name))]

    def resolve(self, module: Module, name: str) -> "Symbol | list[External] | None":
        """What a name of a module stands for: a definition of the package, imports of libraries, or a built-in."""
        if name in module.defined:
            return Symbol(module.name, name)
        if name in module.internal:
            target = module.internal[name]
            found = self.resolve(self.modules[target.module], target.name)
            if found is None or (isinstance(found, list) and target.name != name):
                raise ValueError(f"{module.path} imports {target.name}, which {target.module} does not define")
            return found
        return module.external.get(name)

    def defining(self, symbol: Symbol) -> list[Statement]:
        return self.modules[symbol.module].defined.get(symbol.name, [])

    def needs(self, statement: Statement) -> list[Symbol]:
        """The definitions of the package that a statement refers to."""
        found = (self.resolve(statement.module, name) for name in statement.used)
        return [symbol for symbol in found if isinstance(symbol, Symbol)]

    def reach(self, roots: Iterable[Statement], entry: str, below: set[Statement]) -> set[Statement]:
        """The statements that `roots` need, without those `below` them in earlier files.

        A statement that changes something, such as an entry in a table of functions, belongs to what it changes.
        """
        kept: set[Statement] = set()
        effects = [s for name in self.closure(entry) for s in self.modules[name].statements if s.effect]
        waiting = list(roots)
        while waiting:
            while waiting:
                statement = waiting.pop()
                if statement not in kept and statement not in below:
                    kept.add(statement)
                    waiting += [s for symbol in self.needs(statement) for s in self.defining(symbol)]
            there = kept | below
            waiting = [s for s in effects if s not in there and self.affects(s, there)]
        return kept

    def closure(self, entry: str) -> list[str]:
        """The names of the modules that `entry` imports, and its own."""
        found, waiting = {}, [entry]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = None
                waiting += self.modules[name].imports
        return list(found)

    def affects(self, effect: Statement, kept: set[Statement]) -> bool:
        subject = self.resolve(effect.module, effect.subject) if effect.subject else None
        if isinstance(subject, Symbol):
            return not kept.isdisjoint(self.defining(subject))
        return any(statement.module is effect.module for statement in kept)

    def unique_names(self, files: dict[str, set[Statement]], entries: list[Module]) -> dict[Symbol, str]:
        """A name for each definition: its own, or one with its module's name in front where that is taken."""
        kept = set().union(*files.values())
        taken = {name: "an import" for s in kept for name in s.used & s.module.external.keys()}
        taken |= dict.fromkeys(dir(builtins), "a built-in name")
        # public names stay as they are
        modules = [*entries, *(module for module in self.modules.values() if module not in entries)]
        statements = [s for module in modules for s in module.statements if s in kept]
        names: dict[Symbol, str] = {}
        for symbol, home in {Symbol(s.module.name, n): s for s in statements for n in sorted(s.names)}.items():
            module, name = home.module, symbol.name
            unique = prefixed(name, symbol.module.rpartition(".")[2]) if name in taken else name
            # classes are also looked up by names in texts, such as those of modules that may not be split
            wrong = unique != name and (name in module.public or any(name in s.strings for s in module.statements))
            if unique in taken or wrong:
                refuse(module, home.node, f"{name} would have the name of {taken[name]} in one file: rename it")
            names[symbol] = unique
            if name != "__all__":
                taken[unique] = f"{symbol.module}.{name}"
        return names


def prefixed(name: str, module: str) -> str:
    """`commit` of act.py -> `act_commit`, `Output` of act.py -> `ActOutput`, `EPSILON` of act.py -> `ACT_EPSILON`."""
    bare = name.lstrip("_")
    private = name[: len(name) - len(bare)]
    if bare.isupper():
        return f"{private}{module.upper()}_{bare}"
    if bare[:1].isupper():
        return f"{private}{''.join(word.title() for word in module.split('_'))}{bare}"
    return f"{private}{module}_{bare}"


class Writer:
    """Writes the files of a bundle."""

    def __init__(self, program: Program, files: dict[str, set[Statement]], names: dict[Symbol, str], version: str):
        self.program = program
        self.files = files
        self.names = names
        self.version = version

    def render(self, file: str, entry: Module | None) -> str:
        sections = [
            (module, [statement for statement in module.statements if statement in self.files[file]])
            for module in self.program.modules.values()
        ]
        sections = [(module, kept) for module, kept in sections if kept]
        origin = "the modules named below" if entry is None else entry.shown.rpartition("/")[2]
        lines = [f"# generated by {self.made_by} from {origin}; do not edit"]
        if entry is not None and entry.docstring:
            lines += [*entry.lines[entry.tree.body[0].lineno - 1 : entry.tree.body[0].end_lineno], ""]
        lines += self.imports(file, sections)
        for module, kept in sections:
            heading = [] if module is entry else list(commented(module.docstring))
            # one blank line after imports, two after definitions
            lines += [""] * (1 if module is sections[0][0] else 2)
            lines += [f"# --- {module.shown} ({self.made_by})", *heading]
            before = None
            for statement in kept:
                lines += [""] * statement.blank_lines_after(before)
                lines += statement.render(lambda name, module=module: self.final_name(module, name))
                before = statement
        return "\n".join(lines).rstrip() + "\n"

    @property
    def made_by(self) -> str:
        package = next(iter(self.program.modules)).partition(".")[0]
        return f"{package} {self.version}"

    def final_name(self, module: Module, name: str) -> str:
        found = self.program.resolve(module, name)
        return self.names.get(found, name) if isinstance(found, Symbol) else name

    def imports(self, file: str, sections: list[tuple[Module, list[Statement]]]) -> Iterator[str]:
        """The import statements of a file, merged and sorted."""
        externals: dict[str, list[External]] = {}
        local: dict[str, set[str]] = {}
        homes = {statement: name for name, kept in self.files.items() for statement in kept}
        futures = {module.future for module, _ in sections} - {()}
        for module, kept in sections:
            for name in sorted(set().union(*(statement.used for statement in kept))):
                found = self.program.resolve(module, name)
                if isinstance(found, list):
                    externals.setdefault(name, []).extend(found)
                    if len({external.meaning for external in externals[name]}) > 1:
                        refuse(module, module.tree, f"{name} is imported from elsewhere in another module: rename one")
                elif isinstance(found, Symbol):
                    for home in {homes[statement] for statement in self.program.defining(found)} - {file}:
                        local.setdefault(home, set()).add(self.names[found])
        # annotations of a config or a model are read when it runs
        if futures and not any(KERNEL_LIBRARY in module.libraries for module, _ in sections):
            where = ", ".join(module.shown for module, _ in sections if module.future)
            raise ValueError(f"{where}: leave out `from __future__ import`, which would hold for the whole file {file}")
        found = list(dict.fromkeys(external for several in externals.values() for external in several))
        typing = [external for external in found if external.typing and external._replace(typing=False) not in found]
        always = [external for external in found if not (external.typing or external.guard)]
        blocks = [
            min(futures, default=()),
            import_lines(always + [TYPE_CHECKING] * bool(typing)),
            (line for home in sorted(local) for line in wrapped(f"from .{home}", local[home])),
            ["if TYPE_CHECKING:", *(f"    {line}".rstrip() for line in import_lines(typing))] if typing else [],
            *dict.fromkeys(external.guard for external in found),
        ]
        for index, lines in enumerate(filter(None, map(list, blocks))):
            yield from [""] * (index > 0)
            yield from lines


def import_lines(imports: list[External]) -> Iterator[str]:
    """Sorted as ruff sorts them: the standard library, then others; whole modules, then names of modules."""
    first = True
    for standard in (True, False):
        group = [i for i in imports if (i.module.partition(".")[0] in sys.stdlib_module_names) == standard]
        if group and not first:
            yield ""
        first = first and not group
        for whole in sorted({(i.module, i.alias or "") for i in group if i.name is None}):
            yield f"import {whole[0]}" + (f" as {whole[1]}" if whole[1] else "")
        for module in sorted({i.module for i in group if i.name is not None}):
            named = [i for i in group if i.module == module and i.name is not None]
            plain = {i.name for i in named if not i.alias}
            if plain:
                yield from wrapped(f"from {module}", plain)
            yield from sorted(f"from {module} import {i.name} as {i.alias}" for i in named if i.alias)


def wrapped(start: str, names: Iterable[str]) -> Iterator[str]:
    """An import of several names: constants, classes, functions; one to a line where they are too many for one."""
    ordered = sorted(names, key=lambda name: (not (name.isupper() and len(name) > 1), name[:1].islower(), name))
    line = f"{start} import {', '.join(ordered)}"
    if len(line) <= LINE_LENGTH:
        yield line
    else:
        yield from (f"{start} import (", *(f"    {name}," for name in ordered), ")")


def commented(docstring: str) -> Iterator[str]:
    """A module's docstring as comments; a paragraph whose lines would become too long is wrapped anew."""
    for index, paragraph in enumerate(docstring.strip().split("\n\n") if docstring else ()):
        lines = paragraph.splitlines()
        if max(map(len, lines)) > LINE_LENGTH - 2:
            lines = textwrap.wrap(" ".join(lines), LINE_LENGTH - 2, break_on_hyphens=False)
        yield from ([] if index == 0 else ["#"])
        yield from (f"# {line}".rstrip() for line in lines)
