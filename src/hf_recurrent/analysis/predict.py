"""Predictions for every row of a file, of any length, in its order.

Rows are read and encoded a window at a time; within it, batches hold texts of similar length.
"""

import difflib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..benchmarks.files import parquet_length
from ..inference.modes import inference_mode
from ..inference.processes import dealt, from_first, is_first, of_all
from ..models.common.exit_calibration import weights_digest
from ..text_data.columns import WORD_NAMES, has_column, keys_beside, value_of
from ..text_data.examples import words_of
from ..text_data.rows import DELIMITERS, Rows
from .model_facts import fills_masks, is_classifier, labels_tokens
from .prediction_parts import CountedParts, Parts, column_of, json_text, open_parts
from .predictors import ClassifierPredictor, Predictor, TextBatch, TextPredictor
from .text_batches import TextEncoder, padded_batches
from .token_predictors import MaskPredictor, TokenPredictor

# the most rows and characters that are sorted by length together, and written together
WINDOW_ROWS, WINDOW_CHARACTERS = 16_384, 1 << 24
# what a file's own bytes are known by, besides their number: those at both ends
SAMPLE = 1 << 20


@dataclass(frozen=True)
class PredictionSettings:
    """What to predict, and how.

    Attributes:
        text_columns: one column, or two of a pair; none: `text` and `text_pair`, `text`, `source`, or the only one that
            holds text. Dots lead to a value within a column, as in `translation.de`.
        keep_columns: columns of the file that the output has, too, before its own.
        max_seq_length: tokens that are kept of a text; None: as many as the tokenizer's limit.
        batch_size, batch_tokens: the most rows, and the most tokens with padding, in a batch. Batches of models whose
            examples leave early are refilled: of these `batch_tokens` is as of `DepthBatcher`, for any number of rows.
        options: of the model's forward pass: `max_steps`, `halting_threshold`, `exit_criterion`, `exit_threshold`.
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
    """Numbers of a finished run: `rows` written, of which `resumed` were there before; `cut` texts, `skipped` rows.

    `max_seq_length` is the limit that texts were cut to.
    """

    rows: int
    resumed: int
    cut: int
    skipped: int
    max_seq_length: int | None


class Window(NamedTuple):
    """Some rows: `read` in the file, and of those that are whole their numbers, texts by column and kept values.

    A text may be a list of words.
    """

    read: int
    numbers: list[int]
    texts: list[list[Any]]
    kept: list[list[Any]]


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
    """Write a table with a prediction for every row; a run that was stopped goes on where it was.

    The columns are those of `ClassifierPredictor`, `TextPredictor`, `TokenPredictor` or `MaskPredictor`, after the kept
    ones. The format is Parquet, CSV or JSON Lines, by the end of the output's name; in CSV lists are JSON.

    Args:
        model: a classifier of sequences or tokens, language model or encoder-decoder of this package.
        tokenizer: its tokenizer.
        rows: what to predict; broken rows, and those without text, are dealt with as its `on_error` says.
        output: the file to write, which appears when all of it is there.
        overwrite: replace `output`, and parts that a different run has left.
        progress: show a progress bar on stderr.

    Raises:
        ValueError: a setting does not fit the file or the model, a row is broken, `output` is there, or parts of a
            different run.
    """
    settings = settings or PredictionSettings()
    if Path(output).exists() and rows.path.samefile(output):
        raise ValueError(f"output is {str(output)!r}, the file with the rows: name another one")
    if settings.limit is not None and settings.limit < 1:
        raise ValueError(f"limit is {settings.limit!r}: expected the number of rows to predict, or None for all")
    texts = text_columns(rows, settings.text_columns, model)
    for name in settings.keep_columns:
        check_column("keep_columns", name, rows)
    predictor = predictor_of(model, tokenizer, settings, holds_words(rows, texts[0]))
    predictor.batch_tokens = settings.batch_tokens
    check_output_names([*settings.keep_columns, *predictor.names])
    encoder = TextEncoder(tokenizer, settings.max_seq_length, predictor.offsets)
    kept, prefix = kept_types(rows, settings.keep_columns), settings.source_prefix or ""
    identity = identity_of(model, tokenizer, rows, settings, texts)
    with shared_parts(Path(output), identity, overwrite) as parts, inference_mode(model):
        resumed, rejected = parts.counts["rows"], parts.counts["rejected"]
        # with the same list of what was skipped
        rows = copy(rows)
        rows.start += parts.counts["read"]
        pad, sizes = tokenizer.pad_token_id or 0, (settings.batch_size, settings.batch_tokens)
        most = None if settings.limit is None else settings.limit - parts.counts["read"]
        with row_bar(rows, settings.limit, parts.counts["read"], progress) as bar:
            for window in windows(rows, most, texts, settings.keep_columns, predictor.of_words):
                if not window.read and parts.paths:
                    continue
                encoded = encoder(*([prefix + as_text(text) for text in column] for column in window.texts))
                batches = padded_batches(encoded, *sizes, pad, predictor.pads_left)
                found = answered(predictor, batches, len(window.numbers), bar.update)
                found |= {"given": window.texts[0], "encoded": encoded}
                empty = dict.fromkeys(np.flatnonzero(encoded.lengths == 0).tolist(), "its text has no token")
                problems = predictor.problems(encoded) | empty
                for place in sorted(problems):
                    rows.reject(window.numbers[place], problems[place])
                table = window_table(window, predictor, found, kept, problems)
                counts = {"read": window.read, "rows": table.num_rows, "cut": encoded.cut}
                parts.add(table, {**counts, "rejected": window.read - table.num_rows})
        parts.join(Path(output))
        return Predicted(
            rows=parts.counts["rows"],
            resumed=resumed,
            cut=parts.counts["cut"],
            skipped=rejected + len(rows.skipped),
            max_seq_length=encoder.max_seq_length,
        )


@contextmanager
def shared_parts(output: Path, identity: Mapping[str, str], overwrite: bool) -> Iterator[Parts]:
    """`open_parts`; of several processes the first one writes them, and the others count."""
    with open_parts(output, identity, overwrite) if is_first() else nullcontext() as parts:
        counts, paths = from_first(lambda: (parts.counts, parts.paths))
        yield parts or CountedParts(counts, paths)


def answered(
    predictor: Predictor, batches: Iterable[TextBatch], number: int, update: Callable[[int], Any]
) -> dict[str, Any]:
    """The answers to N texts, of which each of several processes gives its share.

    Args:
        number: N.
        update: called with numbers of texts, once they are answered.
    """
    own = list(dealt(batches))
    found = predictor.start(number)
    for size in predictor.answer(own, found):
        update(size)
    places = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in own)])
    shares = of_all((places, {name: values[places] for name, values in found.items()}))
    for rows, values in shares:
        for name, answers in values.items():
            found[name][rows] = answers
    update(sum(len(rows) for rows, _ in shares) - len(places))
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
    if is_classifier(model) or labels_tokens(model):
        refuse_settings(settings, "a classifier", max_new_tokens=WRITING, source_prefix=WRITING, top_k=FILLING)
        if labels_tokens(model):
            return TokenPredictor(model, settings.options, settings.all_probabilities, of_words)
        return ClassifierPredictor(model, settings.options, settings.all_probabilities)
    if fills_masks(model):
        unused = {"max_new_tokens": WRITING, "source_prefix": WRITING, "all_probabilities": CLASSIFYING}
        refuse_settings(settings, "a masked language model", **unused)
        return MaskPredictor(model, tokenizer, settings.options, settings.top_k)
    refuse_settings(settings, "a model that writes text", all_probabilities=CLASSIFYING, top_k=FILLING)
    return TextPredictor(model, tokenizer, settings.options, settings.max_new_tokens)


WRITING, FILLING, CLASSIFYING = "models that write text", "masked language models", "classifiers"


def refuse_settings(settings: PredictionSettings, kind: str, **unused: str) -> None:
    """Raise a ValueError for a setting that is for another kind of model.

    Args:
        unused: names of settings, and what they are for.
    """
    for name, meant in unused.items():
        value = getattr(settings, name)
        if value != getattr(PredictionSettings, name):
            raise ValueError(f"{name} is {value!r}, but it is for {meant}, and this is {kind}: leave it out")


def holds_words(rows: Rows, name: str) -> bool:
    """Whether the first row has a list of words, rather than a text, in a column."""
    return isinstance(value_of(next(iter(rows), {}), name), list)


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


def check_output_names(names: Sequence[str]) -> None:
    """Raise a ValueError for a column that the output would have twice."""
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise ValueError(f"the output would have the columns {', '.join(twice)} twice: rename them in the file")


def windows(
    rows: Rows, limit: int | None, texts: Sequence[str], kept: Sequence[str], of_words: bool
) -> Iterator[Window]:
    """Rows of a file together, as many as fit a window; the last window may be empty.

    Args:
        limit: the most rows to read; None: all.
        of_words: whether texts are lists of words.
    """
    window, read, characters = new_window(texts, kept), 0, 0
    for number, row in islice(rows.numbered(outer_columns([*texts, *kept], rows)), limit):
        read += 1
        values = {name: value_of(row, name) for name in (*texts, *kept)}
        problem = next(filter(None, (text_problem(row, name, of_words) for name in texts)), None)
        if problem is not None:
            rows.reject(number, problem)
        else:
            window.numbers.append(number)
            for name, column in zip(texts, window.texts, strict=True):
                column.append(values[name])
                characters += sum(map(len, values[name]))
            for name, column in zip(kept, window.kept, strict=True):
                column.append(values[name])
        if read == WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            yield window._replace(read=read)
            window, read, characters = new_window(texts, kept), 0, 0
    yield window._replace(read=read)


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


def as_text(value: str | list[str]) -> str:
    """A text, or words as a tokenizer reads them."""
    return value if isinstance(value, str) else " ".join(value)


def outer_columns(names: Sequence[str], rows: Rows) -> list[str]:
    """The columns that values lie in: a name with dots is that of a value within one."""
    return list(dict.fromkeys(name if name in rows.columns else name.partition(".")[0] for name in names))


def new_window(texts: Sequence[str], kept: Sequence[str]) -> Window:
    return Window(0, [], [[] for _ in texts], [[] for _ in kept])


def kept_types(rows: Rows, names: Sequence[str]) -> dict[str, pa.DataType | None]:
    """Types of columns: those of a Parquet file, text, or None for JSON, whose values tell."""
    if rows.file_format == "parquet":
        schema = pq.read_schema(rows.path)
        # the values of a field within a column tell
        return {name: schema.field(name).type if name in rows.columns else None for name in names}
    return dict.fromkeys(names, None if rows.file_format.startswith("json") else pa.string())


def window_table(
    window: Window,
    predictor: Predictor,
    found: Mapping[str, Any],
    kept: Mapping[str, pa.DataType | None],
    problems: Collection[int],
) -> pa.Table:
    """The output's rows for a window, but for the texts at places with `problems`."""
    columns = [column_of(values, kind) for values, kind in zip(window.kept, kept.values(), strict=True)]
    table = pa.table([*columns, *predictor.columns(found)], names=[*kept, *predictor.names])
    return table.take([place for place in range(len(table)) if place not in problems]) if problems else table


def identity_of(
    model: Any, tokenizer: Any, rows: Rows, settings: PredictionSettings, texts: Sequence[str]
) -> dict[str, str]:
    """What predictions follow from, by names for a message; sizes of batches only where chunks depend on them."""
    config = {name: value for name, value in model.config.to_dict().items() if name not in UNUSED_FIELDS}
    chosen = asdict(settings) | {"text_columns": list(texts)}
    reading = {name: getattr(rows, name) for name in ("file_format", "encoding", "on_error", "start")}
    chosen |= reading
    for name in ("source_prefix", "limit"):
        # parts of earlier versions are gone on with
        if chosen[name] is None:
            chosen.pop(name)
    if model.config.capabilities.division in (None, "fixed"):
        for name in ("batch_size", "batch_tokens"):
            chosen.pop(name)
    return {
        "input file": file_identity(rows.path),
        "weights of the checkpoint": weights_digest(model),
        "config of the checkpoint": digest(json_text(config)),
        "tokenizer": digest(tokenizer_text(tokenizer)),
        **generation_fields(model),
        **{name: json_text(value) for name, value in chosen.items()},
    }


# of a config: it is not what they say that predictions follow from
UNUSED_FIELDS = ("_name_or_path", "transformers_version")


def generation_fields(model: Any) -> dict[str, str]:
    """A model's settings of generation as JSON, by their name in messages; empty where it writes no text."""
    if getattr(model, "generation_config", None) is None:
        return {}
    said = model.generation_config.to_diff_dict()
    kept = {name: value for name, value in sorted(said.items()) if name not in (*UNUSED_FIELDS, "_from_model_config")}
    return {"generation_config of the checkpoint": json_text(kept)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def tokenizer_text(tokenizer: Any) -> str:
    """All that a tokenizer is made of, or of one that is written in Python its vocabulary."""
    if not tokenizer.is_fast:
        return json_text(sorted(tokenizer.get_vocab().items()))
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer.backend_tokenizer.to_str()


def file_identity(path: Path) -> str:
    """Size and time of a file, and a digest of both its ends: all of it would take as long as to read it."""
    state = path.stat()
    with path.open("rb") as file:
        ends = hashlib.sha256(file.read(SAMPLE))
        file.seek(max(0, state.st_size - SAMPLE))
        ends.update(file.read(SAMPLE))
    return f"{state.st_size} bytes of {state.st_mtime_ns}, {ends.hexdigest()}"


def row_bar(rows: Rows, limit: int | None, done: int, progress: bool) -> Any:
    """A progress bar of rows on stderr; how many a file has, without a limit, is known of Parquet."""
    from tqdm.auto import tqdm

    known = [limit, parquet_length(str(rows.path)) if rows.file_format == "parquet" else None]
    total = min((number for number in known if number is not None), default=None)
    return tqdm(total=total, initial=done, desc="predicting", unit=" rows", disable=not (progress and is_first()))
