"""The model code of a checkpoint: the part of this package that its classes use, to be read before it is trusted.

`trust_remote_code` loads files that lie next to config.json and import nothing but each other and installed libraries.
The bundler starts from the classes that a checkpoint names. It keeps a top-level statement if kept code uses a name
that it binds. It keeps a method or attribute of a kept class if kept code uses its name anywhere (as a variable, an
attribute or a string), if it replaces a name of an installed base class, or if Python or an installed library looks for
it. It goes on until nothing more is kept. Source is copied as it is, with its comments and docstrings; those of
modules become comments.

It relies on rules for the modules of an architecture, which tests check: a name has one meaning in all of them, every
statement binds one, and they import from the package at their top, from lower layers, under no other names.
"""

import ast
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ..registry import ARCHITECTURES

SOURCE = Path(__file__).parents[2]
# folders of `models` in reading order; an architecture's own is the last
LAYERS = ("config", "ops", "depth", "base", "heads")
# beginnings of names that Python, `strict` of huggingface_hub or transformers look for, though no base class has them
HOOKS = (
    *("__", "validate_", "accepts_loss_kwargs", "keys_to_ignore_at_inference", "create_masks_for_generate"),
    "prepare_decoder_input_ids_from_labels",
)
# heads that write text
GENERATES = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
# methods and attributes that a checkpoint may leave out, so that those of a base class stand -> whether it needs them,
# by whether its model writes text and by its config
NEEDED = {
    # the cache
    "new_cache": lambda writes, config: writes,
    # the cache with room for a text
    "new_static_cache": lambda writes, config: False,
    # layouts without padding, where tokens may halt one by one
    "packed_layout": lambda writes, config: (
        "halting" in config and (writes or bool(config.get("is_causal")) or config["halting"] == "token")
    ),
    # the model's own halting
    "new_halting_head": lambda writes, config: config.get("halting", "none") != "none",
    "trained_strategy": lambda writes, config: config.get("halting", "none") != "none",
    "cached_rotations": lambda writes, config: writes,
    # depths that training draws, losses of each step, and a probe that decides on exits
    "drawn_depth": lambda writes, config: config.get("depth_sampling", "fixed") != "fixed",
    "loss_by_objective": lambda writes, config: config.get("depth_objective") not in (None, "final", "mixture"),
    "build_probe": lambda writes, config: bool(config.get("exit_probe_size")),
    # whether the promise of a calibration holds
    "calibration_fault": lambda writes, config: config.get("exit_calibration") is not None,
    # sentences of a pair that are encoded separately
    "encode_pairs": lambda writes, config: config.get("pair_encoding") == "siamese",
    # an encoder and a decoder
    **dict.fromkeys(
        ("build_stacks", "run_stacks", "read_source"), lambda writes, config: bool(config.get("is_encoder_decoder"))
    ),
}
WIDTH = 120
# holds for a whole file
FUTURE = "from __future__ import annotations"


def carried_heads(model_type: str, auto_class: str) -> list[str]:
    """The Auto classes for which a checkpoint has code, if `auto_class` is that of the saved model.

    Fine-tuning starts from a base model or a masked language model: these have all heads that write no text.
    """
    heads = ARCHITECTURES[model_type].heads
    if auto_class in ("AutoModel", "AutoModelForMaskedLM"):
        return [head for head in heads if head not in GENERATES]
    return ["AutoModel", auto_class]


def code_files(model_type: str, auto_class: str, config: Mapping[str, Any]) -> dict[str, str]:
    """The Python files that `trust_remote_code` needs for a saved config and the class of its model: name -> text."""
    writes = auto_class in GENERATES
    return files_without(model_type, auto_class, tuple(name for name in NEEDED if not NEEDED[name](writes, config)))


@cache
def files_without(model_type: str, auto_class: str, left_out: tuple[str, ...]) -> dict[str, str]:
    """`code_files`, in which the methods that are `left_out` stay as base classes define them."""
    from .. import __version__

    family = ARCHITECTURES[model_type]
    classes = [family.prefix + family.heads[head] for head in carried_heads(model_type, auto_class)]
    entries = {name: family.class_names[name] for name in (f"{family.prefix}Config", *classes)}
    return bundle(entries, left_out, SOURCE, f"hf_recurrent {__version__}")


@dataclass(eq=False)
class Part:
    """A top-level statement of a module that is no import, or a member of a class: a method, or an attribute.

    Attributes:
        owner: the class whose member it is.
        lines: its lines, with comments before it.
        binds: names that it defines.
        uses: names in it that may be those of top-level statements.
        words: all names and strings in it.
    """

    module: "Module"
    owner: str | None
    lines: range
    binds: frozenset[str]
    uses: set[str]
    words: set[str]


class Module:
    """A module of a package.

    Attributes:
        path: in the package's folder.
        about: its docstring.
        imported: the modules of the package that it imports from.
        installed: name -> import from elsewhere that binds it, as `(module or None, what)`.
        parts: its statements.
    """

    def __init__(self, name: str, source: Path):
        text = source.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        self.name, self.lines = name, text.splitlines()
        self.path = f"{'/'.join(name.split('.')[1:])}.py"
        self.about = ast.get_docstring(tree) or ""
        self.imported: list[str] = []
        self.installed: dict[str, tuple[str | None, str]] = {}
        self.parts: list[Part] = []
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                self.imported.append(".".join([*name.split(".")[: -node.level], node.module or ""]))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    self.installed[bound_by(alias)] = (getattr(node, "module", None), ast.unparse(alias))
            elif isinstance(node, ast.ClassDef):
                self.add_class(node)
            elif not isinstance(node, ast.Expr):
                self.add(node)

    def add_class(self, node: ast.ClassDef) -> None:
        """Add a class, and its members: methods and attributes, but for fields of a dataclass, which have a type."""
        body = node.body
        # a class is never empty
        node.body = [each for each in body if not isinstance(each, ast.FunctionDef | ast.Assign)] or body[:1]
        self.add(node)
        for base in getattr(import_module(self.name), node.name).__mro__:
            if base.__module__.partition(".")[0] != self.name.partition(".")[0]:
                self.parts[-1].words.update(vars(base))
        for member in (each for each in body if each not in node.body):
            self.add(member, node.name)

    def add(self, node: ast.stmt, owner: str | None = None) -> None:
        """Add a statement, which may be a member of the class `owner`."""
        first = min(each.lineno for each in (node, *getattr(node, "decorator_list", [])))
        while self.lines[first - 2].strip()[:1] in ("", "#"):
            first -= 1
        read, bound, local, words = set(), set(), set(), set()
        for inner in ast.walk(node):
            match inner:
                case ast.Name(id=name, ctx=ast.Load()):
                    read.add(name)
                case ast.Name(id=name):
                    bound.add(name)
                case ast.alias():
                    bound.add(bound_by(inner))
                case ast.arg(arg=name):
                    local.add(name)
                case ast.comprehension(target=target):
                    local |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
                case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                    words.add(name)
        if isinstance(node, ast.FunctionDef):
            local |= bound
        uses, binds = read - local, bound - local
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            binds = {node.name}
        if binds != {"__all__"}:
            lines = range(first - 1, node.end_lineno)
            self.parts.append(Part(self, owner, lines, frozenset(binds), uses, words | read))

    def text(self, kept: Collection[Part]) -> str:
        """Its name, its docstring as a comment, and those of its parts that are kept."""
        lines = {line for part in self.parts if part.owner is None and part in kept for line in part.lines}
        lines -= {line for part in self.parts if part.owner is not None and part not in kept for line in part.lines}
        code = re.sub(r"\n{4,}", "\n\n\n", "\n".join(self.lines[line] for line in sorted(lines))).strip()
        heading = f"---------- {self.path}\n{self.about}".strip()
        return textwrap.indent(heading, "# ", lambda line: True).replace("# \n", "#\n") + f"\n\n{code}"


read_module = cache(Module)


def bound_by(alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def reachable(parts: Sequence[Part], names: Collection[str], words: Collection[str] = ()) -> list[Part]:
    """The parts that top-level `names` lead to, with the members that `words`, or words in these parts, name."""
    kept, names, words = set(), set(names), set(words)
    while True:
        new = set()
        for part in parts:
            if part.owner is None:
                is_used = not part.binds.isdisjoint(names)
            else:
                is_used = part.owner in names and any(name in words or name.startswith(HOOKS) for name in part.binds)
            if is_used and part not in kept:
                new.add(part)
        if not new:
            return [part for part in parts if part in kept]
        kept |= new
        names.update(*(part.uses for part in new))
        words.update(*(part.words for part in new))


def bundle(entries: Mapping[str, str], left_out: Collection[str], source: Path, maker: str) -> dict[str, str]:
    """Copy what classes use into files: name of each file -> its text.

    Args:
        entries: names of classes -> modules that define them. The first is the configuration's, which has a file of its
            own. So has a module with an import from `__future__`, which holds for a whole file.
        left_out: names of methods that are left out where they replace a method of the package.
        source: the folder that holds the package.
        maker: name and version of the package, for the headings.
    """
    modules: dict[str, Module] = {}

    def add(name: str) -> None:
        """Add a module after those that it imports from."""
        if name not in modules:
            for origin in read_module(name, source).imported:
                add(origin)
            modules[name] = read_module(name, source)

    for name in entries.values():
        add(name)
    folders = {name: name.split(".")[-2] for name in modules}
    in_order = sorted(modules, key=lambda name: [*LAYERS, folders[name]].index(folders[name]))
    first: dict[object, Part] = {}
    for part in (part for name in in_order for part in modules[name].parts):
        # modules that each make a logger share one; a property's methods have one name
        shares_name = part.owner is None or not part.binds.isdisjoint(left_out)
        first.setdefault(part.binds if shares_name else part, part)
    parts = reachable([*first.values()], entries)
    members = {name for part in parts if part.owner for name in part.binds}

    configuration, *classes = entries
    roots = {entries[configuration].rpartition(".")[2]: [configuration]}
    for name, module in modules.items():
        if "annotations" in module.installed:
            roots[f"{name.rpartition('.')[2]}_{folders[name]}"] = [each for part in module.parts for each in part.binds]
    roots[entries[classes[0]].rpartition(".")[2]] = classes
    homes: dict[str, str] = {}
    files = {}
    for file, names in roots.items():
        inside = reachable([part for part in parts if (part.owner or min(part.binds)) not in homes], names, members)
        if inside:
            files[f"{file}.py"] = render(inside, homes, [name for name in entries if name in names], maker)
        homes |= {name: file for part in inside if part.owner is None for name in part.binds}
    return files


def render(parts: Sequence[Part], homes: Mapping[str, str], classes: Sequence[str], maker: str) -> str:
    """The text of a file: heading, imports, and parts of modules; `homes` are the files that have other names."""
    modules = list(dict.fromkeys(part.module for part in parts))
    imports = "\n".join(import_lines(modules, set().union(*(part.uses for part in parts)), homes))
    kept = set(parts)
    sections = [imports, *(module.text(kept) for module in modules)]
    future = [FUTURE] if any("annotations" in module.installed for module in modules) else []
    names = ", ".join(classes) or "kernels"
    heading = [
        '"""' + modules[-1].about.partition("\n")[0],
        "",
        *textwrap.wrap(f"Code of {names} from {maker}, and all that it uses, for inference and training.", WIDTH),
        "Saving the model writes this file again. Read it before you pass `trust_remote_code=True`.",
        "",
        "Contents (line, module, subject):",
    ]
    # that of the first section: the rest of the heading, and an empty line, come before
    line = len(heading) + len(modules) + 3 + 2 * len(future)
    for section, module in zip(sections, modules, strict=False):
        line += section.count("\n") + 3
        about = f"{module.path}: {module.about}".partition("\n")[0]
        heading.append(f"{line:6} " + textwrap.shorten(about, WIDTH - 7, placeholder=" ..."))
    sections += [textwrap.fill(f"__all__ = {classes}", WIDTH, subsequent_indent="    ")] if classes else []
    return "\n\n".join(["\n".join([*heading, '"""']), *future, "\n\n\n".join(sections)]) + "\n"


def import_lines(modules: Sequence[Module], uses: set[str], homes: Mapping[str, str]) -> list[str]:
    """The imports of these names: from Python's packages, then from others, then from files of the checkpoint."""
    imported = defaultdict(set)
    for module in modules:
        for name in uses & module.installed.keys():
            origin, what = module.installed[name]
            imported[origin or ""].add(what)
    for name in uses & homes.keys():
        imported[f".{homes[name]}"].add(name)
    lines = [f"import {what}" for what in imported.pop("", ())]
    for origin, names in imported.items():
        line, longer = (f"from {origin} import {form}" % ", ".join(sorted(names)) for form in ("%s", "(%s)"))
        lines.append(line if len(line) <= WIDTH else textwrap.fill(longer, WIDTH, subsequent_indent="    "))

    def place(line: str) -> tuple[bool, bool, str]:
        origin = line.split()[1]
        return origin.startswith("."), origin.partition(".")[0] not in sys.stdlib_module_names, origin

    return sorted(lines, key=place)
