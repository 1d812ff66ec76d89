"""`hf-recurrent predict`: a checkpoint's predictions for the rows of a file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .console import err, out, quiet_libraries, wrote

if TYPE_CHECKING:
    from datasets import Dataset

    from ..analysis.predict import PredictionSettings
    from ..tasks.checkpoints import Checkpoint

# broken rows that are named one by one
NAMED = 5


@options.names_encoding
def predict(
    checkpoint: options.Checkpoint,
    file: Annotated[
        Path,
        typer.Option(
            callback=options.a_file,
            help="Rows to predict: CSV, TSV, JSON, JSON Lines, Parquet, or text with one a line.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(callback=options.in_a_folder, help="Predictions: a new .parquet, .csv or .jsonl file."),
    ],
    text_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Column with the texts, or translation.de; twice for pairs. If not given: as in training, or text."
        ),
    ] = None,
    keep_column: Annotated[
        list[str] | None, typer.Option(help="Column to have in the output, too, such as an id; may be repeated.")
    ] = None,
    all_probabilities: Annotated[
        bool, typer.Option("--all-probabilities", help="A column for the probability of each label.")
    ] = False,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="Of models that write text: the most tokens to write.", hidden=True),
    ] = None,
    source_prefix: Annotated[
        str | None, typer.Option(help="Of models that write text: text before every text, as in training.", hidden=True)
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of masked language models: tokens to name for each mask; 5 if not given.", hidden=True
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Predict this many rows, the file's first ones.")] = None,
    max_seq_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens to keep of a text; as many as the tokenizer allows if not given.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, max=options.MOST, help="The most rows in a batch.")] = 256,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens in a batch, padding included.", hidden=True)
    ] = 16_384,
    max_depth: options.MaxDepth = None,
    halting_threshold: options.HaltingThreshold = None,
    exit_criterion: options.ExitCriterion = None,
    exit_threshold: options.ExitThreshold = None,
    encoding: Annotated[str, typer.Option(help="Encoding of the file's text.", hidden=True)] = "utf-8",
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of a CSV file; by the end of its name if not given.", hidden=True)
    ] = None,
    quoting: Annotated[
        str, typer.Option(help="minimal, or none: quotes in a CSV file are characters.", hidden=True)
    ] = "minimal",
    on_error: Annotated[str, typer.Option(help="What to do at a broken row: raise, or skip it.")] = "raise",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    disable_tqdm: Annotated[bool, typer.Option("--disable-tqdm", help="Show no progress bar.")] = False,
) -> None:
    """Predict each row of a file: label, probability and depth steps, of words or masks too, or what a model writes.

    Rows are in the order of the file, which may be larger than memory. The output is there when all are predicted.
    """
    from ..analysis.predict import PredictionSettings, predict_file, text_columns
    from ..data.reading import Reading, read_rows
    from ..hub.results import check_texts
    from ..models.common.exit_criteria import ExitOptions, default_threshold_problem
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint

    quiet_libraries()
    if output.exists() and file.samefile(output):
        raise ValueError(f"output is {str(output)!r}, the file with the rows: name another one")
    rows = read_rows(file, Reading(encoding, delimiter, quoting, on_error))
    depth = {
        "max_depth": max_depth,
        "halting_threshold": halting_threshold,
        "exit_criterion": exit_criterion,
        "exit_threshold": exit_threshold,
    }
    settings = PredictionSettings(
        text_columns=tuple(text_column or ()),
        keep_columns=tuple(keep_column or ()),
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        options={name: value for name, value in depth.items() if value is not None},
        all_probabilities=all_probabilities,
        max_new_tokens=max_new_tokens,
        source_prefix=source_prefix,
        top_k=top_k,
        limit=limit,
        skips_rows=on_error == "skip",
    )
    loaded = load_checkpoint(checkpoint, device, revision, dtype, (*OF_TEXTS, *OF_WORDS))
    settings = settings_as_trained(settings, loaded, rows, file.name)
    check_texts(checkpoint, loaded.results, text_columns(rows, settings.text_columns, loaded.model, file.name))
    predicted = predict_file(
        *(loaded.model, loaded.tokenizer, rows, output, settings),
        place=file.name,
        overwrite=overwrite,
        progress=not disable_tqdm,
    )
    note = default_threshold_problem(loaded.model.config, ExitOptions(exit_criterion, exit_threshold))
    if note is not None:
        err.print(f"warning: --exit_threshold: {note}", markup=False)
    if predicted.cut:
        err.print(
            f"warning: {predicted.cut:,} of {predicted.rows:,} texts are longer than "
            f"{predicted.max_seq_length:,} tokens and were cut to that (--max_seq_length)",
            markup=False,
        )
    for number, reason in predicted.skipped[:NAMED]:
        err.print(f"warning: {file}, row {number} was skipped: {reason}", markup=False)
    if predicted.skipped:
        err.print(f"warning: {len(predicted.skipped):,} rows were skipped", markup=False)
    out.print(f"{predicted.rows:,} rows", markup=False)
    wrote(output)


def settings_as_trained(
    settings: "PredictionSettings", loaded: "Checkpoint", rows: "Dataset", place: str
) -> "PredictionSettings":
    """The settings, with the columns of training that a file has, and its prefix of sources, where none are given.

    Raises:
        ValueError: the file has other columns, and it is not clear which of them hold the texts.
    """
    from ..analysis.predict import text_columns
    from ..data.columns import has_column

    known = loaded.settings.get("text_column") or loaded.settings.get("source_column") or ()
    names = (known,) if isinstance(known, str) else tuple(known)
    if not settings.text_columns and names and all(has_column(rows.column_names, name) for name in names):
        settings = replace(settings, text_columns=names)
    elif not settings.text_columns and names:
        try:
            text_columns(rows, (), loaded.model, place)
        except ValueError as error:
            raise ValueError(f"{error}; training read {' and '.join(map(repr, names))}") from error
    if settings.source_prefix is None:
        settings = replace(settings, source_prefix=loaded.settings.get("source_prefix"))
    return settings
