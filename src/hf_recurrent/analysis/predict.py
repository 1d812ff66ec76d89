"""Predictions for every row of a table in its order.

Rows are encoded and written a window at a time; within it, batches hold texts of similar length.
"""

import csv
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm.auto import tqdm

from ..data.batches import NO_LIMIT, PaddingCollator, within
from ..data.reading import has_column, require_columns, text_of, value_of, words_of
from ..deploy.processes import is_first
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
    check_output(output, overwrite)
    texts, kept = text_columns(rows, settings.text_columns, model, place), settings.keep_columns
    of_words = labels_tokens(model) and isinstance(value_of(next(iter(rows), {}), texts[0]), list)
    predictor = predictor_of(model, tokenizer, settings, of_words)
    schema = output_schema(rows, kept, predictor, place)
    limit = settings.max_seq_length or min(tokenizer.model_max_length, NO_LIMIT)
    around = tokenizer.num_special_tokens_to_add(pair=len(texts) > 1)
    if limit <= around:
        raise ValueError(
            f"max_seq_length is {limit}: no text can be cut to so few tokens (the tokenizer adds {around} of its own)"
        )
    report, total = Predicted(limit), min(settings.limit or len(rows), len(rows))
    # the mask tells padding apart, whatever token it is
    collate = PaddingCollator(tokenizer, pad_token_id=tokenizer.pad_token_id or 0)
    collate.left = predictor.pads_left

    def reject(number: int, problem: str) -> None:
        if not settings.skips_rows:
            raise ValueError(f"{place}, row {number + 1}: {problem}; correct it, or pass --on_error skip")
        report.skipped.append((number + 1, problem))

    def of_batch(batch: Sequence[Example]) -> list[tuple[int, Row]]:
        inputs = to_device(collate([example.inputs for example in batch]), model)
        found = predictor.rows(inputs, [example.text[0] for example in batch], [example.spans for example in batch])
        bar.update(len(batch))
        return [(example.number, row) for example, row in zip(batch, found, strict=True)]

    def answered(start: int) -> list[Row]:
        """The rows of the output for a window of rows."""
        given, own = {}, {}
        for number, row in enumerate(needed.select(range(start, min(start + WINDOW_ROWS, total))), start):
            try:
                given[number] = [(words_of if of_words else text_of)(row, name) for name in texts]
            except ValueError as error:
                reject(number, str(error))
            own[number] = {name: value_of(row, name) for name in kept}
            own[number] |= {name: as_text(own[number][name]) for name in kept if schema.field(name).type == pa.string()}
        examples = encode(predictor, given, limit)
        report.cut += sum(example.length > limit for example in examples)
        good = []
        for example in examples:
            problem = predictor.problem(example.inputs["input_ids"])
            if problem is None:
                good.append(example)
            else:
                reject(example.number, problem)
        batches = by_length(good, settings.batch_size, settings.batch_tokens)
        answers = sorted(chain(*each_batch(model, batches, of_batch)))
        report.rows += len(answers)
        return [own[number] | answer for number, answer in answers]

    columns = [name if name in rows.column_names else name.partition(".")[0] for name in (*texts, *kept)]
    needed = rows.select_columns(list(dict.fromkeys(columns)))
    with tqdm(total=total, desc="predicting", unit=" rows", disable=not (progress and is_first())) as bar:
        windows = map(answered, range(0, total, WINDOW_ROWS))
        if is_first():
            write(windows, schema, output)
        else:
            # it answers its share, and the first process writes
            deque(windows, maxlen=0)
    return report


def check_output(output: Path, overwrite: bool) -> None:
    """Raise a ValueError unless predictions can be written to `output`."""
    if output.suffix.lower() not in FORMATS:
        raise ValueError(f"output is {str(output)!r}: its name should end in one of {', '.join(FORMATS)}")
    if output.is_dir():
        raise ValueError(f"output is {str(output)!r}, which is a folder: name a file")
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists: pass overwrite to replace it (--overwrite), or name another file")


def output_schema(rows: "Dataset", kept: Sequence[str], predictor: Predictor, place: str) -> pa.Schema:
    """The columns of the output. Raises a ValueError for a kept one that is not there, or two of one name."""
    from datasets import Features

    flat = rows.features.flatten()
    known = Features(flat | rows.features)
    for name in {*kept} - {*known}:
        require_columns({"keep_columns": name}, list(flat), place)
    own = [known.arrow_schema.field(name) for name in kept]
    # values of several types become JSON
    own = [field.with_type(pa.string()) if isinstance(field.type, pa.BaseExtensionType) else field for field in own]
    schema = pa.schema([*own, *predictor.types])
    twice = [name for name, number in Counter(schema.names).items() if number > 1]
    if twice:
        raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them")
    return schema


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
    first, kinds = next(iter(rows), {}), (str, list) if of_words else str
    found = tuple(name for name, value in first.items() if isinstance(value, kinds))
    if len(found) != fewest:
        raise ValueError(f"{place} has the columns {', '.join(columns)}: name {wanted}, with --text_column")
    return found


def write(windows: Iterable[list[Row]], schema: pa.Schema, output: Path) -> None:
    """Write rows as Parquet, CSV or JSON Lines, by the end of the file's name; in the latter, dates become text."""
    with whole_file(output) as path:
        if output.suffix.lower() == ".parquet":
            with pq.ParquetWriter(path, schema) as table:
                for rows in windows:
                    table.write_table(pa.Table.from_pylist(rows, schema))
            return
        with path.open("w", newline="", encoding="utf-8") as file:
            cells = csv.writer(file)
            if output.suffix.lower() == ".csv":
                cells.writerow(schema.names)
            for row in map(as_data, chain.from_iterable(windows)):
                if output.suffix.lower() == ".jsonl":
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                else:
                    cells.writerow(
                        [as_text(cell) if isinstance(cell, list | dict | bool) else cell for cell in row.values()]
                    )


def as_text(value: Any) -> str | None:
    """A text itself, and JSON of other values."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_data(row: Row) -> Row:
    """A row as JSON has it: dates and bytes as text, and None for numbers that are not finite."""

    def other(value: Any) -> str:
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)

    return json.loads(json.dumps(row, default=other), parse_constant=lambda name: None)
