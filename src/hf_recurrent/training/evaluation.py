"""The evaluation that ends a run: every split and slice, halting statistics, the threshold curve and the figures."""

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ..analysis.explain.canvas import symbol_kind
from ..analysis.explain.card import draw_picture, draw_routing, examples_to_draw
from ..analysis.maps import has_memory, memory_map, token_heat_map
from ..analysis.sweep import threshold_curve
from ..analysis.tables import HALTING_FILE, write_tables
from ..files import write_bytes
from ..inference.processes import alone, is_first
from ..metrics.functional import hardly_better
from .data import MAX_EXAMPLE_TOKENS, EvaluationSplit
from .language_data import TextSplit
from .report_arguments import RunArguments, TimedReportArguments

# tokens of a map of memory that stay readable
MAX_MEMORY_TOKENS = 512
# headings of a metric, and of the best constant answer
SHORT_NAMES = {"exact_labels": ("exact", "majority"), "r_squared": ("r_squared", "mean")}


@dataclass
class Evaluation:
    """`tables` by split name (see `halting_table`), `seconds` of each split's pass, figures as `save_all` lists them.

    `routing` and `pictures` are the facts that `draw_routing` and `draw_picture` return. `curve` was measured on
    `curve_rows` examples of the first split. `example` is one of them, short enough to show.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    curve_rows: int | None = None
    plots: list[dict[str, str | None]] = field(default_factory=list)
    routing: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[dict[str, Any]] = field(default_factory=list)
    example: dict[str, Any] = field(default_factory=dict)


def evaluate_run(
    model: Any,
    tokenizer: Any,
    splits: Sequence[EvaluationSplit | TextSplit],
    folder: Path,
    run: TimedReportArguments,
    batch_size: int,
    progress: bool = True,
) -> Evaluation:
    """Evaluate `model` on every split; write statistics, figures and, if asked for, predictions to `folder`.

    Of several processes that share the splits, the first one alone writes, and has more than `tables` and `seconds`.
    """
    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        examples, evaluation.tables[split.name] = split.measure(model, tokenizer, batch_size, progress=progress)
        evaluation.seconds[split.name] = time.perf_counter() - start
        if run.write_predictions and is_first():
            lines = [json.dumps(row) for row in split.predictions(examples, model, tokenizer)]
            path = folder / "predictions" / f"{split.name.replace('/', '-')}.jsonl"
            write_bytes(path, ("\n".join(lines) + "\n").encode())
    if is_first():
        with alone():
            illustrate(evaluation, model, tokenizer, splits[0], folder, run, batch_size)
    return evaluation


def illustrate(
    evaluation: Evaluation,
    model: Any,
    tokenizer: Any,
    first: EvaluationSplit | TextSplit,
    folder: Path,
    run: TimedReportArguments,
    batch_size: int,
) -> None:
    """Add the figures of the first split to an evaluation, and write it to `folder`."""
    if type(first) is EvaluationSplit:
        explain(evaluation, model, tokenizer, first, folder, run, batch_size)
        write_tables(folder, HALTING_FILE, evaluation.tables, threshold_curve=evaluation.curve)
    else:
        evaluation.plots = first.figures(folder, evaluation.tables[first.name], model, tokenizer)
        write_tables(folder, first.statistics_file, evaluation.tables)


def explain(
    evaluation: Evaluation,
    model: Any,
    tokenizer: Any,
    first: EvaluationSplit,
    folder: Path,
    run: RunArguments,
    batch_size: int,
) -> None:
    """Add the threshold curve and all figures of a classifier or a benchmark's language model to an evaluation."""
    # matplotlib is loaded where figures are drawn alone
    from ..analysis.plots import save_halting_figures

    evaluation.example = first.short_example()
    if run.thresholds:
        curve_split = sample(first, run.threshold_samples)
        evaluation.curve_rows = len(curve_split.dataset)
        batches = curve_split.batches(tokenizer, batch_size)
        evaluation.curve = threshold_curve(model, batches, run.thresholds)
    table = evaluation.tables[first.name]
    # one halting unit would be one line, which the figure of the halting mass shows already
    several = table["unit"] in ("token", "chunk", "sentence") and symbol_kind(tokenizer) is None
    heat_map = token_heat_map(model, tokenizer, evaluation.example) if several else None
    # maps of many chunks are unreadable and take much memory
    short = len(evaluation.example["input_ids"]) <= MAX_MEMORY_TOKENS
    memory = memory_map(model, tokenizer, evaluation.example) if short and has_memory(model.config) else None
    evaluation.plots = save_halting_figures(
        folder, table, prefix=first.name, curve=evaluation.curve, heat_map=heat_map, memory=memory
    )
    routing = draw_routing(
        folder, model, tokenizer, evaluation.example, prefix=first.name, max_prompt=MAX_EXAMPLE_TOKENS
    )
    if routing is not None:
        evaluation.routing.append(routing)
        evaluation.plots.append({"kind": "routing", "path": routing["path"], "column": None})
    draw_pictures(evaluation, folder, model, tokenizer, first)


def named_scores(table: Mapping[str, Any], between: str = "_") -> dict[str, float]:
    """The `scores` of a table by their names, with this `between` words; `f1` of two classes says which it is of."""
    named = {name: name.replace("_", between) for name in table.get("scores", {})}
    if "positive_label" in table:
        named["f1"] = between.join(("f1", "of", table["positive_label"]))
    return {named[name]: value for name, value in table.get("scores", {}).items()}


def draw_pictures(evaluation: Evaluation, folder: Path, model: Any, tokenizer: Any, split: EvaluationSplit) -> None:
    """Draw what a classifier attends to in a few examples of pixels or bytes."""
    labels = split.dataset["labels"][:]
    if symbol_kind(tokenizer) is None or np.ndim(labels[0]) > 0:
        return
    for place in examples_to_draw([len(ids) for ids in split.dataset["input_ids"][:]], labels):
        picture = draw_picture(folder, model, tokenizer, split.dataset[place], prefix=f"{split.name}_{place}")
        if picture is not None:
            evaluation.pictures.append(picture)
            evaluation.plots.append({"kind": "picture", "path": picture["path"], "column": None})


def sample(split: EvaluationSplit, size: int) -> EvaluationSplit:
    """The same random examples each time, in the order of the split, which is that of length."""
    total = len(split.dataset)
    chosen = sorted(random.Random(0).sample(range(total), min(size, total)))
    return replace(split, dataset=split.dataset.select(chosen))


def summary(evaluation: Evaluation, epochs: list[float] | None = None, metric: str = "accuracy") -> str:
    """Plain-text tables: one line per split, then one per slice of each split; times if those of `epochs` are given.

    `metric` is the measure of the tables, one of `hub.tasks.METRICS`.
    """
    sections = [as_text(formatted("split", name, table, metric) for name, table in evaluation.tables.items())]
    scores = {name: named_scores(table) for name, table in evaluation.tables.items() if "scores" in table}
    if scores:
        rows = ({"split": name, **{key: f"{value:.4f}" for key, value in row.items()}} for name, row in scores.items())
        sections.append(as_text(rows))
    if epochs is not None:
        seconds = [f"  {name}: {seconds:.1f}" for name, seconds in evaluation.seconds.items()]
        epoch_seconds = ", ".join(f"{seconds:.1f}" for seconds in epochs)
        sections.append(
            "\n".join([f"seconds of a training epoch: {epoch_seconds}", "seconds of an evaluation pass:", *seconds])
        )
    for name, table in evaluation.tables.items():
        for column, data in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(data["rows"]) > 1:
                text = as_text(formatted(column, row["value"], row, metric) for row in data["rows"])
                sections.append(f"{name} by {column}\n{text}")
        for column, data in (table.get("tokens") or {}).items():
            text = as_text(
                {column_head(column): row["value"], "n": row["n"], **formatted_steps(row["steps"])}
                for row in data["rows"]
            )
            sections.append(f"tokens of {name} by {column}\n{text}")
    return "\n\n".join([*sections, *little_learned(evaluation.tables, metric)])


def little_learned(tables: Mapping[str, Mapping[str, Any]], metric: str) -> list[str]:
    """A warning if no split is answered better than by its most frequent answer; none without accuracies."""
    found = [(table["accuracy"], table["majority_baseline"], table["n"]) for table in tables.values()]
    if metric != "accuracy" or not all(hardly_better(*values) for values in found):
        return []
    return [
        "Warning: this is hardly better than the most frequent answer (majority). More steps (--max_steps), another "
        "learning rate (--learning_rate) or more examples may help."
    ]


def formatted(head: str, name: str, row: Mapping[str, Any], metric: str = "accuracy") -> dict[str, Any]:
    """The numbers of a table, or of a row of its slices, beside `name` in the column `head`.

    Of a language model also the accuracy of all labelled tokens, and the steps of the token that gives the last answer.
    """
    shown, constant = SHORT_NAMES.get(metric, ("accuracy", "majority"))
    accuracies = {shown: f"{row['accuracy']:.4f}", constant: f"{row['majority_baseline']:.4f}"}
    record = {column_head(head): name, "n": row["n"], **accuracies, **formatted_steps(row["steps"])}
    if "labelled_tokens" in row:
        record["answer"] = f"{row['answer_steps']['mean']:.2f}" if row["steps"] else ""
        record["all"] = f"{row['labelled_tokens']['accuracy']:.4f}"
    return record


def column_head(column: str) -> str:
    """The head of a user's column, which may be called as a column of numbers is."""
    numbers = ("n", "accuracy", "majority", "steps", "p95", "answer", "all", *chain(*SHORT_NAMES.values()))
    return f"column {column}" if column in numbers else column


def formatted_steps(steps: Mapping[str, float] | None) -> dict[str, str]:
    """Mean and 95th percentile of executed steps; None: a fixed depth."""
    return {"steps": f"{steps['mean']:.2f}", "p95": f"{steps['p95']:.2f}"} if steps else {"steps": "fixed", "p95": ""}


def as_text(records: Iterable[dict[str, Any]]) -> str:
    """Aligned lines, one for each record, below the names of their columns."""
    return pandas.DataFrame(records).to_string(index=False)
