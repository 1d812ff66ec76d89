"""Write the Python data of docs/experiments.md into the working folder: roles of words in the standard library.

    python docs/your_data/make_python_data.py

- roles_{train,validation,test}.jsonl: `words` of Python source, as `tokenize` finds them, and the `labels` of their
  roles, as `ast` finds them: which names are defined, assigned, read, called, attributes, methods that are called,
  parameters, arguments of a call, or imported. An example is a few lines of a file; a file is in one split.
- source_{train,validation,test}.txt: the same files as text.

Left out are files that Python cannot parse, tests, and characters outside ASCII; comments, docstrings and line breaks;
the inside of texts longer than 20 characters.
"""

import ast
import hashlib
import io
import json
import keyword
import sysconfig
import token
import tokenize
from collections.abc import Iterator
from pathlib import Path

# words of an example, to the end of a line
WORDS = 40
# characters of a text between quotes that are kept
TEXT = 20
# shares of files, in hundredths
PARTS = {"test": 10, "validation": 20, "train": 100}
KINDS = {token.NUMBER: "literal", token.STRING: "literal", token.OP: "operator"}
Place = tuple[int, int]


def files() -> Iterator[tuple[str, str, str]]:
    """Split, name and source of each file."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if {"test", "tests", "idle_test", "site-packages", "lib2to3", "encodings"} & set(parts):
            continue
        source = path.read_bytes()
        name = "/".join(parts)
        if source.isascii() and source.strip():
            draw = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100
            split = next(split for split, share in PARTS.items() if draw < share)
            yield split, name, source.decode().replace("\r\n", "\n")


def roles_of(tree: ast.AST) -> dict[Place, str]:
    """Role of the name at each line and column."""
    found: dict[Place, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            role = "read" if isinstance(node.ctx, ast.Load) else "assigned"
            found.setdefault((node.lineno, node.col_offset), role)
        elif isinstance(node, ast.arg):
            found[node.lineno, node.col_offset] = "parameter"
        elif isinstance(node, ast.keyword) and node.arg:
            found[node.lineno, node.col_offset] = "argument"
        elif isinstance(node, ast.Attribute):
            found.setdefault((node.end_lineno, node.end_col_offset - len(node.attr)), "attribute")
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                found[called.lineno, called.col_offset] = "called"
            elif isinstance(called, ast.Attribute):
                found[called.end_lineno, called.end_col_offset - len(called.attr)] = "method"
    return found


def imports_of(tree: ast.AST) -> list[tuple[Place, Place]]:
    """Begin and end of each import statement."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in nodes]


def docstrings_of(tree: ast.AST) -> set[Place]:
    """Begin of each text that stands for itself."""
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {
        (node.lineno, node.col_offset)
        for node in values
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def lines_of(source: str) -> Iterator[list[tuple[str, str]]]:
    """Words and their roles, logical line by logical line."""
    tree = ast.parse(source)
    roles, imports, left_out = roles_of(tree), imports_of(tree), docstrings_of(tree)
    line, before = [], ""
    for item in tokenize.generate_tokens(io.StringIO(source).readline):
        if item.type == token.NEWLINE:
            yield line
            line, before = [], ""
        elif item.type == token.NAME:
            if keyword.iskeyword(item.string):
                role = "keyword"
            elif before in ("def", "class"):
                role = "defined"
            elif any(start <= item.start < end for start, end in imports):
                role = "imported"
            else:
                # others are names of `except` and `global`
                role = roles.get(item.start, "assigned")
            line.append((item.string, role))
            before = item.string
        elif item.type in KINDS and item.start not in left_out:
            text = item.string
            if item.type == token.STRING and len(text) > TEXT:
                text = " ".join(f"{text[:TEXT]}{text[-1]}".split())
            line.append((text, KINDS[item.type]))
            before = text


def examples_of(source: str) -> Iterator[list[tuple[str, str]]]:
    """Lines together until they have enough words."""
    found = []
    for line in lines_of(source):
        found += line
        if len(found) >= WORDS:
            yield found
            found = []
    if found:
        yield found


def write() -> None:
    """Write all files."""
    rows, texts = {split: [] for split in PARTS}, {split: [] for split in PARTS}
    for split, name, source in files():
        try:
            examples = list(examples_of(source))
        except (SyntaxError, tokenize.TokenError):
            continue
        texts[split].append(source)
        for example in examples:
            words, labels = zip(*example, strict=True)
            rows[split].append(json.dumps({"words": words, "labels": labels, "file": name}) + "\n")
    for split in PARTS:
        Path(f"roles_{split}.jsonl").write_text("".join(rows[split]), encoding="utf-8")
        Path(f"source_{split}.txt").write_text("\n".join(texts[split]), encoding="utf-8")


if __name__ == "__main__":
    write()
