"""Rows of papers' tables: which one a run reproduces, and the numbers that compare with the run's own.

The numbers are in `paper_results.yaml`.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..benchmarks import benchmark_info
from ..utils import require_known

# changes after which data are another draw of the same distribution
FREE = ("seed", "disjoint", "num_validation", "num_test", "test_lengths", "test_p_ignore")
SAME_DISTRIBUTION = tuple(f"benchmark_params.{name} = " for name in FREE)


@functools.cache
def papers() -> dict[str, dict[str, Any]]:
    """The contents of `paper_results.yaml`, by paper id."""
    return yaml.safe_load(Path(__file__).with_name("paper_results.yaml").read_text(encoding="utf-8"))


def paper_with_title(title: str) -> dict[str, str]:
    """Title, url and bibtex of the paper of that title."""
    paper = next(facts for facts in papers().values() if facts["title"] == title)
    return {name: paper[name] for name in ("title", "url", "bibtex")}


class Cell(NamedTuple):
    """Numbers for a split of a configuration: some of median, mean, std, bleu, bits and slices.

    `needs` are the conditions for a comparison: `steps` of the optimiser, at least, or `exact_steps`; `model`, fields
    of the config; `params`, values that parameters of the benchmark may have; `files`, whether data may be read from
    `data_dir`, and `test_examples`, the size of the test split then.
    """

    config: str
    split: str
    numbers: dict[str, Any]
    needs: dict[str, Any]

    def compares(self, data: Any, config: Any, steps: int, examples: int | None) -> bool:
        """Whether a run with these `BenchmarkArguments`, model config, steps and test examples is as the paper's."""
        needs = self.needs
        params = {**benchmark_info(data.benchmark).parameters[data.benchmark_config], **data.benchmark_params}
        return (
            data.benchmark_config == self.config
            and (steps == needs["exact_steps"] if "exact_steps" in needs else steps >= needs.get("steps", 0))
            and all(getattr(config, name) == value for name, value in needs.get("model", {}).items())
            and all(params[name] in allowed for name, allowed in needs.get("params", {}).items())
            and (data.data_dir is None or (needs.get("files") and needs.get("test_examples", examples) == examples))
        )


class PaperRow(NamedTuple):
    """A row of a paper's table, and the column if the table is reproduced one column at a time."""

    id: str
    table: int
    row: str
    column: str | None = None

    @classmethod
    def of(cls, paper: Mapping[str, Any]) -> "PaperRow":
        """The row that a recipe's `paper` names.

        Raises:
            TypeError: a key is unknown or missing.
            ValueError: there is no such paper, table, row or column.
        """
        named = cls(**paper)
        require_known("paper.id", named.id, papers())
        tables, place = papers()[named.id]["tables"], f"(of {named.id}, Table {named.table})"
        require_known("paper.table", str(named.table), map(str, tables))
        # the numbers of some tables are not transcribed
        if "rows" in tables[named.table]:
            require_known(f"paper.row {place}", named.row, tables[named.table]["rows"])
            columns = (column.get("name") for column in tables[named.table]["columns"])
            require_known(f"paper.column {place}", str(named.column), map(str, columns))
        return named

    @property
    def facts(self) -> dict[str, Any]:
        return papers()[self.id]["tables"][self.table]

    @property
    def title(self) -> str:
        """The row in words: "Block-Recurrent Transformers, Table 1 (PG19 bytes), row XL:512"."""
        paper = papers()[self.id]
        place, *more = [text for text in (self.facts.get("about"), self.column) if text is not None]
        return ", ".join([paper.get("name", paper["title"]), f"Table {self.table} ({place})", *more, f"row {self.row}"])

    def cells(self) -> list[Cell]:
        """The row's cells, of `column` if that is chosen; none if the table's numbers are not transcribed."""
        table = self.facts
        row = table.get("rows", {}).get(self.row, [])
        row, cells = row if isinstance(row, dict) else {"cells": row}, []
        for column, cell in zip(table.get("columns", []), row["cells"], strict=True):
            numbers = dict(cell if isinstance(cell, dict) else zip(table["numbers"], cell, strict=False))
            levels = (table, column, row, {"needs": numbers.pop("needs", {})})
            needs = {name: value for level in levels for name, value in level.get("needs", {}).items()}
            if table.get("percent"):
                numbers = {name: round(value / 100, 5) for name, value in numbers.items()}
            if column.get("name") == self.column:
                cells.append(Cell(column["config"], column["split"], numbers, needs))
        return cells


# ---- claims of a run


def reproduced_row(report: Any, changes: Sequence[str]) -> tuple[PaperRow | None, list[str]]:
    """The row that a run reproduces, given what flags changed, and the changes that no table of the paper has.

    A change with a row of its own (`paper_variants`) only counts if none before it has led to another row.

    Args:
        report: the run's `ReportArguments`.
        changes: what flags changed of the recipe, as "max_steps = 7 (12)".
    """
    if not report.paper:
        return None, list(changes)
    named = row = PaperRow.of(report.paper)
    rest = []
    for change in changes:
        # without the recipe's value
        name = change.rpartition(" (")[0]
        other = report.paper_variants.get(name)
        if name not in report.paper_variants or (other is not None and row != named):
            rest.append(change)
        elif other is not None:
            row = PaperRow.of({**report.paper, **other})
    return row, rest


def paper_claims(report: Any, changes: Sequence[str]) -> tuple[str, list[str]]:
    """The table row that a run reproduces and its differences from the paper, both with the changes made by flags."""
    row, rest = reproduced_row(report, changes)
    title = report.paper_table if row is None else row.title
    named = not title.startswith("none")
    if not rest or not (named or report.differences):
        return title, report.differences
    changed = f"changed by flags: {', '.join(rest)}"
    return f"{title}, but {changed}" if named else title, [*report.differences, changed]


def paper_values(
    tables: Mapping[str, Mapping[str, Any]],
    report: Any,
    data: Any,
    config: Any,
    steps: int,
    changes: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Split -> what the paper reports for it, if the run of a recipe of this package is the paper's.

    Args:
        steps: optimizer steps of the run.
        changes: what flags changed of the recipe.
    """
    row, rest = reproduced_row(report, changes)
    if row is None or any(not change.startswith(SAME_DISTRIBUTION) for change in rest):
        return {}
    found = {}
    for cell in row.cells():
        table = tables.get(cell.split)
        if table is not None and cell.compares(data, config, steps, table.get("n")):
            # a median is shown with its mean
            values = {**cell.numbers, "accuracy": cell.numbers.get("median", cell.numbers.get("mean"))}
            names = ("accuracy", *(("mean",) if "median" in values else ()), "std", "bleu", "bits", "slices")
            found[cell.split] = {name: values[name] for name in names if values.get(name) is not None}
    return found
