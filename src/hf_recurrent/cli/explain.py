"""`hf-recurrent explain`: attention, gates and steps of a checkpoint on one example, step by step."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from ..analysis.explain import explain as explain_text
    from ..analysis.explain.canvas import symbol_kind
    from ..analysis.model_facts import is_classifier
    from ..training.evaluate import load_checkpoint

    quiet_libraries()
    if output is not None and output.suffix.lower() != ".png":
        raise ValueError(f"output is {str(output)!r}: the figure is a PNG file, let its name end in .png")
    loaded = load_checkpoint(checkpoint, device, revision)
    if is_classifier(loaded.model) and symbol_kind(loaded.tokenizer) is not None:
        if head is not None:
            raise ValueError(f"head is {head}: of pixels and bytes the mean over heads is shown, leave it out")
        traced = traced_readout(loaded.model, loaded.tokenizer, (text, pair), max_depth)
        if traced is not None:
            explain_sequence(*traced, output)
            return
    explanation = explain_text(loaded.model, loaded.tokenizer, text, pair, max_depth)
    for drawn in tables(explanation, head, out.width):
        out.print(drawn)
    name = "next token" if explanation.predicts_next else "prediction"
    for line in (*legend(explanation, head), prediction(explanation.prediction, explanation.probability, name)):
        out.print(line, markup=False)
    if output is not None:
        from ..analysis.explain.plots import plot_explanation

        wrote(plot_explanation(explanation, output, head))


def traced_readout(
    model: Any, tokenizer: Any, texts: tuple[str, str | None], max_depth: int | None
) -> tuple[Any, Any] | None:
    """The readout of pixels or bytes, and these; None of digits that make no picture: they may be words."""
    from ..analysis.explain.canvas import NotDrawableError
    from ..analysis.explain.readout import trace_readout

    try:
        return trace_readout(model, tokenizer, *texts, max_depth)
    except NotDrawableError:
        if len(tokenizer) - len(set(tokenizer.all_special_tokens)) > DIGITS:
            raise
        return None


def explain_sequence(trace: Any, canvas: Any, output: Path | None) -> None:
    """Show how a classifier reads pixels or bytes, and draw it to `output`."""
    from ..analysis.explain.card import picture_facts
    from ..hub.phrases import phrase

    facts = picture_facts(trace, canvas)
    for drawn in sequence_tables(facts):
        out.print(drawn)
    out.print(f"{phrase('picture_size', facts)}: {phrase('picture_steps', facts)}.", markup=False)
    if facts["reader"] is not None:
        out.print(f"the readout is {facts['reader']}; 1 is an even share of its attention.", markup=False)
    out.print(prediction(facts["prediction"], facts["probability"]), markup=False)
    if output is not None:
        from ..analysis.explain.readout_plots import plot_readout

        wrote(plot_readout(trace, canvas, output))


def sequence_tables(facts: dict[str, Any]) -> list["Table"]:
    """Tables of the tokens of each text that take each step, and of the maximum attention of the readout."""
    from ..hub.phrases import phrase

    names = [f" {number + 1}" if len(facts["sizes"]) > 1 else "" for number in range(len(facts["sizes"]))]
    drawn = []
    if facts["steps"]:
        heads = [("step", True), *((f"{facts['kind']}{name}", True) for name in names)]
        whole = facts["steps"][0]["halting"] is not None
        heads += [(f"halting{name}", True) for name in names] if whole else []
        drawn.append(
            table(
                None,
                heads,
                (
                    [number, *(f"{share:.1%}" for share in step["taking"])]
                    + ([f"{share:.2f}" for share in step["halting"]] if whole else [])
                    for number, step in enumerate(facts["steps"], 1)
                ),
            )
        )
    if facts["reads"]:
        heads = [(facts["stage"], True), ("attends most to", False), ("even share", True), ("bright", True)]
        rows = (
            [
                number,
                escape(phrase("picture_place", facts, read)) or IDLE,
                f"{read['relative']:.2f}" if read["place"] >= 0 else IDLE,
                IDLE if read["bright"] is None else f"{read['bright']:.2f}",
            ]
            for number, read in enumerate(facts["reads"], 1)
        )
        drawn.append(table(None, heads, rows))
    return drawn


def tables(explanation: "Explanation", head: int | None, width: int) -> list["Table"]:
    """A row for each token and a column for each step, in as many tables as a terminal of `width` letters needs."""
    names, grid = [escape(token) for token in explanation.tokens], cells(explanation, head)
    heads = [("", True), ("token", False)]
    taken = FRAME + sum(
        BETWEEN + len(item) for item in (str(len(names) - 1), max((*explanation.tokens, "token"), key=len))
    )
    steps = explanation.steps
    if steps is not None:
        heads.append(("steps", True))
        taken += BETWEEN + len("steps")
    fitting = max(1, (width - taken) // (BETWEEN + max(len("step 10"), *(len(cell) for row in grid for cell in row))))
    drawn = []
    for first in range(0, explanation.num_steps, fitting):
        shown = range(first, min(first + fitting, explanation.num_steps))
        rows = (
            [place, name, *([] if steps is None else [steps[place]]), *(grid[step][place] for step in shown)]
            for place, name in enumerate(names)
        )
        drawn.append(table(None, [*heads, *((f"step {step + 1}", True) for step in shown)], rows))
    return drawn


def cells(explanation: "Explanation", head: int | None) -> list[list[str]]:
    """For each step and token: the gate in tenths, the token it attends to most, and the weight."""
    sources, weights = explanation.strongest_attention(head)
    idle = explanation.idle()
    return [
        [
            IDLE
            if idle[step, place]
            else cell(
                None if explanation.gates is None else explanation.gates[step, place],
                int(sources[step, place]),
                weights[step, place],
                len(str(len(explanation.tokens) - 1)),
            )
            for place in range(len(explanation.tokens))
        ]
        for step in range(explanation.num_steps)
    ]


def cell(gate: float | None, source: int, weight: float, digits: int) -> str:
    """Gate, source and weight, as in `9 12 .87`; a weight that rounds to zero has no source."""
    written = f"{weight:.2f}".removeprefix("0") if weight < 0.995 else "1.0"
    place = "-" if written == ".00" else source
    return f"{'' if gate is None else f'{min(9, int(10 * gate))} '}{place:>{digits}} {written}"


def legend(explanation: "Explanation", head: int | None) -> list[str]:
    """Meanings of a cell's parts."""
    num_heads = explanation.attention.shape[1]
    which = "greatest over heads" if num_heads > 1 else "one head"
    which = which if head is None else f"head {head} of 0 to {num_heads - 1}"
    gate = "" if explanation.gates is None else "how far the token's state is overwritten (gate, in tenths), "
    lines = [f"a step's cell: {gate}the token that it attends to most and its weight ({which})."]
    if explanation.steps is not None:
        after = f"{IDLE} after them" if explanation.freezes else "after them its state changes for others alone"
        lines.append(f"steps: those that a token took and kept, {after}.")
    return lines


def prediction(label: str, probability: float | None, name: str = "prediction") -> str:
    share = "" if probability is None else f" ({percent(probability)})"
    return f"{name}: {label}{share}"
