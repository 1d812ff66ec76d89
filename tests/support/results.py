"""Results of made-up evaluations: of a classifier whose steps follow one difficulty column, and of other tasks."""

import io
import math

import numpy as np
import pandas as pd
from PIL import Image
from transformers import AutoConfig

from hf_recurrent.analysis.halting import HaltingRecord, halting_mass, halting_table
from hf_recurrent.analysis.losses import Corpus, Losses, Reading, recurrence_table
from hf_recurrent.hub.results import EMPTY
from hf_recurrent.utils import write_json

STEPS = 4
PAPER = {"title": "A paper", "url": "https://example.org", "bibtex": "@article{paper,\n  title = {{A Paper}}\n}\n"}


def _figure() -> bytes:
    content = io.BytesIO()
    Image.new("L", (2, 2)).save(content, "PNG")
    return content.getvalue()


FIGURE = _figure()


def figure(kind="steps", path="assets/steps.png", column=None, split="test"):
    return {"kind": kind, "path": path, "column": column, "split": split}


def halting_columns(depth):
    mass = halting_mass(np.full((len(depth), STEPS), 0.3), depth)
    return {
        "steps": depth.astype(float),
        "deepest": depth,
        "ponder_cost": mass @ np.arange(STEPS + 1),
        "forced": (depth == STEPS).astype(float),
        "mass": mass,
        "step_counts": np.eye(STEPS + 1, dtype=int)[depth],
    }


def make_table(fixed=False, examples=60, **changes):
    """Two thirds are right: those of depths 1 and 2, and one label of the others. Steps are the depth."""
    depth = np.arange(examples) % STEPS + 1
    labels = np.arange(examples) % 3
    columns = {"label": labels, "prediction": np.where(depth < 3, labels, 0)}
    slices = {"depth": depth, "operator": np.where(labels == 0, "a|b", "MIN")}
    fields = {"halting": "none", "unit": None, "threshold": None, "max_depth": STEPS}
    if not fixed:
        fields |= {"halting": "global", "unit": "example", "threshold": 0.999}
        columns |= halting_columns(depth)
    found = halting_table(HaltingRecord.from_columns(columns, slices, **fields))
    return {"distribution": "as in training", **found, **changes}


def with_trend(table, spearman, column="depth"):
    """A table whose steps have this rank correlation with a column."""
    slices = {**table["slices"], column: {**table["slices"][column], "spearman": spearman}}
    return {**table, "slices": slices}


def make_results(fixed=False, **changes):
    """Results of a run; a mapping among `changes` changes keys of the one that is there."""
    fields = {
        **EMPTY,
        "title": "GUT on ListOps",
        "name": "someone/gut-listops",
        "task": "text-classification",
        "model": {
            "type": "xpos_transformer" if fixed else "gut",
            "parameters": 234_567,
            "max_depth": STEPS,
            "halting": "none" if fixed else "global",
            **dict.fromkeys(("chunks", "generation", "base", "license")),
            "paper": PAPER,
        },
        "data": {
            "name": "listops",
            "config": "original",
            "version": "1.0.0",
            "seed": 0,
            "parameters": {"max_depth": 20, "operators": ["MIN", "|"]},
            "further_parameters": {},
            "description": "Nested lists of operations on digits.",
            "dataset_id": "someone/listops",
            "dataset_revision": None,
            "language": [],
            "arguments": "listops --config original --set max_depth=20",
        },
        "training": {
            "command": "accelerate launch -m hf_recurrent.train demo",
            "recipe": "demo",
            "reproduces": "Table 1, GUT, ListOps",
            "seed": 0,
            "steps": 1000,
            "seconds": 3725.0,
            "hardware": "2 CPU cores",
            "versions": {"torch": "2.13.0"},
            "depth": "without halting, in 4 depth steps",
            "differences": ["width 64 instead of 512"],
            "history": [],
            "weights": None,
        },
        "splits": {
            "test": {**make_table(fixed), "paper": {"accuracy": 0.8125, "slices": {"depth": {"1": 0.99}}}},
            "deep": make_table(fixed, distribution="deeper than training"),
        },
        "example": {"text": '[MAX 1 "2" ]', "text_pair": None, "answer": None},
        "limitations": ["It knows digits alone."],
    }
    nested = ("model", "data", "training", "example")
    return fields | {name: {**fields[name], **value} if name in nested else value for name, value in changes.items()}


def make_calibration(**changes):
    """Steps 3 to 6 at depths 1 to 4 of the split `test`, and 7 and 8 at depths 5 and 6 of `far`; without curves."""
    fields = {
        **{"benchmark": "listops", "benchmark_config": "original", "split": "validation", "n": 1_000, "seed": 0},
        **{"tolerance": 0.01, "confidence": 0.95, "risk": "lost", "budget": None, "max_depth": 16},
        **{"device": "CPU, 1 thread", "repeats": 3, "batch_sizes": [1, 32], "only_exits": False, "difficulty": "depth"},
        "arguments": "listops --split validation",
        "full_depth": {"accuracy": 0.75, "mean_depth": 16.0, "relative_time": 1.0},
        "fixed_depths": [
            {"max_depth": 4, "accuracy": 0.5, "relative_time": None, "safe": False},
            {"max_depth": 8, "accuracy": 0.74, "relative_time": 0.51, "safe": True},
        ],
        "chosen": {"criterion": "convergence", "threshold": 0.25, "patience": 1, "min_depth": 1},
        "tried": ["convergence"],
        "calibrated": {"accuracy": 0.7475, "mean_depth": 4.5, "relative_time": 0.32, "risk": 0.003},
        "tests": {
            "test": split_check((1, 2, 3, 4), spearman=0.97),
            "far": split_check((5, 6), spearman=0.5, accuracy=0.5, risk=0.03),
        },
    }
    return {**fields, **changes}


def split_check(depths, spearman, accuracy=0.748, risk=0.002, **changes):
    # deeper ones are harder
    middle = sum(depths) / len(depths)
    rows = [
        {
            **{"value": str(depth), "n": 100, "full_accuracy": 0.75, "mean_depth": depth + 2.0},
            "accuracy": None if accuracy is None else accuracy + 0.1 * (middle - depth),
        }
        for depth in depths
    ]
    example = {"text": "[MAX 1 | 2 ]", "steps": 3, "label": "7", "prediction": "7", "difficulty": 1}
    return {
        **{"n": 100 * len(depths), "accuracy": accuracy, "full_accuracy": 0.75, "risk": risk, "mean_depth": middle + 2},
        **{"relative_time": 0.3, "spearman": spearman, "by_difficulty": rows, "examples": [example]},
        **changes,
    }


def make_language_table(fixed=False):
    """Strings whose last read is right in nine of ten; three of four labelled tokens are right."""
    rows = np.arange(40)
    labels, steps = 7 + rows % 2, rows % 4 + 1
    columns = {"label": labels, "prediction": np.where(rows % 10 == 0, 15 - labels, labels)}
    columns |= {"labelled": np.full(40, 4), "right": np.full(40, 3)}
    slices = {"length": np.full(40, 8), "distance": steps}
    fields = {"halting": "none", "unit": None, "threshold": None, "max_depth": STEPS}
    if not fixed:
        kinds = pd.Categorical(["w"] * 5 + ["r"] * 4 + [None] * 311, ["w", "i", "r"])
        taken = [1] * 5 + [3, 3, 3, 4] + [2] * 311
        tokens = pd.DataFrame({"position": np.tile(np.arange(8), 40), "steps": taken, "kind": kinds})
        fields |= {"halting": "token", "unit": "token", "threshold": 0.999, "tokens": tokens}
        columns |= {**halting_columns(steps), "answer_steps": np.full(40, 3.25)}
    found = halting_table(HaltingRecord.from_columns(columns, slices, **fields))
    return {"distribution": "as in training", **found}


def make_language_results(fixed=False, **changes):
    fields = {
        **{"task": "text-generation", "metric": "last_read_accuracy", "data": {"name": "flip_flop"}},
        "model": {"halting": "none" if fixed else "token"},
        "splits": {"test_64_p80": make_language_table(fixed)},
        "example": {"text": "w 1 i 0 r", "answer": "1"},
    }
    return make_results(fixed, **{**fields, **changes})


def make_document_table(own=(1.5, 1.6, 1.7), reset=(1.6, 1.7, 1.8), states=(1.5, 1.6, 1.71), **changes):
    """Three documents of these bits a token of 2 bytes, with a document, nothing, or all but states carried."""
    tokens = np.array([1000, 1000, 1000])

    def losses(bits):
        octaves = np.array([33, 100, 867])
        rows = {
            "text": np.repeat(range(3), 3),
            "octave": np.tile(range(3), 3),
            "tokens": np.tile(octaves, 3),
            "right": 0,
        }
        nats = np.repeat(bits, 3) * rows["tokens"] * math.log(2)
        rows |= {"nats": nats, "read": rows["tokens"] + 1 / 3, "steps": math.nan, "depth": math.nan}
        return Losses([pd.DataFrame(rows)], np.full(4, tokens.sum() / 4))

    reading = Reading({"document": losses(own), "segment": losses(reset), "state": losses(states)}, forgotten=0.2)
    config = AutoConfig.for_model("block_recurrent", num_hidden_layers=STEPS, window_size=16, num_state_vectors=8)
    table = recurrence_table(config, reading, Corpus(2 * (tokens + 1), tokens + 1, (tokens + 1) // 4), 64)
    return {"distribution": "as in training", **table, **changes}


def make_document_results(**changes):
    fields = {
        **{
            "task": "text-generation",
            "metric": "bits_per_byte",
            "data": {"name": "long_documents", "config": "python"},
        },
        "model": {"type": "block_recurrent", "chunks": {"window_size": 16, "num_state_vectors": 8}},
        "splits": {"test": make_document_table()},
        "compared": [
            {"name": "Slide", "parameters": 345_678, "values": {"test": [0.9, 0.82]}, "same_model": False},
        ],
        "example": {"text": "def read("},
    }
    return make_results(fixed=True, **{**fields, **changes})


def write_facts(folder, task="text-classification", text_pair=None, **facts):
    """Write a `results.json` of a run that read a user's own data so."""
    data = {"seed": None, "parameters": facts, "dataset_id": None}
    example = {"text_pair": text_pair}
    write_json(folder / "results.json", make_results(task=task, data=data, example=example, quotes=True))
