"""Predictions for every row of a file, of any length, in its order.

Rows are read, encoded and written a window at a time; within it, batches hold texts of similar length.
"""

import difflib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tqdm.auto import tqdm

from ..benchmarks.files import parquet_length
from ..files import whole_file
from ..inference.modes import inference_mode
from ..inference.processes import dealt, is_first, of_all
from ..models.common.masked_lm import ForMaskedLM
from ..text_data.columns import WORD_NAMES, has_column, keys_beside, value_of
from ..text_data.examples import words_of
from ..text_data.rows import DELIMITERS, Rows
from .inference import to_device
from .model_facts import is_classifier, labels_tokens
from .prediction_files import WRITERS, column_of, common_type, json_text
from .predictors import ClassifierPredictor, Predictor, TextPredictor
from .text_batches import TextEncoder, padded_batches
from .token_predictors import MaskPredictor, TokenPredictor

# the most rows and characters that are sorted by length together, and written together
WINDOW_ROWS, WINDOW_CHARACTERS = 16_384, 1 << 24
# settings that not every model reads, and the models that do
WRITING, FILLING, CLASSIFYING = "models that write text", "masked language models", "classifiers"
READERS = {
    "max_new_tokens": WRITING,
    "source_prefix": WRITING,
    "top_k": FILLING,
    "all_probabilities": CLASSIFYING,
}


@dataclass(frozen=True)
class PredictionSettings:
    """What to predict, and how.

    Attributes:
        text_columns: one column, or two of a pair; none: `text` and `text_pair`, `text`, `source`, or the only one that
            holds text. Dots lead to a value within a column, as in `translation.de`.
        keep_columns: columns of the file that the output has, too, before its own.
        max_seq_length: tokens that are kept of a text; None: as many as the tokenizer's limit.
        batch_size, batch_tokens: the most rows, and the most tokens with padding, in a batch.
        options: of the model's forward pass: `max_depth`, `halting_threshold`, `exit_criterion`, `exit_threshold`.
        all_probabilities: a classifier's probabilities of all labels.
        max_new_tokens: of models that write text.
        source_prefix: text before every text, of models that write text.
        top_k: the likeliest tokens for each mask, of masked language models; None: 5.
        limit: the first rows of the file to predict; None: all.
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


class Predicted(NamedTuple):
    """Numbers of a finished run: `rows` written, `cut` texts and `skipped` rows.

    `max_seq_length` is the limit that texts were cut to.
    """

    rows: int
    cut: int
    skipped: int
    max_seq_length: int | None


def predict_file(
    model: Any,
    tokenizer: Any,
    rows: Rows,
    output: Path,
    settings: PredictionSettings | None = None,
    *,
    overwrite: bool = False,
    progress: bool = False,
) -> Predicted:
    """Write a table with a prediction for every row.

    The columns are those of `ClassifierPredictor`, `TextPredictor`, `TokenPredictor` or `MaskPredictor`, after the kept
    ones. The format is Parquet, CSV or JSON Lines, by the end of the output's name; in CSV lists are JSON.

    Args:
        model: a classifier of sequences or tokens, language model or encoder-decoder of this package.
        tokenizer: its tokenizer.
        rows: what to predict; broken rows, and those without text, are dealt with as its `on_error` says.
        output: the file to write, which appears when all of it is there.
        overwrite: replace `output`.
        progress: show a progress bar on stderr.

    Raises:
        ValueError: a setting does not fit the file or the model, a row is broken, or `output` is there.
    """
    settings, output = settings or PredictionSettings(), Path(output)
    check_output(output, rows.path, overwrite)
    texts = text_columns(rows, settings.text_columns, model)
    for name in settings.keep_columns:
        check_column("keep_columns", name, rows)
    of_words = isinstance(value_of(next(iter(rows), {}), texts[0]), list)
    predictor = predictor_of(model, tokenizer, settings, of_words)
    names = [*settings.keep_columns, *predictor.names]
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them in the file")
    encoder = TextEncoder(tokenizer, settings.max_seq_length, predictor.offsets)
    kinds, prefix = kept_types(rows, settings.keep_columns, settings.limit), settings.source_prefix or ""
    counts: Counter[str] = Counter()

    def tables() -> Iterator[pa.Table]:
        """The output's rows, a window at a time."""
        for window in windows(rows, settings, texts, predictor.of_words):
            sides = [[row[place] for _, row, _ in window] for place in range(len(texts))]
            columns = [
                [prefix + (text if isinstance(text, str) else " ".join(text)) for text in column] for column in sides
            ]
            encoded = encoder(*columns)
            batches = padded_batches(
                encoded, settings.batch_size, settings.batch_tokens, tokenizer.pad_token_id or 0, predictor.pads_left
            )
            found = answered(predictor, batches, len(window), bar.update)
            found |= {"given": sides[0], "encoded": encoded}
            problems = dict.fromkeys(np.flatnonzero(encoded.lengths == 0).tolist(), "its text has no token")
            problems = predictor.problems(encoded) | problems
            for place in sorted(problems):
                rows.reject(window[place][0], problems[place])
            kept = [column_of([row[place] for *_, row in window], kind) for place, kind in enumerate(kinds)]
            table = pa.table([*kept, *predictor.columns(found)], names=names)
            table = table.filter(pa.array([place not in problems for place in range(len(window))], pa.bool_()))
            counts.update(rows=len(table), cut=encoded.cut)
            yield table

    with inference_mode(model), row_bar(rows, settings.limit, progress) as bar:
        if is_first():
            with whole_file(output) as partial:
                WRITERS[output.suffix.lower()](partial, tables())
        else:
            # it answers its share, and the first process writes
            deque(tables(), maxlen=0)
    return Predicted(counts["rows"], counts["cut"], len(rows.skipped), encoder.max_seq_length)


def check_output(output: Path, source: Path, overwrite: bool) -> None:
    """Raise a ValueError unless predictions for the rows of the file `source` can be written to `output`."""
    if output.exists() and source.samefile(output):
        raise ValueError(f"output is {str(output)!r}, the file with the rows: name another one")
    if output.suffix.lower() not in WRITERS:
        raise ValueError(f"output is {str(output)!r}: its name should end in one of {', '.join(WRITERS)}")
    if output.is_dir():
        raise ValueError(f"output is {str(output)!r}, which is a folder: name a file")
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists: pass overwrite to replace it (--overwrite), or name another file")


def answered(
    predictor: Predictor,
    batches: Iterable[tuple[np.ndarray, dict[str, torch.Tensor]]],
    number: int,
    update: Callable[[int], Any],
) -> dict[str, Any]:
    """The answers to N texts, of which each of several processes gives its share.

    Args:
        number: N.
        update: called with numbers of texts, once they are answered.
    """
    found, places = predictor.start(number), []
    for rows, inputs in dealt(batches):
        predictor.answer(rows, to_device(inputs, predictor.model), found)
        places.extend(rows)
        update(len(rows))
    others = of_all((places, {name: values[places] for name, values in found.items()}))
    for rows, values in others:
        for name, answers in values.items():
            found[name][rows] = answers
    update(sum(len(rows) for rows, _ in others) - len(places))
    return found


def predictor_of(model: Any, tokenizer: Any, settings: PredictionSettings, of_words: bool) -> Predictor:
    """The way in which a model answers.

    Args:
        of_words: whether texts are lists of words.

    Raises:
        ValueError: a setting is not for such a model, or it has no head.
    """
    if model.base_model is model:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
    group, kind = WRITING, "a model that writes text"
    if is_classifier(model) or labels_tokens(model):
        group, kind = CLASSIFYING, "a classifier"
    elif isinstance(model, ForMaskedLM):
        group, kind = FILLING, "a masked language model"
    for name, readers in READERS.items():
        value = getattr(settings, name)
        if readers != group and value != getattr(PredictionSettings, name):
            raise ValueError(f"{name} is {value!r}, but it is for {readers}, and this is {kind}: leave it out")
    options = settings.options
    if labels_tokens(model):
        return TokenPredictor(model, options, settings.all_probabilities, of_words)
    if group == CLASSIFYING:
        return ClassifierPredictor(model, options, settings.all_probabilities)
    if group == FILLING:
        return MaskPredictor(model, tokenizer, options, settings.top_k)
    return TextPredictor(model, tokenizer, options, settings.max_new_tokens)


def text_columns(rows: Rows, chosen: Sequence[str], model: Any) -> list[str]:
    """The columns with texts or lists of words: those chosen, or by usual names of such data, or the only one.

    Raises:
        ValueError: a column is not there, there are too many, or it is not clear which one is meant.
    """
    pairs, most = model.config.capabilities.siamese, 2 if is_classifier(model) else 1
    wanted = "two columns, for the model reads pairs" if pairs else "one column" + (", or two of a pair" * (most - 1))
    for name in chosen:
        check_column("text_column", name, rows)
    if chosen and not 1 + pairs <= len(chosen) <= most:
        raise ValueError(f"text_column is {', '.join(chosen)}: name {wanted}")
    usual = [("text", "text_pair"), ("text",), ("source",)]
    usual = [*((name,) for name in WORD_NAMES if labels_tokens(model)), *usual]
    usual = [names for names in usual if 1 + pairs <= len(names) <= most]
    for names in [tuple(chosen), *usual]:
        if names and all(has_column(rows.columns, name) for name in names):
            return list(names)
    first = next(iter(rows), {})
    kinds = (str, list) if labels_tokens(model) else str
    found = [name for name in rows.columns if isinstance(first.get(name, ""), kinds)]
    if len(found) != 1 + pairs:
        raise ValueError(f"{rows.path} has the columns {', '.join(rows.columns)}: name {wanted}, with --text-column")
    return found


def check_column(argument: str, name: str, rows: Rows) -> None:
    """Raise a ValueError for a column that a file does not have."""
    # cells of a table in text hold no values of their own
    nested = rows.file_format not in DELIMITERS and has_column(rows.columns, name)
    if name not in rows.columns and not nested:
        near = difflib.get_close_matches(name, rows.columns, n=3, cutoff=0.6)
        raise ValueError(
            f"{argument} is {name!r}: name a column of {rows.path}, which has {', '.join(rows.columns)}"
            + (f"; did you mean {' or '.join(near)}?" if near else "")
        )


def windows(
    rows: Rows, settings: PredictionSettings, texts: Sequence[str], of_words: bool
) -> Iterator[list[tuple[int, list, list]]]:
    """Rows of a file together, as many as fit a window: numbers, texts and kept values; the last may be empty.

    Args:
        texts: columns with texts, or if `of_words` with lists of words.
    """
    kept = settings.keep_columns
    window, characters = [], 0
    for number, row in islice(rows.numbered(outer_columns([*texts, *kept], rows)), settings.limit):
        problem = next(filter(None, (text_problem(row, name, of_words) for name in texts)), None)
        if problem is not None:
            rows.reject(number, problem)
            continue
        values, further = ([value_of(row, name) for name in names] for names in (texts, kept))
        window.append((number, values, further))
        characters += sum(len(part) for text in values for part in text)
        if len(window) == WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    yield window


def text_problem(row: Mapping[str, Any], name: str, of_words: bool) -> str | None:
    """Why the value of a column is no text, or no list of words; None if it is."""
    value = value_of(row, name)
    if of_words:
        try:
            words_of(row, name)
        except ValueError as error:
            return str(error)
    elif not isinstance(value, str):
        return f"{name} is {json_text(value)[:40]}, which is no text{keys_beside(row, name)}"
    elif not value.strip():
        return f"{name} is empty"
    return None


def outer_columns(names: Sequence[str], rows: Rows) -> list[str]:
    """The columns that values lie in: a name with dots is that of a value within one."""
    return list(dict.fromkeys(name if name in rows.columns else name.partition(".")[0] for name in names))


def kept_types(rows: Rows, names: Sequence[str], limit: int | None) -> list[pa.DataType]:
    """Types of columns: those of a Parquet file, text, or of JSON what all values of the first `limit` rows fit."""
    if rows.file_format not in ("json", "jsonl", "parquet"):
        return [pa.string() for _ in names]
    schema = pq.read_schema(rows.path) if rows.file_format == "parquet" else pa.schema([])
    kinds = {name: {schema.field(name).type} if name in schema.names else set() for name in names}
    # nothing says of which type values of JSON, or within a column, are
    unknown = [name for name in names if not kinds[name]]
    values = islice(rows.numbered(outer_columns(unknown, rows)), limit) if unknown else iter(())
    while chunk := list(islice(values, WINDOW_ROWS)):
        for name in unknown:
            kinds[name].add(column_of([value_of(row, name) for _, row in chunk], None).type)
    return [common_type(kinds[name]) for name in names]


def row_bar(rows: Rows, limit: int | None, progress: bool) -> Any:
    """A progress bar of rows on stderr; how many a file has, without a limit, is known of Parquet."""
    known = [limit, parquet_length(str(rows.path)) if rows.file_format == "parquet" else None]
    total = min((number for number in known if number is not None), default=None)
    return tqdm(total=total, desc="predicting", unit=" rows", disable=not (progress and is_first()))
