"""`hf-recurrent predict`: a checkpoint's predictions for the rows of a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import err, out, quiet_libraries, wrote

if TYPE_CHECKING:
    from datasets import Dataset

    from ..tasks.checkpoints import Checkpoint

# broken rows that are named one by one
NAMED = 5


@options.grouped
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
        typer.Option(
            callback=options.in_a_folder, dir_okay=False, help="Predictions: a new .parquet, .csv or .jsonl file."
        ),
    ],
    depth_options: dict,
    reading: dict,
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
    batch_size: options.BatchSize = 256,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens in a batch, padding included.", hidden=True)
    ] = 16_384,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    disable_tqdm: Annotated[bool, typer.Option("--disable-tqdm", help="Show no progress bar.")] = False,
) -> None:
    """Predict each row of a file: label, probability and depth steps, of words or masks too, or what a model writes.

    Rows are in the order of the file, which may be larger than memory. The output is there when all are predicted.
    """
    from ..analysis.predict import PredictionSettings, predict_file
    from ..data.reading import Reading, read_rows
    from ..hub.results import check_texts
    from ..models.depth.exit_criteria import ExitOptions, default_threshold_problem
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint

    quiet_libraries()
    if output.exists() and file.samefile(output):
        raise ValueError(f"output is {str(output)!r}, the file with the rows: name another one")
    rows = read_rows(file, Reading(**reading))
    loaded = load_checkpoint(checkpoint, device, revision, dtype, (*OF_TEXTS, *OF_WORDS))
    texts = trained_columns(text_column or (), loaded, rows, file.name)
    check_texts(checkpoint, loaded.results, texts)
    settings = PredictionSettings(
        text_columns=texts,
        keep_columns=tuple(keep_column or ()),
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        options=depth_options,
        all_probabilities=all_probabilities,
        max_new_tokens=max_new_tokens,
        source_prefix=loaded.settings.get("source_prefix") if source_prefix is None else source_prefix,
        top_k=top_k,
        limit=limit,
        skips_rows=reading.get("on_error") == "skip",
    )
    common = {"place": file.name, "overwrite": overwrite, "progress": not disable_tqdm}
    predicted = predict_file(loaded.model, loaded.tokenizer, rows, output, settings, **common)
    rule = ExitOptions(depth_options.get("exit_criterion"), depth_options.get("exit_threshold"))
    note, skipped = default_threshold_problem(loaded.model.config, rule), predicted.skipped
    warnings = [] if note is None else [f"--exit_threshold: {note}"]
    if predicted.cut:
        warnings.append(
            f"{predicted.cut:,} of {predicted.rows:,} texts are longer than {predicted.max_seq_length:,} tokens and "
            "were cut to that (--max_seq_length)"
        )
    warnings += [f"{file}, row {number} was skipped: {reason}" for number, reason in skipped[:NAMED]]
    warnings += [f"{len(skipped):,} rows were skipped"] if skipped else []
    for warning in warnings:
        err.print(f"warning: {warning}", markup=False)
    out.print(f"{predicted.rows:,} rows", markup=False)
    wrote(output)


def trained_columns(chosen: Any, loaded: "Checkpoint", rows: "Dataset", place: str) -> tuple[str, ...]:
    """The columns of texts: those that are chosen, or of training where a file has them, or with usual names.

    Raises:
        ValueError: the file has other columns, and it is not clear which of them hold the texts.
    """
    from ..analysis.predict import text_columns
    from ..data.reading import has_column

    known = loaded.settings.get("text_column") or loaded.settings.get("source_column") or ()
    names = [known] if isinstance(known, str) else known
    if not chosen and all(has_column(rows.column_names, name) for name in names):
        chosen = names
    return text_columns(rows, chosen, loaded.model, place)
