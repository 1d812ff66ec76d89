"""Single examples in a model card: their figures, and the numbers in them step by step.

Keys of the numbers are those of `card.json`.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files import plain
from ...text_data.labels import MULTI
from ..inference import answer_name, example_inputs
from ..tables import file_name
from .canvas import PIXELS, Canvas, NotDrawableError, canvas_of
from .explanation import MAX_TOKENS, Explanation, explain_encoded
from .readout import ReadoutTrace, trace_encoded

# tokens of the texts that a card shows whole
PICTURE_TOKENS = 1000


def draw_routing(
    folder: str | os.PathLike, model: Any, tokenizer: Any, example: Mapping[str, Any], *, prefix: str, max_prompt: int
) -> dict[str, Any] | None:
    """Draw the `Explanation` of an encoded example into `folder`/assets -> its numbers, as of `hub.card.Routing`.

    None where there is nothing to draw: layers that are not shared, chunks, or more tokens than can be seen.

    Args:
        example: the inputs of a classifier with `labels`, one number or a list of shares; or of a language model with
            one for each token, -100 where there is none, which are cut before a labelled token, after `max_prompt`
            tokens at most.
        prefix: beginning of the figure's name.
    """
    # only those who draw import matplotlib
    from .plots import plot_explanation

    capabilities = model.capabilities
    if not capabilities.shared_block or capabilities.reads != "whole" or capabilities.routers:
        return None
    inputs, answer = prompt(model, tokenizer, example, max_prompt)
    if inputs["input_ids"].shape[1] > MAX_TOKENS:
        return None
    explanation = explain_encoded(model, tokenizer, inputs)
    path = f"assets/{file_name(prefix, 'routing')}.png"
    plot_explanation(explanation, Path(folder) / path)
    return plain({"path": path, "answer": answer, **routing_facts(explanation)})


def draw_picture(
    folder: str | os.PathLike, model: Any, tokenizer: Any, example: Mapping[str, Any], *, prefix: str
) -> dict[str, Any] | None:
    """Draw the `ReadoutTrace` of encoded pixels or bytes into `folder`/assets -> its numbers, as of `hub.card.Picture`.

    None where there is nothing to draw: a language model; tokens that are neither pixels nor bytes; pixels that make no
    square, such as those of a picture that was cut; a text without a token; or a model that neither halts nor has
    attention that is known.

    Args:
        example: the inputs of a classifier with `labels`, one number.
        prefix: beginning of the figure's name.
    """
    # only those who draw import matplotlib
    from .readout_plots import plot_readout

    if np.ndim(example["labels"]) > 0:
        return None
    inputs = example_inputs(tokenizer, example)
    try:
        canvas = canvas_of(tokenizer, inputs)
        trace = trace_encoded(model, tokenizer, inputs)
        path = f"assets/{file_name(prefix, 'picture')}.png"
        plot_readout(trace, canvas, Path(folder) / path)
    except NotDrawableError:
        return None
    answer = str(model.config.id2label[int(example["labels"])])
    return plain({"path": path, "answer": answer, **picture_facts(trace, canvas)})


def examples_to_draw(lengths: Sequence[int], labels: Sequence[int]) -> list[int]:
    """For each of the first two labels, the example with a length in tokens nearest to `PICTURE_TOKENS`."""
    by_label: dict[int, int] = {}
    for place, (length, label) in enumerate(zip(lengths, labels, strict=True)):
        best = by_label.setdefault(int(label), place)
        if abs(length - PICTURE_TOKENS) < abs(lengths[best] - PICTURE_TOKENS):
            by_label[int(label)] = place
    return [by_label[label] for label in sorted(by_label)[:2]]


def prompt(model: Any, tokenizer: Any, example: Mapping[str, Any], max_length: int) -> tuple[dict[str, Any], str]:
    """The inputs to explain as a batch of one, and the name of the right label or token."""
    inputs, labels = example_inputs(tokenizer, example), example["labels"]
    if np.ndim(labels) == 0 or model.config.problem_type == MULTI:
        return inputs, answer_name(labels, model.config)
    answered = [place for place, label in enumerate(labels) if place > 0 and label >= 0]
    place = max((place for place in answered if place <= max_length), default=answered[0])
    return {name: value[:, :place] for name, value in inputs.items()}, tokenizer.convert_ids_to_tokens(labels[place])


def routing_facts(explanation: Explanation) -> dict[str, Any]:
    """The numbers of the steps that were taken."""
    sources, weights = explanation.strongest_attention()
    idle = explanation.idle()
    # of each step the mean gate, zero where a token has stopped, and the token whose gate is open widest
    gates = [(None, None, None)] * explanation.num_steps
    if explanation.gates is not None:
        live = np.where(idle, 0.0, explanation.gates)
        gates = [(own.mean(), own.argmax(), own.max()) for own in live]
    return {
        "tokens": explanation.tokens,
        "prediction": explanation.prediction,
        "probability": explanation.probability,
        "readout": explanation.readout,
        "heads": explanation.attention.shape[1],
        "stops": explanation.steps,
        "steps": [
            {
                **dict(zip(("gate", "open", "open_gate"), gates[step], strict=True)),
                **attention_facts(np.where(idle[step], -1.0, weights[step]), sources[step], explanation.readout),
            }
            for step in range(explanation.num_steps)
        ],
    }


def attention_facts(weights: np.ndarray, sources: np.ndarray, readout: int | None) -> dict[str, Any]:
    """Strongest attention of the readout token; where there is none, or it has stopped, the strongest of all.

    Args:
        weights, sources: (S,) of each token's strongest attention; a negative weight where it has stopped.
    """
    reader = weights.argmax() if readout is None or weights[readout] < 0 else readout
    # nobody attends where all have stopped before the first step
    return {"reader": reader, "read": sources[reader], "weight": max(weights[reader], 0.0)}


def picture_facts(trace: ReadoutTrace, canvas: Canvas) -> dict[str, Any]:
    """The fields of `hub.card.Picture`, but for the figure's path and the right answer."""
    drawn = np.concatenate(canvas.columns)
    steps = None if trace.steps is None else trace.steps[drawn]
    return {
        "kind": canvas.kind,
        "sizes": [len(own) for own in canvas.columns],
        "prediction": trace.prediction,
        "probability": trace.probability,
        "unit": trace.unit,
        "least": None if steps is None else steps.min(),
        "mean": None if steps is None else steps.mean(),
        "most": None if steps is None else steps.max(),
        "steps": step_facts(trace, canvas),
        "stage": trace.stage,
        "reader": trace.reader,
        "reads": []
        if trace.attention is None
        else [readout_facts(trace, canvas, stage) for stage in range(len(trace.attention))],
    }


def step_facts(trace: ReadoutTrace, canvas: Canvas) -> list[dict[str, Any]]:
    """For each step and text, the share of its tokens that take it, and the probability that it halts as a whole."""
    if trace.steps is None:
        return []
    whole = trace.unit in ("row", "sentence")
    return [
        {
            "taking": [(trace.steps[own] > step).mean() for own in canvas.columns],
            "halting": [trace.halting[step, own[0]] for own in canvas.columns] if whole else None,
        }
        for step in range(len(trace.halting) if whole else trace.num_steps)
    ]


def readout_facts(trace: ReadoutTrace, canvas: Canvas, stage: int) -> dict[str, Any]:
    """The pixel or byte that the readout attends to most, relative to an even share; `place` is -1 if there is none."""
    relative = trace.relative[stage]
    facts = {"text": 0, "place": -1, "value": 0, "relative": 0.0, "bright": None}
    if canvas.kind == PIXELS:
        # those that are brighter than their picture is on average: none in an even picture
        pairs = zip(canvas.columns, canvas.values, strict=True)
        bright = relative[np.concatenate([own[values > values.mean()] for own, values in pairs])]
        if not np.isnan(bright).all():
            facts["bright"] = np.nanmean(bright)
    for text, own in enumerate(canvas.columns):
        weights = np.nan_to_num(relative[own])
        place = weights.argmax()
        if weights[place] > facts["relative"]:
            facts |= {"text": text, "place": place, "value": canvas.values[text][place], "relative": weights[place]}
    return facts
