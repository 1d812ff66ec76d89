"""Figures of single examples in a model card."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.labels import MULTI
from ..answers import answer_name
from ..inference import example_inputs
from ..tables import file_name
from .canvas import NotDrawableError, canvas_of
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
    return drawn(folder, f"assets/{file_name(prefix, 'routing')}.png", found, answer) | {"tokens": found.tokens}


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
        return drawn(folder, path, found, answer)
    except NotDrawableError:
        return None


def drawn(folder: str | os.PathLike, path: str, found: Explanation, answer: str) -> dict[str, Any]:
    """Draw an explanation to `path` in a folder -> the path, the right `answer`, the prediction and its probability."""
    # only those who draw import matplotlib
    from .plots import plot_explanation

    plot_explanation(found, Path(folder) / path)
    return {"path": path, "answer": answer, "prediction": found.prediction, "probability": found.probability}


def examples_to_draw(lengths: Sequence[int], labels: Sequence[int]) -> list[int]:
    """For each of the first two labels, the example with a length in tokens nearest to `PICTURE_TOKENS`."""
    order = sorted(range(len(lengths)), key=lambda place: abs(lengths[place] - PICTURE_TOKENS))
    return [next(place for place in order if labels[place] == label) for label in sorted(set(labels))[:2]]
