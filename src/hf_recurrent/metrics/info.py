"""What a metric says about itself, read from its script without running it: `import evaluate` takes seconds."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

METRICS = (
    "accuracy_by_slice",
    "bits_per_token",
    "halting_statistics",
    "last_read_accuracy",
    "long_document_losses",
    "sequence_exact_match",
    "translation_bleu",
)
FOLDER = Path(__file__).parent

SECTION = re.compile(r"^(Inputs|Outputs|Example|Limits):\n", re.MULTILINE)
FIELD = re.compile(r"^(\w+): (.*(?:\n +.*)*)", re.MULTILINE)
ITEM = re.compile(r"^- (.*(?:\n +.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class MetricDescription:
    """Facts about one `evaluate` metric; `script` is its file, `siblings` the names of the files that it imports and
    that have to lie next to it, `export_metric` makes a Space of it.

    `summary` is a sentence, `description` all paragraphs. `inputs` and `outputs` map names to shapes, units and
    meaning. `example` is a doctest, `limits` are sentences, `citation` is BibTeX.
    """

    name: str
    title: str
    script: Path
    siblings: tuple[str, ...]
    summary: str
    description: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    example: str
    limits: tuple[str, ...]
    citation: str


def list_metrics() -> list[str]:
    """Names of the metrics that `metric_info` and `export_metric` know."""
    return list(METRICS)


def metric_info(name: str) -> MetricDescription:
    """The facts about a metric.

    Raises:
        ValueError: there is no such metric.
    """
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: expected one of {list_metrics()}")
    script = FOLDER / f"metric_{name}.py"
    tree = _parse(script)
    description, *rest = SECTION.split(ast.get_docstring(tree))
    sections = {title: dedent(body) for title, body in zip(rest[::2], rest[1::2], strict=True)}
    paragraphs = [_one_line(paragraph) for paragraph in description.strip().split("\n\n")]
    return MetricDescription(
        name=name,
        title=name.replace("_", " ").capitalize(),
        script=script,
        siblings=tuple(f"{n.module}.py" for n in tree.body if isinstance(n, ast.ImportFrom) and n.level),
        summary=paragraphs[0],
        description="\n\n".join(paragraphs),
        inputs=_fields(sections["Inputs"]),
        outputs=_fields(sections["Outputs"]),
        example=sections["Example"].strip(),
        limits=tuple(_one_line(item) for item in ITEM.findall(sections["Limits"])),
        citation=_constant(FOLDER / "metric_base.py", "CITATION"),
    )


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def _constant(file: Path, name: str) -> str:
    """The value of a constant, written out at the top level of a file."""
    assignments = [node for node in _parse(file).body if isinstance(node, ast.Assign)]
    (value,) = [node.value for node in assignments if node.targets[0].id == name]
    return ast.literal_eval(value)


def _fields(section: str) -> dict[str, str]:
    return {name: _one_line(text) for name, text in FIELD.findall(section)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
