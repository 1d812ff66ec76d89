"""Evaluation of a user's own splits, and of those whose labelled tokens count one by one: accuracy, steps, scores."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..analysis.halting import HaltingRecord, halting_table
from ..analysis.maps import token_heat_map
from ..analysis.tables import HALTING_FILE, write_tables
from ..analysis.token_halting import collect_tokens
from ..inference.processes import alone, is_first
from .data import EvaluationSplit
from .evaluation import Evaluation, short_example
from .metrics import LARGEST_EXPONENT, tag_scores
from .token_data import TokenSplit


def evaluate_tokens(
    model: Any, tokenizer: Any, split: TokenSplit, batch_size: int, **options: Any
) -> tuple[HaltingRecord, dict[str, Any]]:
    """What a model predicts of the labelled tokens of a split, and its table (see `halting_table`) with `scores`.

    Args:
        options: of `collect_tokens`.
    """
    record = collect_tokens(model, split.batches(tokenizer, batch_size), slices=split.slices, **options)
    if split.labels is not None:
        found, labels = (record.examples[name].to_numpy() for name in ("prediction", "label"))
        scores = tag_scores(found, labels, split.counts, split.labels.names)
        del scores["accuracy"]
        return record, {**halting_table(record), "scores": scores, **split.labels.positive}
    nll = float(record.examples["nll"].mean())
    scores = {"nll": nll, "perplexity": perplexity(nll)}
    if "nll" in split.baseline:
        scores["perplexity_of_frequencies"] = perplexity(split.baseline["nll"])
    return record, {**halting_table(record), "scores": scores}


def evaluate_own_run(
    model: Any,
    tokenizer: Any,
    splits: Sequence[EvaluationSplit],
    folder: Path,
    batch_size: int,
    progress: bool = True,
    measure: Callable[..., tuple[HaltingRecord, dict[str, Any]]] = evaluate_tokens,
    keep: Callable[[HaltingRecord, Any], None] | None = None,
) -> Evaluation:
    """Evaluate a model on every split; write halting_stats.json and figures to `folder`.

    Of several processes that share the splits, the first one alone writes, and has more than `tables` and `seconds`.

    Args:
        measure: what a model predicts of a split, and its table, as `evaluate_tokens` gives them.
        keep: called with what is predicted of each split.
    """
    evaluation = Evaluation()
    for split in splits:
        start = time.perf_counter()
        record, evaluation.tables[split.name] = measure(model, tokenizer, split, batch_size, progress=progress)
        evaluation.seconds[split.name] = time.perf_counter() - start
        if keep is not None and is_first():
            keep(record, split)
    if is_first():
        with alone():
            illustrate(evaluation, model, tokenizer, splits[0], folder)
    return evaluation


def illustrate(evaluation: Evaluation, model: Any, tokenizer: Any, first: EvaluationSplit, folder: Path) -> None:
    """Add the figures of the first split to an evaluation, and write it to `folder`."""
    # matplotlib is loaded where figures are drawn alone
    from ..analysis.plots import save_halting_figures

    table = evaluation.tables[first.name]
    drawn = isinstance(first, TokenSplit) and table["unit"] == "token"
    heat_map = token_heat_map(model, tokenizer, short_example(first)) if drawn else {}
    # those are of tokens that the one before predicts
    heat_map.pop("answers", None)
    evaluation.plots = save_halting_figures(folder, table, prefix=first.name, heat_map=heat_map)
    write_tables(folder, HALTING_FILE, evaluation.tables)


def perplexity(nll: float) -> float:
    """The exponential of nats a token, or of as many as a float can hold."""
    return math.exp(min(nll, LARGEST_EXPONENT))
