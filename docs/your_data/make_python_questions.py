"""Write the questions of docs/experiments.md into the working folder: about functions of the standard library's source.

    python docs/your_data/make_python_questions.py

questions_{train,validation,test}.jsonl have the columns of SQuAD. A `context` is the source of a short function, as it
stands in its file, and an answer the expression that `ast` finds there. The `kind` of a question is

- default: what is the default of a parameter?
- set: what is a name or attribute set to, that is set once?
- passed: what is passed as an argument to a function, which is called so once?
- loop: what does the name of a loop run over?
- returned: what is returned, where there is one such statement?

Files and their splits are those of make_python_data.py. Left out are answers of several lines, of more than 60
characters or without a letter or digit, which SQuAD does not compare, and functions that stand in another split, too.
"""

import ast
import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from make_python_data import PARTS, files

# characters of a function's source, and the most of an answer
SHORTEST, LONGEST, ANSWER = 80, 400, 60
Asked = tuple[str, str, ast.expr]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def defaults(function: Function) -> Iterator[Asked]:
    """Kind, question and answer of parameters with a default."""
    given = function.args
    positional = (*given.posonlyargs, *given.args)
    pairs = [
        *zip(positional[::-1], given.defaults[::-1], strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for parameter, value in pairs:
        if value is not None:
            yield "default", f"What is {parameter.arg} by default?", value


def assignments(function: Function) -> Iterator[Asked]:
    """Those of what is set."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Attribute):
            yield "set", f"What is {ast.unparse(node.targets[0])} set to?", node.value


def arguments(function: Function) -> Iterator[Asked]:
    """Those of named arguments in calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            for argument in node.keywords:
                if argument.arg:
                    yield "passed", f"What is passed as {argument.arg} to {ast.unparse(node.func)}?", argument.value


def loops(function: Function) -> Iterator[Asked]:
    """Those of what loops run over."""
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            yield "loop", f"What does {ast.unparse(node.target)} run over?", node.iter


def returned(function: Function) -> Iterator[Asked]:
    """Those of what is returned."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield "returned", "What is returned?", node.value


def place_of(node: ast.expr, lines: list[str]) -> int:
    """The character at which a node begins."""
    return sum(map(len, lines[: node.lineno - 1])) + node.col_offset


def examples_of(source: str) -> Iterator[dict]:
    """Questions about the functions of a file, each of which has one answer."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        # from the line's beginning, so that all lines are indented alike
        context = textwrap.dedent("\n".join(source.split("\n")[node.lineno - 1 : node.end_lineno]))
        if not SHORTEST <= len(context) <= LONGEST:
            continue
        try:
            (function,) = ast.parse(context).body
        except (SyntaxError, ValueError):
            continue
        lines = context.splitlines(keepends=True)
        found = [
            asked for of_kind in (defaults, assignments, arguments, loops, returned) for asked in of_kind(function)
        ]
        counts = Counter(question for _, question, _ in found)
        for kind, question, value in found:
            answer = ast.get_source_segment(context, value)
            fits = counts[question] == 1 and "\n" not in answer and len(answer) <= ANSWER
            if fits and any(map(str.isalnum, answer)):
                answers = {"text": [answer], "answer_start": [place_of(value, lines)]}
                yield {"question": question, "context": context, "answers": answers, "kind": kind}


def write() -> None:
    """Write all files."""
    rows: dict[str, dict] = {split: {} for split in PARTS}
    owners: dict[str, str] = {}
    for split, _, source in files():
        try:
            examples = list(examples_of(source))
        except SyntaxError:
            continue
        for example in examples:
            if owners.setdefault(example["context"], split) == split:
                rows[split][example["question"], example["context"]] = example
    for split, found in rows.items():
        text = "".join(json.dumps(example) + "\n" for example in found.values())
        Path(f"questions_{split}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
