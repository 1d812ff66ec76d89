"""`hf-recurrent fit-probe`: a small head that says whether a checkpoint's present answer is right."""

from typing import Annotated, Any

import typer

from ..utils import duration, number, percent
from . import options
from .calibrate import Checkpoint, InPlace, MaxDepth, Output
from .console import out, quiet_libraries, wrote


@options.grouped
def fit_probe(
    checkpoint: Checkpoint,
    unsliced_examples: options.Examples,
    split: Annotated[str, typer.Option(help="Examples to fit to.")] = "train",
    size: Annotated[int, typer.Option(min=1, max=options.MOST, help="Inner width of the probe.")] = 64,
    max_depth: MaxDepth = None,
    limit: options.Limit = 5000,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 64,
    output: Output = None,
    in_place: InPlace = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Fit the probe by which a checkpoint can stop early: it says whether the present answer is right."""
    from ..analysis.probe import fit_probe as fitted
    from ..analysis.probe import require_answers
    from ..hub.checkpoint import save_checkpoint
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint
    from .shared import destination, encoded

    quiet_libraries()
    request = unsliced_examples.request([split])
    folder, change_of = destination(checkpoint, output, in_place, "probed", revision)
    with change_of as change:
        loaded = load_checkpoint(checkpoint, device, revision, "auto", (*OF_TEXTS, *OF_WORDS))
        model, tokenizer = loaded.model, loaded.tokenizer
        require_answers(model, max_depth)
        (rows,) = encoded(loaded, request, limit, seed)
        batches = rows.batches(tokenizer, batch_size)
        replaces = model.config.exit_probe_size > 0
        probe, found = fitted(model, batches, size=size, max_depth=max_depth, seed=seed, progress=True)
        model.exit_probe, model.config.exit_probe_size = probe, size
        save_checkpoint(model, change.new, None if in_place else tokenizer)
    for line in report(found, rows.name, size, replaces):
        out.print(line, markup=False)
    wrote(folder)


def report(found: dict[str, Any], split: str, size: int, replaces: bool) -> list[str]:
    """How well the probe does."""
    judged = f"{found['units']:,} units after 1 to {found['steps']} steps"
    lines = [
        f"Probe of width {size}, fitted to {found['examples']:,} examples of {split} ({judged}) in "
        f"{duration(found['seconds'])}, {found['updates']} updates.",
        f"Of the answers to {found['held_out']:,} held-out examples {percent(found['right'])} are right. The probe "
        f"knows for {percent(found['accuracy'])}: area under the ROC curve {number(found['auc'], 3)}, Brier score "
        f"{number(found['brier'], 3)}.",
    ]
    if replaces:
        lines.append("It replaces the probe that the checkpoint had.")
    return [*lines, "Stop by it with exit_criterion='probe'; `hf-recurrent calibrate` chooses its threshold."]
