"""The parts of docs/ that the code writes are what it says today, and examples print what pages show."""

import contextlib
import io
import re

import pytest

from doc_parts.config_parts import COMMON, SYMBOLS, declared, fields_shown, owner
from doc_parts.drawings import DRAWINGS
from doc_parts.filling import DOCS, PART, filled, pages_with_parts
from hf_recurrent import ARCHITECTURES
from hf_recurrent.benchmarks import list_benchmarks
from hf_recurrent.benchmarks.registry import get_benchmark
from hf_recurrent.models.depth import layouts
from support.families import USUAL_PRODUCTS_TO_PACK

WITH_PARTS = [path.relative_to(DOCS).as_posix() for path in pages_with_parts()]
# a block of Python that is run, and what it prints
SHOWN = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```)?", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: [^\n]+ -->\n```.*?^```\n", re.MULTILINE | re.DOTALL)
WITH_OUTPUT = [
    path.relative_to(DOCS).as_posix()
    for folder in ("concepts", "architectures", "benchmarks")
    for path in sorted((DOCS / folder).glob("*.md"))
    if any(found["printed"] for found in SHOWN.finditer(path.read_text(encoding="utf-8")))
]


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WITH_PARTS)
def test_parts_are_what_the_code_says(name):
    assert filled(text_of(name)) == text_of(name), "run `python -m doc_parts`"


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_as_drawn(name):
    assert DRAWINGS[name]() == text_of(name), "run `python -m doc_parts`"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_a_page_with_all_its_fields(architecture):
    """Fields that are not on it have their common default, and are on the page of common fields."""
    calls = {found["call"] for found in PART.finditer(text_of(f"architectures/{architecture}.md"))}
    assert {f"config {architecture}", f"presets {architecture}", f"checkpoints {architecture}"} <= calls
    fields, shown = declared(ARCHITECTURES[architecture].config_class), fields_shown(architecture)
    for name in fields.keys() - shown.keys():
        first = owner(ARCHITECTURES[architecture].config_class, name)
        assert fields[name] == declared(first)[name]
        assert first in COMMON.values()


def test_symbols_are_of_fields():
    """Architectures of one paper share theirs."""
    for architecture, symbols in SYMBOLS.items():
        alike = [name for name, other in SYMBOLS.items() if other is symbols]
        assert symbols.keys() <= {field for name in alike for field in fields_shown(name)}, architecture


@pytest.mark.parametrize("name", list_benchmarks())
def test_every_benchmark_has_a_page(name):
    calls = {found["call"].split()[0] for found in PART.finditer(text_of(f"benchmarks/{name}.md"))}
    assert {"benchmark", "columns", "parameters", "reached"} <= calls
    assert not get_benchmark(name).generated or "examples" in calls


@pytest.mark.parametrize(
    "name",
    [name if name.startswith("concepts") else pytest.param(name, marks=pytest.mark.nightly) for name in WITH_OUTPUT],
)
def test_blocks_print_what_the_page_shows(name, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.setattr(layouts, "MIN_PRODUCTS_TO_PACK", USUAL_PRODUCTS_TO_PACK)
    names: dict = {}
    for found in SHOWN.finditer(NOT_RUN.sub("", text_of(name))):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(found["code"], names)  # noqa: S102
        assert found["printed"] is None or printed.getvalue() == found["printed"]
