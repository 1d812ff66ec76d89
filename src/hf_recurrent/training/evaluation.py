"""The evaluation that ends a run: every split and slice, halting statistics, the threshold curve and the figures."""

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ..analysis.evaluate import threshold_curve
from ..files import write_bytes
from ..inference.processes import alone, is_first
from ..tasks.base import MAX_EXAMPLE_TOKENS, Split, Task, short_example
from ..tasks.summary import sentences, titled_tables
from .arguments import ReportArguments

# tokens of a map of memory that stay readable
MAX_MEMORY_TOKENS = 512


@dataclass
class Evaluation:
    """`tables` by split name (see `halting_table`), `seconds` of each split's pass, figures as `save_all` lists them.

    `routing` and `pictures` are the facts that `draw_example` returns. `curve` was measured on
    `curve_rows` examples of the first split.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    curve_rows: int | None = None
    plots: list[dict[str, str | None]] = field(default_factory=list)
    routing: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[dict[str, Any]] = field(default_factory=list)


def evaluate_run(
    model: Any,
    tokenizer: Any,
    splits: Sequence[Split],
    folder: Path,
    run: ReportArguments,
    batch_size: int,
    progress: bool = True,
) -> Evaluation:
    """Evaluate `model` on every split; write figures and, if asked for, predictions to `folder`.

    Of several processes that share the splits, the first one alone writes, and has more than `tables` and `seconds`.
    """
    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        examples, evaluation.tables[split.name] = split.measure(model, tokenizer, batch_size, progress=progress)
        evaluation.seconds[split.name] = time.perf_counter() - start
        if run.write_predictions and is_first():
            lines = [json.dumps(row) for row in split.task.predictions(split, examples, model, tokenizer)]
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
    first: Split,
    folder: Path,
    run: ReportArguments,
    batch_size: int,
) -> None:
    """Draw the figures of the first split into `folder`, and add them and the threshold curve to an evaluation."""
    # matplotlib is loaded where figures are drawn alone
    from ..analysis.plots import save_figures

    table, task = evaluation.tables[first.name], first.task
    if not task.explains:
        evaluation.plots = task.figures(first, folder, table, model, tokenizer)
        return
    if run.thresholds:
        curve_split = sample(first, run.threshold_samples)
        evaluation.curve_rows = len(curve_split.dataset)
        evaluation.curve = threshold_curve(model, curve_split.batches(tokenizer, batch_size), run.thresholds)
    maps = {}
    # of a user's own examples a card shows none, unless it is asked to
    quotes = run.examples or not task.data.is_own
    if quotes:
        maps = maps_of(model, tokenizer, short_example(first), table["unit"])
    evaluation.plots = save_figures(folder, table, prefix=first.name, curve=evaluation.curve, **maps)
    if quotes:
        draw_examples(evaluation, folder, model, tokenizer, first)


def maps_of(model: Any, tokenizer: Any, example: dict[str, Any], unit: str) -> dict[str, Any]:
    """Where an example stops and what it keeps in memory, where the model has maps of these that can be read."""
    from ..analysis.explain.card import has_memory, memory_map, token_heat_map
    from ..analysis.explain.explanation import pixel_values

    # one halting unit would be one line, which the figure of the halting mass shows already
    several = unit in ("token", "chunk", "sentence") and not pixel_values(tokenizer)
    # maps of many chunks are unreadable and take much memory
    remembers = len(example["input_ids"]) <= MAX_MEMORY_TOKENS and has_memory(model.config)
    return {
        "heat_map": token_heat_map(model, tokenizer, example) if several else None,
        "memory": memory_map(model, tokenizer, example) if remembers else None,
    }


def draw_examples(evaluation: Evaluation, folder: Path, model: Any, tokenizer: Any, split: Split) -> None:
    """Draw the attention in a short example or, of a classifier of pixels, in a picture of each of two labels."""
    from ..analysis.explain.card import draw_example, examples_to_draw
    from ..analysis.explain.explanation import reads_pixels

    examples, labels = {split.name: short_example(split)}, split.dataset["labels"][:]
    if reads_pixels(model, tokenizer) and np.ndim(labels[0]) == 0:
        chosen = examples_to_draw([len(ids) for ids in split.dataset["input_ids"][:]], labels)
        examples = {f"{split.name}_{place}": split.dataset[place] for place in chosen}
    for prefix, example in examples.items():
        drawn = draw_example(folder, model, tokenizer, example, prefix=prefix, max_prompt=MAX_EXAMPLE_TOKENS)
        if drawn is not None:
            kind = drawn.pop("kind")
            (evaluation.pictures if kind == "picture" else evaluation.routing).append(drawn)
            evaluation.plots.append({"kind": kind, "path": drawn["path"], "column": None})


def sample(split: Split, size: int) -> Split:
    """The same random examples each time, in the order of the split, which is that of length."""
    total = len(split.dataset)
    chosen = sorted(random.Random(0).sample(range(total), min(size, total)))
    return replace(split, dataset=split.dataset.select(chosen))


def summary(
    evaluation: Evaluation, epochs: list[float] | None, task: Task, compared: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The results as plain text, beside models `compared`; times if those of `epochs` are given."""
    tables, metric = evaluation.tables, task.metric
    sections = [
        f"{title}\n{pandas.DataFrame(rows).to_string(index=False)}" for title, rows in titled_tables(tables, metric)
    ]
    rivals = {item["name"]: item["values"] for item in compared}
    if rivals:
        rows = [
            {
                "split": name,
                "this model": f"{table['accuracy']:.4f}",
                "mean" if metric == "r_squared" else "majority": f"{table['majority_baseline']:.4f}",
                **{rival: f"{values[name][0]:.4f}" for rival, values in rivals.items()},
            }
            for name, table in tables.items()
        ]
        sections.append(pandas.DataFrame(rows).to_string(index=False))
    if epochs is not None:
        seconds = [f"  {name}: {seconds:.1f}" for name, seconds in evaluation.seconds.items()]
        of_epochs = ", ".join(f"{seconds:.1f}" for seconds in epochs)
        sections.append("\n".join([f"seconds of a training epoch: {of_epochs}", "seconds of an evaluation:", *seconds]))
    return "\n\n".join([*sections, "\n".join(sentences(tables, metric))])
