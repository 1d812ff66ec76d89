"""The figure of README.md: steps of one checkpoint by number of functions, and fixed depths to compare with."""

import json

from hf_recurrent.analysis.halting import ALL_TESTS

from .filling import DOCS
from .sketch import Sketch

CHECKPOINT = DOCS.parent / "model_cards" / "ndr-ctl-forward"
# functions of its training examples
TRAINED = 5
LEFT, BOTTOM, COLUMN, STEP = 70, 300, 58, 14


def steps_by_functions() -> str:
    """Drawn from the calibration of `model_cards/ndr-ctl-forward`."""
    found = json.loads((CHECKPOINT / "calibration.json").read_text(encoding="utf-8"))
    rows = found["tests"][ALL_TESTS]["by_difficulty"]
    full = found["max_depth"]
    fixed = next(
        row["max_depth"] for row in found["fixed_depths"] if row["accuracy"] >= found["full_depth"]["accuracy"]
    )
    right = LEFT + COLUMN * len(rows)
    title = "Each further function takes one step more, also beyond the training range"
    sketch = Sketch(
        right + 30, BOTTOM + 86, f"{title}: from {rows[0]['mean_depth']:.2f} to {rows[-1]['mean_depth']:.2f}"
    )
    sketch.words(sketch.width / 2, 24, title)
    sketch.box(LEFT, 60, COLUMN * TRAINED, BOTTOM - 60, "", "off")
    sketch.words(LEFT + COLUMN * TRAINED / 2, 52, "training range", soft=True)
    sketch.words(LEFT + COLUMN * (TRAINED + len(rows)) / 2, 52, "never trained", soft=True)
    for number, row in enumerate(rows):
        height = STEP * row["mean_depth"]
        middle = LEFT + COLUMN * (number + 0.5)
        sketch.box(middle - 18, BOTTOM - height, 36, height, "", "work")
        sketch.words(middle, BOTTOM - height + 17, f"{row['mean_depth']:.1f}")
        sketch.words(middle, BOTTOM + 20, row["value"])
        sketch.words(middle, BOTTOM + 40, f"{row['accuracy']:.0%}", soft=True)
    for depth, name in (
        (full, f"full depth: {full} steps"),
        (fixed, f"best fixed depth on 1 to {TRAINED}: {fixed} steps"),
    ):
        sketch.arrow((LEFT, BOTTOM - STEP * depth), (right + 10, BOTTOM - STEP * depth), dashed=True)
        sketch.words(LEFT + 8, BOTTOM - STEP * depth - 6, name, "start")
    sketch.words(LEFT - 12, BOTTOM + 20, "functions", "end", soft=True)
    sketch.words(LEFT - 12, BOTTOM + 40, "accuracy", "end", soft=True)
    sketch.words(LEFT - 12, 180, "mean", "end", soft=True)
    sketch.words(LEFT - 12, 196, "steps", "end", soft=True)
    sketch.words(
        sketch.width / 2, BOTTOM + 68, f"early exit of model_cards/{CHECKPOINT.name} on fresh test examples", soft=True
    )
    return sketch.svg()
