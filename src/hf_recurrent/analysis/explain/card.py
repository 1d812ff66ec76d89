"""Single examples in a model card: their figures, and the numbers in them step by step.

Keys of the numbers are those of the card's data.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.labels import MULTI
from ...files import plain
from ..answers import answer_name
from ..inference import example_inputs
from ..tables import file_name
from .canvas import PIXELS, NotDrawableError, canvas_of
from .explanation import MAX_TOKENS, Explanation, explain_encoded

# tokens of the texts that a card shows whole
PICTURE_TOKENS = 1000


def draw_routing(
    folder: str | os.PathLike, model: Any, tokenizer: Any, example: Mapping[str, Any], *, prefix: str, max_prompt: int
) -> dict[str, Any] | None:
    """Draw the `Explanation` of an encoded example into `folder`/assets -> its numbers, as of `routing` in results.

    None where there is nothing to draw: layers that are not shared, chunks, or more tokens than can be seen.

    Args:
        example: the inputs of a classifier with `labels`, one number or a list of shares; or of a language model with
            one for each token, -100 where there is none, which are cut before a labelled token, after `max_prompt`
            tokens at most.
        prefix: beginning of the figure's name.
    """
    capabilities = model.capabilities
    if not capabilities.shared_block or capabilities.reads != "whole" or capabilities.routers:
        return None
    inputs, labels = example_inputs(tokenizer, example), example["labels"]
    if np.ndim(labels) == 0 or model.config.problem_type == MULTI:
        answer = answer_name(labels, model.config)
    else:
        answered = [place for place, label in enumerate(labels) if place > 0 and label >= 0]
        place = max((place for place in answered if place <= max_prompt), default=answered[0])
        inputs = {name: value[:, :place] for name, value in inputs.items()}
        answer = tokenizer.convert_ids_to_tokens(labels[place])
    if inputs["input_ids"].shape[1] > MAX_TOKENS:
        return None
    found = explain_encoded(model, tokenizer, inputs)
    return drawn(folder, f"assets/{file_name(prefix, 'routing')}.png", found, answer) | plain(routing_facts(found))


def draw_picture(
    folder: str | os.PathLike, model: Any, tokenizer: Any, example: Mapping[str, Any], *, prefix: str
) -> dict[str, Any] | None:
    """Draw the `Explanation` of encoded pixels or bytes into `folder`/assets -> its numbers, as `pictures` in results.

    None where there is nothing to draw: a language model; tokens that are neither pixels nor bytes; pixels that make no
    square, such as those of a picture that was cut; a text without a token; or a model that neither halts nor has
    attention that is known.

    Args:
        example: the inputs of a classifier with `labels`, one number.
        prefix: beginning of the figure's name.
    """
    if np.ndim(example["labels"]) > 0:
        return None
    inputs, answer = example_inputs(tokenizer, example), str(model.config.id2label[int(example["labels"])])
    path = f"assets/{file_name(prefix, 'picture')}.png"
    try:
        found = explain_encoded(model, tokenizer, inputs, canvas=canvas_of(tokenizer, inputs))
        return drawn(folder, path, found, answer) | plain(picture_facts(found))
    except NotDrawableError:
        return None


def drawn(folder: str | os.PathLike, path: str, found: Explanation, answer: str) -> dict[str, Any]:
    """Draw an explanation to `path` in a folder -> what a card says of any example; `answer` is the right one."""
    # only those who draw import matplotlib
    from .plots import plot_explanation

    plot_explanation(found, Path(folder) / path)
    return {"path": path, "answer": answer, "prediction": found.prediction, "probability": found.probability}


def examples_to_draw(lengths: Sequence[int], labels: Sequence[int]) -> list[int]:
    """For each of the first two labels, the example with a length in tokens nearest to `PICTURE_TOKENS`."""
    order = sorted(range(len(lengths)), key=lambda place: abs(lengths[place] - PICTURE_TOKENS))
    return [next(place for place in order if labels[place] == label) for label in sorted(set(labels))[:2]]


def routing_facts(found: Explanation) -> dict[str, Any]:
    """The numbers of the steps that were taken: for each the mean gate, the widest gate, and the strongest attention.

    The strongest attention is that of the token that is read out; where there is none, or it has stopped, it is the
    strongest of all.
    """
    idle, attention, steps = found.idle(), found.head_attention(), []
    for step in range(found.num_steps):
        facts = {"gate": None, "open": None, "open_gate": None}
        if found.gates is not None:
            gates = np.where(idle[step], 0.0, found.gates[step])
            facts = {"gate": gates.mean(), "open": gates.argmax(), "open_gate": gates.max()}
        # nobody attends where all have stopped before the first step
        weights = np.where(idle[step], 0.0, attention[step].max(-1))
        reader = weights.argmax() if found.readout is None or idle[step, found.readout] else found.readout
        read = attention[step, reader].argmax()
        steps.append({**facts, "reader": reader, "read": read, "weight": weights[reader]})
    heads = found.attention.shape[1]
    return {"tokens": found.tokens, "readout": found.readout, "heads": heads, "stops": found.steps, "steps": steps}


def picture_facts(found: Explanation) -> dict[str, Any]:
    """The facts of `pictures` in results, but for the figure's path and the answers.

    Each of `steps` has, by text, the share of its tokens that take it, and the probability that it halts as a whole.
    """
    canvas, steps, taken = found.canvas, [], None
    if found.steps is not None:
        taken = found.steps[np.concatenate(canvas.columns)]
        # the one that stops a text is not taken
        shown = min(len(found.halting), found.steps.max() + 1) if found.halts_whole else found.steps.max()
        steps = [
            {
                "taking": [(found.steps[own] > step).mean() for own in canvas.columns],
                "halting": [found.halting[step, own[0]] for own in canvas.columns] if found.halts_whole else None,
            }
            for step in range(shown)
        ]
    return {
        "kind": canvas.kind,
        "sizes": [len(own) for own in canvas.columns],
        "unit": found.unit,
        **{
            name: taken if taken is None else getattr(taken, how)()
            for name, how in (("least", "min"), ("mean", "mean"), ("most", "max"))
        },
        "steps": steps,
        "stage": found.stage,
        "reader": found.reader,
        "reads": [] if found.reads is None else [read_facts(found, relative) for relative in found.relative],
    }


def read_facts(found: Explanation, relative: np.ndarray) -> dict[str, Any]:
    """The pixel or byte with the most of the readout's attention, `relative` (S,) to an even share.

    `place` is -1 where the readout takes no such step.
    """
    canvas = found.canvas
    facts = {"text": 0, "place": -1, "value": 0, "relative": 0.0, "bright": None}
    bright = np.concatenate(
        [own[values > values.mean()] for own, values in zip(canvas.columns, canvas.values, strict=True)]
    )
    # none are brighter than the mean in an even picture
    if canvas.kind == PIXELS and not np.isnan(relative[bright]).all():
        facts["bright"] = np.nanmean(relative[bright])
    for text, own in enumerate(canvas.columns):
        weights = np.nan_to_num(relative[own])
        place = weights.argmax()
        if weights[place] > facts["relative"]:
            facts |= {"text": text, "place": place, "value": canvas.values[text][place], "relative": weights[place]}
    return facts
