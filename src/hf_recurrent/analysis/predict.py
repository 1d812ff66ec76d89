"""Predictions for every row of a table in its order.

Rows are encoded a window at a time; within it, batches hold texts of similar length.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from ..data.batches import NO_LIMIT, PaddingCollator, within
from ..data.reading import has_column, require_columns, text_of, value_of, words_of
from ..inference.processes import is_first
from ..utils import whole_file
from .answers import is_classifier, labels_tokens, to_device
from .evaluate import each_batch
from .predictors import Predictor, Row, predictor_of

if TYPE_CHECKING:
    from datasets import Dataset

# rows that are encoded and sorted by length together
WINDOW_ROWS = 4096
FORMATS = (".parquet", ".csv", ".jsonl")


@dataclass(frozen=True)
class PredictionSettings:
    """What to predict, and how.

    Attributes:
        text_columns: one column, or two of a pair; none: `text` and `text_pair`, `text`, `source`, or the only one that
            holds text. Dots lead to a value within a column, as in `translation.de`.
        keep_columns: columns of the table that the output has, too, before its own.
        max_seq_length: tokens that are kept of a text; None: as many as the tokenizer's limit.
        batch_size, batch_tokens: the most rows, and the most tokens with padding, in a batch.
        options: of the model's forward pass: `max_depth`, `halting_threshold`, `exit_criterion`, `exit_threshold`.
        all_probabilities: a classifier's probabilities of all labels.
        max_new_tokens: of models that write text.
        source_prefix: text before every text, of models that write text.
        top_k: the likeliest tokens for each mask, of masked language models; None: 5.
        limit: the first rows of the table to predict; None: all.
        skips_rows: whether rows without a text are left out, rather than an error.
    """

    text_columns: tuple[str, ...] = ()
    keep_columns: tuple[str, ...] = ()
    max_seq_length: int | None = None
    batch_size: int = 256
    batch_tokens: int | None = 16_384
    options: Mapping[str, Any] = field(default_factory=dict)
    all_probabilities: bool = False
    max_new_tokens: int | None = None
    source_prefix: str | None = None
    top_k: int | None = None
    limit: int | None = None
    skips_rows: bool = False


@dataclass
class Predicted:
    """What a finished run wrote: the number of `rows`, of which so many texts were `cut` to `max_seq_length` tokens.

    `skipped` are the numbers of the rows that were left out, each with the reason.
    """

    max_seq_length: int
    rows: int = 0
    cut: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)


def predict_file(
    model: Any,
    tokenizer: Any,
    rows: "Dataset",
    output: Path,
    settings: PredictionSettings | None = None,
    *,
    place: str = "the table",
    overwrite: bool = False,
    progress: bool = False,
) -> Predicted:
    """Write a table with a prediction for every row.

    The columns are those of `Classifier`, `TokenClassifier`, `MaskFiller` or `Writer`, after the kept ones. The format
    is Parquet, CSV or JSON Lines, by the end of the output's name; in CSV lists are JSON.

    Args:
        model: a classifier of sequences or tokens, language model or encoder-decoder of this package.
        tokenizer: its tokenizer.
        rows: what to predict.
        output: the file to write, which appears when all of it is there.
        place: what messages call the rows.
        overwrite: replace `output`.
        progress: show a progress bar on stderr.

    Raises:
        ValueError: a setting does not fit the rows or the model, a row has no text, or `output` is there.
    """
    settings, output = settings or PredictionSettings(), Path(output)
    if output.suffix.lower() not in FORMATS:
        raise ValueError(f"output is {str(output)!r}: its name should end in one of {', '.join(FORMATS)}")
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists: pass overwrite to replace it (--overwrite), or name another file")
    texts, kept = text_columns(rows, settings.text_columns, model, place), settings.keep_columns
    for name in kept:
        require_columns({"keep_columns": name}, rows.column_names, place)
    of_words = labels_tokens(model) and isinstance(value_of(rows[0], texts[0]), list)
    predictor = predictor_of(model, tokenizer, settings, of_words)
    limit = settings.max_seq_length or min(tokenizer.model_max_length, NO_LIMIT)
    around = tokenizer.num_special_tokens_to_add(pair=len(texts) > 1)
    if limit <= around:
        raise ValueError(
            f"max_seq_length is {limit}: no text can be cut to so few tokens (the tokenizer adds {around} of its own)"
        )
    report, total = Predicted(limit), min(settings.limit or len(rows), len(rows))

    def reject(number: int, problem: str) -> None:
        if not settings.skips_rows:
            raise ValueError(f"{place}, row {number + 1}: {problem}; correct it, or pass --on_error skip")
        report.skipped.append((number + 1, problem))

    def of_batch(batch: Sequence[Example]) -> list[tuple[int, Row]]:
        inputs = to_device(collate([example.inputs for example in batch]), model)
        found = predictor.rows(inputs, [example.text[0] for example in batch], [example.spans for example in batch])
        bar.update(len(batch))
        return [(example.number, row) for example, row in zip(batch, found, strict=True)]

    answers: dict[int, Row] = {}
    collate = PaddingCollator(tokenizer)
    collate.left = predictor.pads_left
    with tqdm(total=total, desc="predicting", unit=" rows", disable=not (progress and is_first())) as bar:
        for start in range(0, total, WINDOW_ROWS):
            given = {}
            for number, row in enumerate(rows.select(range(start, min(start + WINDOW_ROWS, total))), start):
                try:
                    given[number] = [(words_of if of_words else text_of)(row, name) for name in texts]
                except ValueError as error:
                    reject(number, str(error))
            examples = encode(predictor, given, limit)
            report.cut += sum(example.length > limit for example in examples)
            problems = [predictor.problem(example.inputs["input_ids"]) for example in examples]
            for example, problem in zip(examples, problems, strict=True):
                if problem is not None:
                    reject(example.number, problem)
            good = [example for example, problem in zip(examples, problems, strict=True) if problem is None]
            batches = by_length(good, settings.batch_size, settings.batch_tokens)
            answers |= sorted(chain(*each_batch(model, batches, of_batch)))
            twice = {*kept} & {*next(iter(answers.values()), ())}
            if twice:
                raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them")
    report.rows = len(answers)
    if is_first():
        found = pa.Table.from_pylist(list(answers.values()))
        given = rows.select(list(answers)).with_format("arrow")[:]
        for place, name in enumerate(dict.fromkeys(kept)):
            found = found.add_column(place, name, kept_column(given, name))
        write(found, output)
    return report


class Example(NamedTuple):
    """A row to predict: its number, texts, inputs of a model, characters of tokens, and tokens before it was cut."""

    number: int
    text: list
    inputs: dict[str, list[int]]
    spans: Sequence[tuple[int, int]]
    length: int


def encode(predictor: Predictor, given: Mapping[int, list], limit: int) -> list[Example]:
    """Texts or pairs as token ids, with types if they are pairs, cut to a limit."""
    if not given:
        return []
    prefix, pairs = predictor.settings.source_prefix or "", len(next(iter(given.values()))) > 1
    sides = [
        [prefix + (text if isinstance(text, str) else " ".join(text)) for text in side]
        for side in zip(*given.values(), strict=True)
    ]
    more = {"return_token_type_ids": pairs, "return_attention_mask": False}
    columns, lengths = within(predictor.tokenizer, limit, *sides, **more, return_offsets_mapping=predictor.needs_spans)
    spans = columns.pop("offset_mapping", [()] * len(given))
    inputs = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return list(map(Example, given, given.values(), inputs, spans, lengths))


def by_length(examples: Sequence[Example], batch_size: int, batch_tokens: int | None) -> Iterator[list[Example]]:
    """Batches of examples, the longest first.

    Args:
        batch_tokens: the most tokens in a batch, padding included; a text that is longer is alone. None: any number.
    """
    order, start = sorted(examples, key=lambda example: len(example.inputs["input_ids"]), reverse=True), 0
    while start < len(order):
        longest = len(order[start].inputs["input_ids"])
        size = batch_size if batch_tokens is None else min(batch_size, max(1, batch_tokens // longest))
        yield order[start : start + size]
        start += size


def text_columns(rows: "Dataset", chosen: Sequence[str], model: Any, place: str = "the table") -> tuple[str, ...]:
    """The columns with texts or lists of words: those chosen, or by usual names of such data, or the only one.

    Raises:
        ValueError: a column is not there, there are too many, or it is not clear which one is meant.
    """
    columns = rows.column_names
    fewest, most = (2, 2) if model.config.capabilities.siamese else (1, 2 if is_classifier(model) else 1)
    wanted = (
        "two columns, for the model reads pairs" if fewest == 2 else "one column" + ", or two of a pair" * (most - 1)
    )
    for name in chosen:
        require_columns({"text_column": name}, columns, place)
    if chosen and not fewest <= len(chosen) <= most:
        raise ValueError(f"text_column is {', '.join(chosen)}: name {wanted}")
    of_words = labels_tokens(model)
    usual = [*[("tokens",), ("words",)] * of_words, ("text", "text_pair"), ("text",), ("source",)]
    for names in [tuple(chosen), *usual]:
        if fewest <= len(names) <= most and all(has_column(columns, name) for name in names):
            return names
    found = tuple(name for name, value in rows[0].items() if isinstance(value, (str, list) if of_words else str))
    if len(found) != fewest:
        raise ValueError(f"{place} has the columns {', '.join(columns)}: name {wanted}, with --text_column")
    return found


def kept_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column, or a value within it where the name has dots; of a column of several types, texts and JSON."""
    first, *parts = [name] if name in table.column_names else name.split(".")
    found = pc.struct_field(table[first], parts) if parts else table[first]
    if isinstance(found.type, pa.BaseExtensionType):
        texts = [json.loads(text) if text and text[0] == '"' else text for text in found.to_pylist()]
        return pa.chunked_array([texts], pa.string())
    return found


def write(table: pa.Table, output: Path) -> None:
    """Write a table as Parquet, CSV or JSON Lines, by the end of the file's name; dates and the like become text."""
    as_json = partial(json.dumps, ensure_ascii=False, default=str)
    with whole_file(output) as path:
        if output.suffix.lower() == ".parquet":
            pq.write_table(table, path)
            return
        rows = (row for batch in table.to_batches(WINDOW_ROWS) for row in batch.to_pylist())
        with path.open("w", newline="", encoding="utf-8") as file:
            if output.suffix.lower() == ".jsonl":
                file.writelines(as_json(row) + "\n" for row in rows)
                return
            writer = csv.writer(file)
            writer.writerow(table.column_names)
            for row in rows:
                cells = row.values()
                writer.writerow([as_json(cell) if isinstance(cell, list | dict | bool) else cell for cell in cells])
