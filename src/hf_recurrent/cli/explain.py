"""`hf-recurrent explain`: attention, gates and steps of a checkpoint on one example, step by step."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from ..templating import percent
from . import options
from .console import out, quiet_libraries, table, wrote

if TYPE_CHECKING:
    from rich.table import Table

    from ..analysis.explain import Explanation

IDLE = "\u00b7"
# values of which there are more in pictures than in words that are numbers
DIGITS = 10
# width that a table needs beside its cells, and between two of them
FRAME, BETWEEN = 1, 3


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

    Of a classifier of pixels or bytes, show instead which of them take each step, and what the readout attends to.
    """
    if output is not None and output.suffix.lower() != ".png":
        raise ValueError(f"output is {str(output)!r}: the figure is a PNG file, let its name end in .png")
    from ..analysis.explain.canvas import NotDrawableError, symbol_kind
    from ..analysis.explain.explanation import explain as explain_text
    from ..analysis.explain.explanation import explain_symbols
    from ..analysis.model_facts import is_classifier
    from ..tasks.checkpoints import load_checkpoint

    quiet_libraries()
    loaded = load_checkpoint(checkpoint, device, revision)
    example, found = (loaded.model, loaded.tokenizer, text, pair, max_depth), None
    if is_classifier(loaded.model) and symbol_kind(loaded.tokenizer) is not None:
        if head is not None:
            raise ValueError(f"head is {head}: of pixels and bytes the mean over heads is shown, leave it out")
        try:
            found = explain_symbols(*example)
        except NotDrawableError:
            # a few digits may be words
            if len(loaded.tokenizer) - len(set(loaded.tokenizer.all_special_tokens)) > DIGITS:
                raise
    found = explain_text(*example) if found is None else found
    for drawn in token_tables(found, head, out.width) if found.canvas is None else symbol_tables(found):
        out.print(drawn, markup=False)
    share = "" if found.probability is None else f" ({percent(found.probability)})"
    name = "next token" if found.predicts_next else "prediction"
    out.print(f"{name}: {found.prediction}{share}", markup=False)
    if output is not None:
        from ..analysis.explain.plots import plot_explanation

        wrote(plot_explanation(found, output, head))


def token_tables(found: "Explanation", head: int | None, width: int) -> "Iterator[Table | str]":
    """A row for each token and a column for each step, in tables no wider than `width` letters, and their legend."""
    attention, idle, last = found.head_attention(head), found.idle(), len(str(len(found.tokens) - 1))

    def cell(step: int, place: int) -> str:
        """Gate in tenths, source and weight, as in `9 12 .87`; a weight that rounds to zero has no source."""
        if idle[step, place]:
            return IDLE
        source, weight = attention[step, place].argmax(), attention[step, place].max()
        shown = f"{weight:.2f}".removeprefix("0") if weight < 0.995 else "1.0"
        gate = "" if found.gates is None else f"{min(9, int(10 * found.gates[step, place]))} "
        return f"{gate}{'-' if shown == '.00' else source:>{last}} {shown}"

    steps, places = range(found.num_steps), range(len(found.tokens))
    columns = {f"step {step + 1}": [cell(step, place) for place in places] for step in steps}
    left = {"": list(places), "token": found.tokens}
    if found.steps is not None:
        left["steps"] = found.steps.tolist()
    widths = {
        name: BETWEEN + max(len(str(item)) for item in (name, *items)) for name, items in (left | columns).items()
    }
    fitting = max(1, (width - FRAME - sum(widths[name] for name in left)) // max(widths[name] for name in columns))
    names = list(columns)
    for first in range(0, len(names), fitting):
        shown = left | {name: columns[name] for name in names[first : first + fitting]}
        rows = zip(*([escape(str(item)) for item in items] for items in shown.values()), strict=True)
        yield table(None, [(name, name != "token") for name in shown], rows)
    heads = found.attention.shape[1]
    which = (
        f"head {head} of 0 to {heads - 1}" if head is not None else "greatest over heads" if heads > 1 else "one head"
    )
    gate = "" if found.gates is None else "how far the token's state is overwritten (gate, in tenths), "
    yield f"a step's cell: {gate}the token that it attends to most and its weight ({which})."
    if found.steps is not None:
        after = f"{IDLE} after them" if found.freezes else "after them its state changes for others alone"
        yield f"steps: those that a token took and kept, {after}."


def symbol_tables(found: "Explanation") -> "Iterator[Table | str]":
    """Which pixels or bytes take each step, what the readout attends to most, and a sentence on each."""
    import numpy as np

    canvas, one = found.canvas, found.canvas.kind[:-1]
    pixels, several = one == "pixel", len(canvas.columns) > 1
    texts = [f" {number}" for number, _ in enumerate(canvas.columns, 1)] if several else [""]
    if found.steps is not None:
        taken = found.steps[np.concatenate(canvas.columns)]
        if found.halts_whole:
            # the step that stops a text is not taken
            steps, what = range(min(len(found.halting), taken.max() + 1)), "halting"
            rows = [[f"{found.halting[step, own[0]]:.2f}" for own in canvas.columns] for step in steps]
        else:
            steps, what = range(taken.max()), canvas.kind
            rows = [[f"{(found.steps[own] > step).mean():.1%}" for own in canvas.columns] for step in steps]
        heads = [("step", True), *((what + name, True) for name in texts)]
        yield table(None, heads, ([number, *row] for number, row in enumerate(rows, 1)))
    if found.reads is not None:
        number = np.concatenate([np.full(len(own), text) for text, own in enumerate(canvas.columns)])
        place = np.concatenate([np.arange(len(own)) for own in canvas.columns])
        values = np.concatenate(canvas.values)
        rows = []
        for stage, relative in enumerate(found.relative[:, np.concatenate(canvas.columns)], 1):
            cells = [IDLE] * 2
            if not np.isnan(relative).all():
                best = np.nan_to_num(relative).argmax()
                side = math.isqrt(len(canvas.columns[number[best]]))
                where = f"row {place[best] // side}, column {place[best] % side}" if pixels else f"byte {place[best]}"
                of = f" of {'picture' if pixels else 'text'}{texts[number[best]]}" if several else ""
                value = f"value {values[best]}" if pixels else repr(bytes([values[best]]))[1:]
                cells = [escape(f"{where}{of}, {value}"), f"{relative[best]:.2f}"]
            rows.append([stage, *cells])
        yield table(None, ((found.stage, True), ("attends most to", False), ("even share", True)), rows)
        yield f"the readout is {found.reader}; 1 is an even share of its attention."
    sides = (math.isqrt(len(own)) for own in canvas.columns)
    sizes = (
        [f"{side} x {side} pixels" for side in sides] if pixels else [f"{len(own):,} bytes" for own in canvas.columns]
    )
    depth = "the depth is fixed"
    if found.steps is not None:
        unit = {"row": "the whole input", "sentence": "each text of the pair"}.get(found.unit, f"each {found.unit}")
        depth = f"{unit} halts by itself, after {taken.min()} to {taken.max()} steps, {taken.mean():.2f} on average"
    yield f"{' and '.join(sizes)}: {depth}."
