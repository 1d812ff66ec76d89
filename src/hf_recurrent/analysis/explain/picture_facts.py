"""The numbers in the figure of a reading, for those who do not see it."""

from typing import Any

import numpy as np

from .canvas import PIXELS, Canvas
from .reading import Reading


def picture_facts(reading: Reading, canvas: Canvas) -> dict[str, Any]:
    """What `hub.card.Picture` tells, but for the figure's path and the right answer."""
    drawn = np.concatenate(canvas.columns)
    steps = None if reading.steps is None else reading.steps[drawn]
    return {
        "kind": canvas.kind,
        "sizes": [len(own) for own in canvas.columns],
        "prediction": reading.prediction,
        "probability": reading.probability,
        "unit": reading.unit,
        "least": None if steps is None else steps.min(),
        "mean": None if steps is None else steps.mean(),
        "most": None if steps is None else steps.max(),
        "steps": step_facts(reading, canvas),
        "stage": reading.stage,
        "reader": reading.reader,
        "reads": []
        if reading.attention is None
        else [read_facts(reading, canvas, stage) for stage in range(len(reading.attention))],
    }


def step_facts(reading: Reading, canvas: Canvas) -> list[dict[str, Any]]:
    """Of each step, by text: which share of its tokens takes it, and with what probability it halts as a whole."""
    if reading.steps is None:
        return []
    whole = reading.unit in ("row", "sentence")
    return [
        {
            "taking": [(reading.steps[own] > step).mean() for own in canvas.columns],
            "halting": [reading.halting[step, own[0]] for own in canvas.columns] if whole else None,
        }
        for step in range(len(reading.halting) if whole else reading.num_steps)
    ]


def read_facts(reading: Reading, canvas: Canvas, stage: int) -> dict[str, Any]:
    """The pixel or byte that the readout attends to most, relative to an even share; `place` is -1 if there is none."""
    relative = reading.relative[stage]
    bright = bright_columns(canvas)
    facts = {"text": 0, "place": -1, "value": 0, "relative": 0.0, "bright": None}
    if bright is not None and not np.isnan(relative[bright]).all():
        facts["bright"] = np.nanmean(relative[bright])
    for text, own in enumerate(canvas.columns):
        weights = np.nan_to_num(relative[own])
        place = weights.argmax()
        if weights[place] > facts["relative"]:
            facts |= {"text": text, "place": place, "value": canvas.values[text][place], "relative": weights[place]}
    return facts


def bright_columns(canvas: Canvas) -> np.ndarray | None:
    """Columns of the pixels that are brighter than their picture is on average; None of bytes and of even pictures."""
    if canvas.kind != PIXELS:
        return None
    pairs = zip(canvas.columns, canvas.values, strict=True)
    bright = np.concatenate([own[values > values.mean()] for own, values in pairs])
    return bright if len(bright) else None
