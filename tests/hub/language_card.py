"""Card data of a language model on flip-flop strings, made of a table in which reads take more steps."""

import numpy as np
import pandas as pd
from card_factory import STEPS, make_card

from hf_recurrent.analysis.halting import HaltingRecord, halting_mass, halting_table
from hf_recurrent.hub.card import Benchmark, Example, SplitResult

STRINGS, TOKENS = 40, 8


def make_language_table(fixed=False):
    """Strings whose last read is right in nine of ten; three of four labelled tokens are right."""
    rows = np.arange(STRINGS)
    labels = 7 + rows % 2
    columns = {
        "label": labels,
        "prediction": np.where(rows % 10 == 0, 15 - labels, labels),
        "labelled": np.full(STRINGS, 4),
        "right": np.full(STRINGS, 3),
    }
    slices = {"length": np.full(STRINGS, TOKENS), "distance": rows % 4 + 1}
    fields = {"halting": "none", "unit": None, "threshold": None, "max_depth": STEPS}
    if not fixed:
        position = np.tile(np.arange(TOKENS), STRINGS)
        kinds = pd.Categorical(["w"] * 5 + ["r"] * 4 + [None] * (len(position) - 9), ["w", "i", "r"])
        taken = [1] * 5 + [3, 3, 3, 4] + [2] * (len(position) - 9)
        tokens = pd.DataFrame({"position": position, "steps": taken, "kind": kinds})
        steps = (rows % 4 + 1).astype(float)
        mass = halting_mass(np.full((STRINGS, STEPS), 0.3), steps.astype(int))
        fields |= {"halting": "token", "unit": "token", "threshold": 0.999, "tokens": tokens}
        columns |= {
            "steps": steps,
            "deepest": steps,
            "ponder_cost": mass @ np.arange(STEPS + 1),
            "forced": np.zeros(STRINGS),
            "answer_steps": np.full(STRINGS, 3.25),
            "mass": mass,
            "step_counts": np.tile(TOKENS * (np.arange(STEPS + 1) == 2), (STRINGS, 1)),
        }
    return halting_table(HaltingRecord.from_columns(columns, slices, **fields))


def make_language_card(fixed=False, **changes):
    fields = {
        "model_name": "GUT on flip-flop",
        "repo_id": "someone/gut-flip-flop",
        "family": "xpos_transformer" if fixed else "gut",
        "task": "text-generation",
        "metric": "last_read_accuracy",
        "halting": "none" if fixed else "token",
        "benchmark": Benchmark("flip_flop", "original", "1.0.0", 0, {"train_length": 64}, "someone/flip_flop"),
        "results": [SplitResult("test_64_p80", make_language_table(fixed))],
        "example": Example("w 1 i 0 r", answer="1"),
    }
    return make_card(fixed, **{**fields, **changes})
