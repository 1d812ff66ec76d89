"""What a model card shows of single examples: their figures, and the numbers in them step by step."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...metrics.serialize import plain
from ...models.depth_model import DepthModel, SharedBlock
from ..halting.heat_map import encode_example
from .canvas import NotDrawableError, canvas_of
from .explanation import Explanation
from .picture_facts import picture_facts
from .reading import read_row
from .route import explain_row
from .text import MAX_TOKENS

# tokens of the texts that a card shows whole
PICTURE_TOKENS = 1000


def routes(model: Any) -> bool:
    """Whether a model applies one block to all tokens again and again, so that its steps can be compared."""
    base = model.base_model
    return isinstance(base, SharedBlock) and isinstance(base, DepthModel)


def draw_routing(
    folder: str | os.PathLike, model: Any, tokenizer: Any, row: Mapping[str, Any], *, prefix: str, most_prompt: int
) -> dict[str, Any] | None:
    """Draw how `model` routes an encoded row into `folder`/assets -> the numbers, as `hub.card.Routing` takes them.

    None where there is nothing to draw: layers that are not shared, chunks, or more tokens than can be seen.

    Args:
        row: the inputs of a model with `labels`, one number, or of a language model one for each token, -100 where
            there is none. It is then cut where a labelled token is to be predicted, after `most_prompt` tokens at most.
        prefix: what the figure's name begins with.
    """
    from .plots import plot_explanation

    if not routes(model):
        return None
    inputs, answer = prompt(model, tokenizer, row, most_prompt)
    if inputs["input_ids"].shape[1] > MAX_TOKENS:
        return None
    explanation = explain_row(model, tokenizer, inputs)
    path = f"assets/{file_name(prefix)}_routing.png"
    plot_explanation(explanation, Path(folder) / path)
    return plain({"path": path, "answer": answer, **facts(explanation)})


def draw_picture(
    folder: str | os.PathLike, model: Any, tokenizer: Any, row: Mapping[str, Any], *, prefix: str
) -> dict[str, Any] | None:
    """Draw how `model` reads an encoded row of pixels or bytes into `folder`/assets -> what `hub.card.Picture` takes.

    None where there is nothing to draw: a language model; tokens that are neither pixels nor bytes; pixels that make no
    square, such as those of a picture that was cut; a text without a token; or a model that neither halts nor has
    attention that `readout` knows.

    Args:
        row: the inputs of a classifier with `labels`, one number.
        prefix: what the figure's name begins with.
    """
    from .sequence_plots import plot_reading

    if np.ndim(row["labels"]) > 0:
        return None
    inputs = encode_example(tokenizer, row)
    try:
        canvas = canvas_of(tokenizer, inputs)
        reading = read_row(model, tokenizer, inputs)
        path = f"assets/{file_name(prefix)}_picture.png"
        plot_reading(reading, canvas, Path(folder) / path)
    except NotDrawableError:
        return None
    answer = str(model.config.id2label[int(row["labels"])])
    return plain({"path": path, "answer": answer, **picture_facts(reading, canvas)})


def rows_to_draw(lengths: Sequence[int], labels: Sequence[int], most: int = 2) -> list[int]:
    """The row of each of the first `most` labels whose length in tokens is the nearest to `PICTURE_TOKENS`."""
    by_label: dict[int, int] = {}
    for place, (length, label) in enumerate(zip(lengths, labels, strict=True)):
        best = by_label.setdefault(int(label), place)
        if abs(length - PICTURE_TOKENS) < abs(lengths[best] - PICTURE_TOKENS):
            by_label[int(label)] = place
    return [by_label[label] for label in sorted(by_label)[:most]]


def file_name(prefix: str) -> str:
    return re.sub(r"[^\w-]+", "_", prefix)


def prompt(model: Any, tokenizer: Any, row: Mapping[str, Any], most: int) -> tuple[dict[str, Any], str]:
    """The inputs to explain as a batch of one, and the right answer in words."""
    inputs, labels = encode_example(tokenizer, row), row["labels"]
    if np.ndim(labels) == 0:
        return inputs, str(model.config.id2label[int(labels)])
    answered = [place for place, label in enumerate(labels) if place > 0 and label >= 0]
    place = max((place for place in answered if place <= most), default=answered[0])
    return {name: value[:, :place] for name, value in inputs.items()}, tokenizer.convert_ids_to_tokens(labels[place])


def facts(explanation: Explanation) -> dict[str, Any]:
    """The numbers of the steps that were taken."""
    sources, weights = explanation.reads()
    idle = explanation.idle()
    return {
        "tokens": explanation.tokens,
        "prediction": explanation.prediction,
        "probability": explanation.probability,
        "readout": explanation.readout,
        "heads": explanation.attention.shape[1],
        "stops": explanation.steps,
        "steps": [
            {
                **gate_facts(None if explanation.gates is None else np.where(idle[step], 0.0, explanation.gates[step])),
                **read_facts(np.where(idle[step], -1.0, weights[step]), sources[step], explanation.readout),
            }
            for step in range(explanation.num_steps)
        ],
    }


def gate_facts(gates: np.ndarray | None) -> dict[str, Any]:
    """Of gates (S,), zero where a token has stopped: their mean, and which is open widest."""
    if gates is None:
        return {"gate": None, "open": None, "open_gate": None}
    widest = gates.argmax()
    return {"gate": gates.mean(), "open": widest, "open_gate": gates[widest]}


def read_facts(weights: np.ndarray, sources: np.ndarray, readout: int | None) -> dict[str, Any]:
    """What the token that is read out reads most; where it is none, or has stopped, the sharpest read of all.

    Args:
        weights, sources: (S,) of each token's strongest read; a negative weight where it has stopped.
    """
    reader = weights.argmax() if readout is None or weights[readout] < 0 else readout
    # nobody reads where all have stopped before the first step
    return {"reader": reader, "read": sources[reader], "weight": max(weights[reader], 0.0)}
