"""Predictions for every row of a table, of any length, in its order.

Rows are encoded and written a window at a time; within it, batches hold texts of similar length.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from tqdm.auto import tqdm

from ..data.columns import has_column, require_columns, text_of, value_of
from ..data.words import words_of
from ..files import whole_file
from ..inference.modes import inference_mode
from ..inference.processes import dealt, is_first, of_all
from ..models.common.masked_lm import ForMaskedLM
from .inference import to_device
from .model_facts import is_classifier, labels_tokens
from .prediction_files import WRITERS, column_of
from .predictors import ClassifierPredictor, Predictor, TextPredictor
from .text_batches import TextEncoder, padded_batches
from .token_predictors import MaskPredictor, TokenPredictor

if TYPE_CHECKING:
    from datasets import Dataset

# the most rows and characters that are sorted by length together, and written together
WINDOW_ROWS, WINDOW_CHARACTERS = 16_384, 1 << 24
# rows that are read at a time
PIECE = 1000
# usual names of columns of lists of words
WORD_NAMES = ("tokens", "words")
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

    The columns are those of `ClassifierPredictor`, `TextPredictor`, `TokenPredictor` or `MaskPredictor`, after the kept
    ones. The format is Parquet, CSV or JSON Lines, by the end of the output's name; in CSV lists are JSON.

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
    names = [*settings.keep_columns, *predictor.names]
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them")
    skipped: list[tuple[int, str]] = []

    def reject(number: int, problem: str) -> None:
        if not settings.skips_rows:
            raise ValueError(f"{place}, row {number}: {problem}; correct it, or pass --on_error skip")
        skipped.append((number, problem))

    encoder = TextEncoder(tokenizer, settings.max_seq_length, predictor.offsets)
    kinds = [type_of(rows, name) for name in settings.keep_columns]
    prefix, total = settings.source_prefix or "", min(settings.limit or len(rows), len(rows))
    counts: Counter[str] = Counter()

    def tables() -> Iterator[pa.Table]:
        """The output's rows, a window at a time."""
        for window in windows(rows, settings, texts, predictor.of_words, reject):
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
                reject(window[place][0], problems[place])
            kept = [column_of([row[place] for *_, row in window], kind) for place, kind in enumerate(kinds)]
            table = pa.table([*kept, *predictor.columns(found)], names=names)
            table = table.filter(pa.array([place not in problems for place in range(len(window))], pa.bool_()))
            counts.update(rows=len(table), cut=encoded.cut)
            yield table

    hidden = not (progress and is_first())
    with inference_mode(model), tqdm(total=total, desc="predicting", unit=" rows", disable=hidden) as bar:
        if is_first():
            with whole_file(output) as partial:
                WRITERS[output.suffix.lower()](partial, tables())
        else:
            # it answers its share, and the first process writes
            deque(tables(), maxlen=0)
    return Predicted(counts["rows"], counts["cut"], skipped, encoder.max_seq_length)


def check_output(output: Path, overwrite: bool) -> None:
    """Raise a ValueError unless predictions can be written to `output`."""
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


def windows(
    rows: "Dataset",
    settings: PredictionSettings,
    texts: Sequence[str],
    of_words: bool,
    reject: Callable[[int, str], None],
) -> Iterator[list[tuple[int, list, list]]]:
    """Rows together, as many as fit a window: numbers, texts and kept values; the last may be empty.

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
