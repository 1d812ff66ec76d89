"""Card data made of a table whose steps follow one difficulty column and ignore another."""

import io

import numpy as np
from PIL import Image

from hf_recurrent.analysis.halting import HaltingRecord, halting_mass, halting_table
from hf_recurrent.hub import CardData
from hf_recurrent.hub.card import Benchmark, Example, Paper, SplitResult, Training

STEPS = 4


def _figure() -> bytes:
    content = io.BytesIO()
    Image.new("L", (2, 2)).save(content, "PNG")
    return content.getvalue()


FIGURE = _figure()


def make_table(fixed=False, examples=60):
    depth = np.arange(examples) % STEPS + 1
    labels = np.arange(examples) % 3
    columns = {"label": labels, "prediction": np.where(depth < 3, labels, 0)}
    slices = {"depth": depth, "operator": np.where(labels == 0, "a|b", "MIN")}
    fields = {"halting": "none", "unit": None, "threshold": None, "max_depth": STEPS}
    if not fixed:
        fields |= {"halting": "global", "unit": "example", "threshold": 0.999}
        mass = halting_mass(np.full((examples, STEPS), 0.3), depth)
        columns |= {
            "steps": depth.astype(float),
            "deepest": depth,
            "ponder_cost": mass @ np.arange(STEPS + 1),
            "forced": (depth == STEPS).astype(float),
            "mass": mass,
            "step_counts": np.eye(STEPS + 1, dtype=int)[depth],
        }
    return halting_table(HaltingRecord.from_columns(columns, slices, **fields))


def make_card(fixed=False, **changes):
    table = make_table(fixed)
    fields = {
        "model_name": "GUT on ListOps",
        "repo_id": "someone/gut-listops",
        "family": "xpos_transformer" if fixed else "gut",
        "claim": "A tiny model that evaluates nested list expressions.",
        "max_depth": STEPS,
        "halting": "none" if fixed else "global",
        "paper": Paper("A paper", "https://example.org/paper", "@article{paper,\n  title = {{A Paper}}\n}\n"),
        "benchmark": Benchmark(
            "listops",
            "original",
            "1.0.0",
            0,
            {"max_depth": 20, "operators": ["MIN", "|"], "cap": None},
            "someone/listops",
        ),
        "training": Training(
            command="accelerate launch -m hf_recurrent.train demo",
            recipe="demo",
            paper_table="Table 1, GUT, ListOps",
            seed=0,
            wall_time=3725.0,
            hardware="2 CPU cores",
            num_parameters=234_567,
            versions={"torch": "2.13.0"},
        ),
        "results": [SplitResult("test", table, 0.8125, {"depth": {"1": 0.99}}), SplitResult("deep", table)],
        "example": Example('[MAX 1 "2" ]'),
        "limitations": ["None of this carries over to language."],
    }
    return CardData(**{**fields, **changes})
