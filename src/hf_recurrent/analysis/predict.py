"""Predictions for every row of a table, of any length, in its order.

Rows are encoded and written a window at a time; within it, batches hold texts of similar length.
"""

import csv
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tqdm.auto import tqdm

from ..data.batches import NO_LIMIT, filled, padded, within
from ..data.columns import has_column, require_columns, text_of, value_of
from ..data.words import words_of
from ..files import whole_file
from ..inference.processes import is_first
from .evaluate import each_batch
from .inference import to_device
from .model_facts import is_classifier, labels_tokens
from .predictors import Predictor, Row, predictor_of

if TYPE_CHECKING:
    from datasets import Dataset

# the most rows and characters that are sorted by length together, and written together
WINDOW_ROWS, WINDOW_CHARACTERS = 16_384, 1 << 24
# rows that are read at a time
PIECE = 1000
# usual names of columns of lists of words
WORD_NAMES = ("tokens", "words")
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


class Predicted(NamedTuple):
    """What a finished run wrote: the number of `rows`, of which so many texts were `cut` to `max_seq_length` tokens.

    `skipped` are the numbers of the rows that were left out, each with the reason.
    """

    rows: int
    cut: int
    skipped: list[tuple[int, str]]
    max_seq_length: int | None


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
    texts = text_columns(rows, settings.text_columns, model, place)
    for name in settings.keep_columns:
        require_columns({"keep_columns": name}, rows.column_names, place)
    of_words = isinstance(value_of(next(iter(rows), {}), texts[0]), list)
    predictor = predictor_of(model, tokenizer, settings, of_words)
    kinds = {name: type_of(rows, name) for name in settings.keep_columns}
    mixed = {name for name, kind in kinds.items() if isinstance(kind, pa.BaseExtensionType)}
    kept = [(name, pa.string() if name in mixed else kinds[name]) for name in settings.keep_columns]
    schema = pa.schema([*kept, *predictor.columns.items()])
    twice = [name for name, number in Counter(schema.names).items() if number > 1]
    if twice:
        raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them")
    skipped: list[tuple[int, str]] = []

    def reject(number: int, problem: str) -> None:
        if not settings.skips_rows:
            raise ValueError(f"{place}, row {number}: {problem}; correct it, or pass --on_error skip")
        skipped.append((number, problem))

    limit = settings.max_seq_length
    if limit is None and tokenizer.model_max_length < NO_LIMIT:
        limit = tokenizer.model_max_length
    counts: Counter[str] = Counter()

    def answered(window: Sequence[tuple[int, list, list]]) -> list[Row]:
        """The rows of the output for a window of the input."""
        encoded = encode(tokenizer, [row for _, row, _ in window], settings, limit, predictor)
        problems = {place: predictor.problem(ids) for place, ids in enumerate(encoded.columns["input_ids"])}
        for place, problem in problems.items():
            if problem is not None:
                reject(window[place][0], problem)
        good = np.array([place for place, problem in problems.items() if problem is None], int)

        def of_batch(places: np.ndarray) -> list[tuple[int, Row]]:
            given = [window[place][1][0] for place in places]
            spans = [encoded.offsets[place] for place in places] if predictor.offsets else []
            inputs = encoded.batch(places, tokenizer.pad_token_id or 0, predictor.pads_left)
            found = predictor.rows(to_device(inputs, model), given, spans)
            bar.update(len(places))
            return list(zip(places.tolist(), found, strict=True))

        batches = by_length(encoded.lengths, good, settings.batch_size, settings.batch_tokens)
        answers = dict(chain(*each_batch(model, batches, of_batch)))
        counts.update(rows=len(answers), cut=encoded.cut)
        found = []
        for place in good:
            row = dict(zip(settings.keep_columns, window[place][2], strict=True))
            found.append({**row, **{name: json_text(row[name]) for name in mixed}, **answers[place]})
        return found

    read = windows(rows, settings, texts, predictor.of_words, reject)
    total, hidden = min(settings.limit or len(rows), len(rows)), not (progress and is_first())
    with tqdm(total=total, desc="predicting", unit=" rows", disable=hidden) as bar:
        if is_first():
            with whole_file(output) as partial:
                write(partial, output.suffix.lower(), schema, map(answered, read))
        else:
            # it answers its share, and the first process writes
            deque(map(answered, read), maxlen=0)
    return Predicted(counts["rows"], counts["cut"], skipped, limit)


def check_output(output: Path, overwrite: bool) -> None:
    """Raise a ValueError unless predictions can be written to `output`."""
    if output.suffix.lower() not in FORMATS:
        raise ValueError(f"output is {str(output)!r}: its name should end in one of {', '.join(FORMATS)}")
    if output.is_dir():
        raise ValueError(f"output is {str(output)!r}, which is a folder: name a file")
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists: pass overwrite to replace it (--overwrite), or name another file")


def text_columns(rows: "Dataset", chosen: Sequence[str], model: Any, place: str = "the table") -> list[str]:
    """The columns with texts or lists of words: those chosen, or by usual names of such data, or the only one.

    Raises:
        ValueError: a column is not there, there are too many, or it is not clear which one is meant.
    """
    columns = rows.column_names
    pairs, most = model.config.capabilities.siamese, 2 if is_classifier(model) else 1
    wanted = "two columns, for the model reads pairs" if pairs else "one column" + (", or two of a pair" * (most - 1))
    for name in chosen:
        require_columns({"text_column": name}, columns, place)
    if chosen and not 1 + pairs <= len(chosen) <= most:
        raise ValueError(f"text_column is {', '.join(chosen)}: name {wanted}")
    usual = [("text", "text_pair"), ("text",), ("source",)]
    usual = [*((name,) for name in WORD_NAMES if labels_tokens(model)), *usual]
    usual = [names for names in usual if 1 + pairs <= len(names) <= most]
    for names in [tuple(chosen), *usual]:
        if names and all(has_column(columns, name) for name in names):
            return list(names)
    first = next(iter(rows), {})
    kinds = (str, list) if labels_tokens(model) else str
    found = [name for name in columns if isinstance(first.get(name, ""), kinds)]
    if len(found) != 1 + pairs:
        raise ValueError(f"{place} has the columns {', '.join(columns)}: name {wanted}, with --text_column")
    return found


class Encoded(NamedTuple):
    """Token ids of N texts, and their types if they are pairs; `lengths` (N,), the number of those that were `cut`, and
    the characters of the tokens of each, if they are needed.
    """

    columns: dict[str, list[list[int]]]
    lengths: np.ndarray
    cut: int
    offsets: list[list[tuple[int, int]]]

    def batch(self, places: np.ndarray, pad_token_id: int, left: bool) -> dict[str, torch.Tensor]:
        """Inputs of a model for some of the texts (B,)."""
        found = {
            name: padded([values[place] for place in places], pad_token_id if name == "input_ids" else 0, left)
            for name, values in self.columns.items()
        }
        mask = torch.from_numpy(filled(self.lengths[places], left)).long()
        return {**found, "attention_mask": mask}


def encode(
    tokenizer: Any, rows: Sequence[Sequence], settings: PredictionSettings, limit: int | None, predictor: Predictor
) -> Encoded:
    """Texts or pairs of them as token ids, cut to a limit. Raises a ValueError for a limit without room for a text."""
    if predictor.offsets and not tokenizer.is_fast:
        raise ValueError(
            f"the tokenizer, a {type(tokenizer).__name__}, does not tell which characters a token is of: save the "
            "checkpoint with a fast one"
        )
    prefix, pairs = settings.source_prefix or "", len(rows[0]) > 1
    sides = [
        [prefix + (text if isinstance(text, str) else " ".join(text)) for text in side]
        for side in zip(*rows, strict=True)
    ]
    more = {"return_token_type_ids": pairs, "return_attention_mask": False, "return_offsets_mapping": predictor.offsets}
    try:
        columns, whole = within(tokenizer, limit, *sides, **more)
    # the tokenizers library raises an exception of no class
    except Exception as error:
        raise ValueError(f"max_seq_length is {limit}: no text can be cut to so few tokens ({error})") from error
    lengths = np.array([len(ids) for ids in columns["input_ids"]], int)
    if limit is not None and lengths.max() > limit:
        added = f"the tokenizer adds {lengths.max()} tokens of its own"
        raise ValueError(f"max_seq_length is {limit}: no text can be cut to so few tokens ({added})")
    offsets = columns.pop("offset_mapping", [])
    return Encoded(columns, lengths, int((np.array(whole) > (limit or math.inf)).sum()), offsets)


def by_length(
    lengths: np.ndarray, places: np.ndarray, batch_size: int, batch_tokens: int | None
) -> Iterator[np.ndarray]:
    """The places (B,) of the texts of each batch, the longest first.

    Args:
        lengths: tokens of each text (N,).
        batch_tokens: the most tokens in a batch, padding included; a text that is longer is alone. None: any number.
    """
    order, start = places[np.argsort(-lengths[places], kind="stable")], 0
    while start < len(order):
        size = batch_size
        if batch_tokens is not None:
            size = min(size, max(1, batch_tokens // int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def windows(
    rows: "Dataset",
    settings: PredictionSettings,
    texts: Sequence[str],
    of_words: bool,
    reject: Callable[[int, str], None],
) -> Iterator[list[tuple[int, list, list]]]:
    """Rows together, as many as fit a window: numbers, texts and kept values.

    Args:
        texts: columns with texts, or if `of_words` with lists of words.
        reject: called with the number of a row that has no texts, and the reason.
    """
    kept = settings.keep_columns
    # a name with dots is that of a value within a column
    columns = [name if name in rows.column_names else name.partition(".")[0] for name in (*texts, *kept)]
    pieces = rows.select_columns(list(dict.fromkeys(columns))).iter(PIECE)
    each = (dict(zip(piece, values, strict=True)) for piece in pieces for values in zip(*piece.values(), strict=True))
    window, characters = [], 0
    for number, row in enumerate(islice(each, settings.limit), 1):
        try:
            found = [(words_of if of_words else text_of)(row, name) for name in texts]
        except ValueError as error:
            reject(number, str(error))
            continue
        window.append((number, found, [value_of(row, name) for name in kept]))
        characters += sum(len(part) for text in found for part in text)
        if len(window) == WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def type_of(rows: "Dataset", name: str) -> pa.DataType:
    """The type of a column, or of a value within it."""
    schema = rows.features.arrow_schema
    if name in schema.names:
        return schema.field(name).type
    first, *others = name.split(".")
    found = schema.field(first).type
    for part in others:
        found = found.field(part).type if pa.types.is_struct(found) and found.get_field_index(part) >= 0 else pa.null()
    return found


def write(path: Path, suffix: str, schema: pa.Schema, windows: Iterable[list[Row]]) -> None:
    """Write rows as Parquet, CSV or JSON Lines."""
    if suffix == ".parquet":
        with pq.ParquetWriter(path, schema) as table:
            for rows in windows:
                table.write_table(pa.Table.from_pylist(rows, schema))
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        if suffix == ".csv":
            table = csv.writer(file)
            table.writerow(schema.names)
            for rows in windows:
                table.writerows([[cell(row[name]) for name in schema.names] for row in rows])
        else:
            for rows in windows:
                file.writelines(json.dumps(as_data(row), ensure_ascii=False) + "\n" for row in rows)


def cell(value: Any) -> Any:
    """A value of a CSV file: lists, and what is true or false, as JSON."""
    value = as_data(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def json_text(value: Any) -> str | None:
    """A value of a column of several types as text: a text itself, and JSON of others."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_data(value: Any) -> Any:
    """A value as JSON has it; dates and bytes as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
