"""The evaluation that ends a run: every split and slice, halting statistics, the threshold curve and the figures."""

import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.explain.canvas import symbol_kind
from ..analysis.explain.card import draw_picture, draw_routing, examples_to_draw
from ..analysis.halting import HaltingRecord, collect_halting, halting_table, threshold_curve
from ..analysis.maps import has_memory, memory_map, token_heat_map
from ..analysis.tables import HALTING_FILE, write_tables
from ..metrics.serialize import write_bytes
from .arguments import RunArguments
from .data import EvaluationSplit

# a heat map with a row per token, and a card's example, must stay readable
MAX_EXAMPLE_TOKENS = 40
MAX_MEMORY_TOKENS = 512


@dataclass
class Evaluation:
    """`tables` by split name (see `halting_table`), `seconds` of each split's pass, figures as `save_all` lists them.

    `routing` and `pictures` are what `draw_routing` and `draw_picture` tell of their figures. `curve` was measured on
    `curve_rows` rows of the first split. `example` is a row of it, short enough to show.
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
    model: Any, tokenizer: Any, splits: list[EvaluationSplit], folder: Path, run: RunArguments, batch_size: int
) -> Evaluation:
    """Evaluate `model` on every split; write halting_stats.json, figures and, if asked for, predictions to `folder`."""
    from ..analysis.plots import save_halting_figures

    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        batches = split.batches(tokenizer, batch_size)
        record = collect_halting(model, batches, slices=split.slices, kinds=split.kinds, progress=True)
        evaluation.seconds[split.name] = time.perf_counter() - start
        evaluation.tables[split.name] = halting_table(record)
        if run.write_predictions:
            path = folder / "predictions" / f"{split.name.replace('/', '-')}.jsonl"
            is_text = "labelled" in record.examples
            words = tokenizer.convert_ids_to_tokens if is_text else model.config.id2label.__getitem__
            write_predictions(path, split, record, words)
    first = splits[0]
    evaluation.example = example_row(first)
    if run.thresholds:
        curve_split = sample(first, run.threshold_samples)
        evaluation.curve_rows = len(curve_split.dataset)
        evaluation.curve = threshold_curve(model, curve_split.batches(tokenizer, batch_size), run.thresholds)
    table = evaluation.tables[first.name]
    # a whole row that halts at once is one line: the halting mass figure says that already
    several = table["unit"] in ("token", "chunk", "sentence") and symbol_kind(tokenizer) is None
    heat_map = token_heat_map(model, tokenizer, evaluation.example) if several else None
    # of many chunks nothing could be seen, and their maps take much memory
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
    write_tables(folder, HALTING_FILE, evaluation.tables, threshold_curve=evaluation.curve)
    return evaluation


def draw_pictures(evaluation: Evaluation, folder: Path, model: Any, tokenizer: Any, split: EvaluationSplit) -> None:
    """Draw what a classifier reads of a few rows of pixels or bytes."""
    labels = split.dataset["labels"][:]
    if symbol_kind(tokenizer) is None or np.ndim(labels[0]) > 0:
        return
    for place in examples_to_draw([len(ids) for ids in split.dataset["input_ids"][:]], labels):
        told = draw_picture(folder, model, tokenizer, split.dataset[place], prefix=f"{split.name}_{place}")
        if told is not None:
            evaluation.pictures.append(told)
            evaluation.plots.append({"kind": "picture", "path": told["path"], "column": None})


def sample(split: EvaluationSplit, size: int) -> EvaluationSplit:
    """The same random rows each time, in the order of the split, which is that of length."""
    total = len(split.dataset)
    rows = sorted(random.Random(0).sample(range(total), min(size, total)))
    return replace(split, dataset=split.dataset.select(rows))


def example_row(split: EvaluationSplit) -> dict[str, Any]:
    """The longest row of at most `MAX_EXAMPLE_TOKENS` tokens, or the shortest of all: rows are sorted by length."""
    lengths = [len(ids) for ids in split.dataset["input_ids"][:]]
    fitting = [i for i, length in enumerate(lengths) if length <= MAX_EXAMPLE_TOKENS]
    return split.dataset[fitting[-1] if fitting else 0]


def write_predictions(path: Path, split: EvaluationSplit, record: HaltingRecord, words: Callable[[int], str]) -> None:
    """One JSON line per row: slice columns, label and prediction, which `words` names, and mean executed steps."""
    lines = []
    for i, example in enumerate(record.examples.to_dict("records")):
        row = {name: split.dataset[i][name] for name in split.slice_columns}
        row |= {"label": words(example["label"]), "prediction": words(example["prediction"])}
        if "steps" in example:
            row["steps"] = example["steps"]
        lines.append(json.dumps(row))
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def summary(evaluation: Evaluation, epochs: list[float] | None = None) -> str:
    """Plain-text tables: one line per split, then one per slice of each split; times if those of `epochs` are given."""
    lines = [*table_lines("split", ((name, table) for name, table in evaluation.tables.items()))]
    if epochs is not None:
        lines += ["", "seconds of a training epoch: " + ", ".join(f"{seconds:.1f}" for seconds in epochs)]
        lines += ["seconds of an evaluation pass:"]
        lines += [f"  {name}: {seconds:.1f}" for name, seconds in evaluation.seconds.items()]
    for name, table in evaluation.tables.items():
        for column, data in table["slices"].items():
            # a column that is the same everywhere compares nothing
            if len(data["rows"]) < 2:
                continue
            lines += ["", f"{name} by {column}"]
            lines += table_lines(column, ((row["value"], row) for row in data["rows"]))
        for column, data in (table.get("tokens") or {}).items():
            lines += ["", f"tokens of {name} by {column}"]
            lines += token_lines(column, data["rows"])
    return "\n".join(lines)


def table_lines(head: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Aligned lines with n, accuracy, majority baseline and steps of each row.

    Of a language model also the accuracy of all labelled tokens, and the steps of the token that gives the last answer.
    """
    rows = list(rows)
    width = max(len(head), *(len(name) for name, _ in rows))
    language = "labelled_tokens" in rows[0][1]
    more = f" {'answer':>6} {'all':>9}" if language else ""
    lines = [f"{head:<{width}} {'n':>7} {'accuracy':>9} {'majority':>9} {'steps':>6} {'p95':>6}{more}"]
    for name, row in rows:
        steps = row["steps"]
        depth = f"{steps['mean']:>6.2f} {steps['p95']:>6.2f}" if steps else f"{'fixed':>6} {'':>6}"
        if language:
            answer = f"{row['answer_steps']['mean']:>6.2f}" if steps else f"{'':>6}"
            depth += f" {answer} {row['labelled_tokens']['accuracy']:>9.4f}"
        lines.append(f"{name:<{width}} {row['n']:>7} {row['accuracy']:>9.4f} {row['majority_baseline']:>9.4f} {depth}")
    return lines


def token_lines(head: str, rows: list[dict[str, Any]]) -> list[str]:
    """Aligned lines with n and steps of each row of `token_tables`."""
    width = max(len(head), *(len(row["value"]) for row in rows))
    lines = [f"{head:<{width}} {'n':>9} {'steps':>6} {'p95':>6}"]
    for row in rows:
        steps = row["steps"]
        lines.append(f"{row['value']:<{width}} {row['n']:>9} {steps['mean']:>6.2f} {steps['p95']:>6.2f}")
    return lines
