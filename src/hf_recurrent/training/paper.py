"""Rows of papers' tables: which one a run reproduces, and the numbers that compare with the run's own.

The numbers are in `paper_results.yaml`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..benchmarks import benchmark_info
from .recipes import require_known


@functools.cache
def papers() -> dict[str, dict[str, Any]]:
    """The contents of `paper_results.yaml`, by paper id."""
    return yaml.safe_load(Path(__file__).with_name("paper_results.yaml").read_text(encoding="utf-8"))


def paper_with_title(title: str) -> dict[str, str]:
    """Title, url and bibtex of the paper of that title."""
    found = next(facts for facts in papers().values() if facts["title"] == title)
    return {name: found[name] for name in ("title", "url", "bibtex")}


@dataclass(frozen=True)
class Conditions:
    """What a run needs for a paper's numbers to compare with its own.

    Attributes:
        benchmark: name of the benchmark.
        steps: optimiser steps, at least.
        exact_steps: optimiser steps, exactly; instead of `steps`.
        step_tokens: tokens of an optimiser step, over all processes.
        model: fields of the model's config.
        params: parameters of the benchmark's configuration that differ from its defaults.
        free_params: parameters that may have any value: another draw of the same distribution.
        params_among: parameters with the values that they may have.
        tokenizers: names of tokenizers that may be used.
        test_examples: size of the test split, if the data are read from `data_dir`.
        data_dir_allowed: whether the data may be read from files.
        eval_limit_allowed: whether `max_eval_samples` may be set.
        changes_allowed: whether flags may change the recipe in ways that no table of the paper has.
    """

    benchmark: str
    steps: int = 0
    exact_steps: int | None = None
    step_tokens: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    free_params: Sequence[str] = ()
    params_among: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tokenizers: Sequence[str | None] | None = None
    test_examples: int | None = None
    data_dir_allowed: bool = False
    eval_limit_allowed: bool = True
    changes_allowed: bool = False

    def hold(self, data: Any, config: Any, steps: int, step_tokens: int | None, test_examples: int | None) -> bool:
        """Whether a run with these `BenchmarkArguments`, model config and sizes compares."""
        enough = steps >= self.steps if self.exact_steps is None else steps == self.exact_steps
        same_size = data.data_dir is None or None in (test_examples, self.test_examples)
        return (
            self.data_compares(data)
            and enough
            and self.step_tokens in (None, step_tokens)
            and (same_size or test_examples == self.test_examples)
            and all(getattr(config, name) == value for name, value in self.model.items())
        )

    def data_compares(self, data: Any) -> bool:
        """Whether the benchmark, its parameters and its limits are the paper's."""
        if data.benchmark != self.benchmark or data.max_train_samples is not None:
            return False
        if data.data_dir is not None and not self.data_dir_allowed:
            return False
        if data.max_eval_samples is not None and not self.eval_limit_allowed:
            return False
        if self.tokenizers is not None and data.tokenizer not in self.tokenizers:
            return False
        defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
        given = {name: value for name, value in data.benchmark_params.items() if name not in self.free_params}
        if {**defaults, **given} != {**defaults, **self.params}:
            return False
        values = {**defaults, **data.benchmark_params}
        return all(values.get(name) in allowed for name, allowed in self.params_among.items())


class Cell(NamedTuple):
    """Numbers for a split of a configuration: some of median, mean, std, bleu, bits and slices."""

    config: str
    split: str
    numbers: dict[str, Any]
    needs: Conditions


def merged(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Later values over earlier ones, key by key in mappings one level down."""
    result: dict[str, Any] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            before = result.get(name)
            result[name] = {**before, **value} if isinstance(before, Mapping) else value
    return result


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table, and the column if the table is reproduced one column at a time.

    Raises:
        ValueError: there is no such paper, table, row or column.
    """

    id: str
    table: int
    row: str
    column: str | None = None

    def __post_init__(self) -> None:
        require_known("paper.id", self.id, list(papers()))
        tables = papers()[self.id]["tables"]
        if self.table not in tables:
            raise ValueError(f"paper.table is {self.table!r}: expected one of {', '.join(map(str, tables))}")
        if "rows" not in self.facts:
            # a table whose numbers are not transcribed
            return
        require_known(f"paper.row (of {self.id}, Table {self.table})", self.row, list(self.facts["rows"]))
        names = [column["name"] for column in self.facts["columns"] if "name" in column]
        if names:
            require_known(f"paper.column (of {self.id}, Table {self.table})", str(self.column), names)
        elif self.column is not None:
            raise ValueError(f"paper.column is {self.column!r}: leave it out, all columns of the table are reproduced")

    @classmethod
    def of(cls, paper: Mapping[str, Any]) -> "PaperRow":
        """The row that a recipe's `paper` names.

        Raises:
            ValueError: a key is unknown or missing, or there is no such row.
        """
        known = [item.name for item in dataclasses.fields(cls)]
        for name in paper:
            require_known("a key of paper", str(name), known)
        missing = [name for name in known[:3] if name not in paper]
        if missing:
            raise ValueError(f"paper is {dict(paper)}: {', '.join(missing)} missing, expected {{id, table, row}}")
        return cls(**paper)

    @property
    def facts(self) -> dict[str, Any]:
        return papers()[self.id]["tables"][self.table]

    @property
    def title(self) -> str:
        """The row in words: "Block-Recurrent Transformers, Table 1 (PG19 bytes), row XL:512"."""
        paper = papers()[self.id]
        place, *more = [text for text in (self.facts.get("about"), self.column) if text is not None]
        parts = [paper.get("name", paper["title"]), f"Table {self.table} ({place})", *more, f"row {self.row}"]
        return ", ".join(parts)

    def cells(self) -> list[Cell]:
        """The row's cells, of `column` if that is chosen; none if the table's numbers are not transcribed."""
        table = self.facts
        if "rows" not in table:
            return []
        row = table["rows"][self.row]
        row = row if isinstance(row, dict) else {"cells": row}
        cells = []
        for column, cell in zip(table["columns"], row["cells"], strict=True):
            if column.get("name") != self.column:
                continue
            cell = dict(cell) if isinstance(cell, dict) else dict(zip(table["numbers"], cell, strict=False))
            levels = (table["needs"], column.get("needs", {}), row.get("needs", {}), cell.pop("needs", {}))
            if table.get("percent"):
                cell = {name: round(value / 100, 5) for name, value in cell.items()}
            cells.append(Cell(column["config"], column["split"], cell, Conditions(**merged(*levels))))
        return cells
