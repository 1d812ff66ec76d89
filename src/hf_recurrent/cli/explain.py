"""`hf-recurrent explain`: attention, gates and steps of a checkpoint on one example, step by step."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ..utils import percent
from . import options
from .console import out, quiet_libraries, show_rows, wrote

if TYPE_CHECKING:
    from ..analysis.explain import Explanation

IDLE = "\u00b7"
# letters of a step's column, and of those before it without the token
CELL, BEFORE = 11, 15


def explain(
    checkpoint: options.Checkpoint,
    text: Annotated[str, typer.Argument(help='The example, such as "b a d 101".')],
    pair: Annotated[str | None, typer.Option(help="The second text, of a model that compares two.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(dir_okay=False, callback=options.in_a_folder, help="Draw the figure to this PNG file too."),
    ] = None,
    max_depth: options.MaxDepth = None,
    head: Annotated[
        int | None, typer.Option(min=0, help="Attention of this head, from 0; the greatest over heads if not given.")
    ] = None,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Show which token attends to which, and whose state changes, at each step of one example.

    Of a classifier of pixels, show instead which of them take each step, and what is attended to where it answers from.
    """
    if output is not None and output.suffix.lower() != ".png":
        raise ValueError(f"output is {str(output)!r}: the figure is a PNG file, let its name end in .png")
    from ..analysis.explain import explain as explain_text
    from ..tasks.checkpoints import load_checkpoint

    quiet_libraries()
    loaded = load_checkpoint(checkpoint, device, revision)
    found = explain_text(loaded.model, loaded.tokenizer, text, pair, max_depth)
    if found.pictures and head is not None:
        raise ValueError(f"head is {head}: of pixels the mean over heads is shown, leave it out")
    if found.pictures:
        print_pictures(found)
    else:
        print_tokens(found, head)
    share = "" if found.probability is None else f" ({percent(found.probability)})"
    name = "next token" if found.predicts_next else "prediction"
    out.print(f"{name}: {found.prediction}{share}", markup=False)
    if output is not None:
        from ..analysis.explain.plots import plot_explanation

        wrote(plot_explanation(found, output, head))


def print_tokens(found: "Explanation", head: int | None) -> None:
    """A row for each token and a column for each step, in tables no wider than the terminal, and their legend."""
    attention, idle, heads = found.head_attention(head), found.idle(), found.attention.shape[1]

    def cell(step: int, place: int) -> str:
        """Gate in tenths, source and weight, as in `9 12 .87`; a weight that rounds to zero has no source."""
        if idle[step, place]:
            return IDLE
        source, weight = attention[step, place].argmax(), attention[step, place].max()
        shown = f"{weight:.2f}".removeprefix("0") if weight < 0.995 else "1.0"
        gate = "" if found.gates is None else f"{min(9, int(10 * found.gates[step, place]))} "
        return f"{gate}{'-' if shown == '.00' else source} {shown}"

    fitting = max(1, (out.width - BEFORE - max(map(len, found.tokens))) // CELL)
    for first in range(0, found.num_steps, fitting):
        rows = []
        for place, token in enumerate(found.tokens):
            taken = {} if found.steps is None else {"steps": found.steps[place]}
            steps = range(first, min(first + fitting, found.num_steps))
            cells = {f"step {step + 1}": cell(step, place) for step in steps}
            rows.append({"token": escape(f"{place} {token}"), **taken, **cells})
        show_rows(None, rows)
    which = f"head {head} of 0 to {heads - 1}" if head is not None else "greatest over heads"
    gate = "" if found.gates is None else "how far the token's state is overwritten (gate, in tenths), "
    out.print(f"a step's cell: {gate}the token that it attends to most and its weight ({which}).", markup=False)
    if found.steps is not None:
        after = f"{IDLE} after them" if found.freezes else "after them its state changes for others alone"
        out.print(f"steps: those that a token took and kept, {after}.", markup=False)


def print_pictures(found: "Explanation") -> None:
    """A table for each picture: the share of its pixels that take each step, and which is attended to most."""
    for picture in found.pictures:
        rows, values = [], picture.values
        reads, steps = picture.square(found.reads), None if found.steps is None else picture.square(found.steps)
        for step in range(found.num_steps):
            cells = {} if steps is None else {"pixels that take it": percent((steps > step).mean())}
            # none in steps that the tokens read out do not take, or where a memory is read out
            if reads[step].max() > 0:
                row, column = divmod(int(reads[step].argmax()), len(values))
                where = f"row {row}, column {column}, value {values[row, column]}"
                cells |= {"attends most to": where, "even share": f"{reads[step].max():.2f}"}
            rows.append({found.stage: step + 1, **cells})
        show_rows(f"{len(values)} x {len(values)} pixels", rows)
    if found.readers.any():
        out.print(f"attention: from {found.reader}, the mean over heads; 1 is an even share.", markup=False)
