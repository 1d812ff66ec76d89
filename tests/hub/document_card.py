"""Card data of a model of long documents, made of losses that are told."""

import math

import numpy as np
import pandas as pd
from card_factory import STEPS, make_card

from hf_recurrent.analysis.losses import Corpus, Losses
from hf_recurrent.analysis.recurrence import RecurrenceRecord, recurrence_table
from hf_recurrent.hub.card import Benchmark, Compared, Example, SplitResult

TOKENS = np.array([1000, 1000, 1000])
SEGMENT_LENGTH = 64


def make_losses(bits, steps=math.nan):
    """Losses of three documents of `bits` a token each; the entropy of their tokens is 2 bits."""
    nats = np.array(bits) * TOKENS * math.log(2)
    shares = np.array([[33, 100, 867], [33, 100, 867], [34, 100, 866]]) / 1000
    rows = {"text": np.repeat(range(len(TOKENS)), 3), "octave": np.tile(range(3), len(TOKENS))}
    sums = {"nats": nats[:, None] * shares, "tokens": TOKENS[:, None] * shares}
    read = np.eye(3)[[0] * len(TOKENS)] + sums["tokens"]
    rows |= {name: values.ravel() for name, values in {**sums, "read": read}.items()}
    parts = pd.DataFrame({**rows, "steps": steps / len(nats) / 3, "depth": math.nan})
    return Losses([parts], np.full(4, TOKENS.sum() / 4))


def make_document_table(own=(1.5, 1.6, 1.7), reset=(1.6, 1.7, 1.8), states=(1.5, 1.6, 1.71), gates=True, **changes):
    """Four bits of a byte a token; three ways of reading, of which `states=None` leaves out one."""
    losses = {"document": make_losses(own), "segment": make_losses(reset)}
    if states is not None:
        losses["state"] = make_losses(states)
    openness = np.linspace(0.1, 0.3, 64)
    record = RecurrenceRecord(
        **{
            "halting": "none",
            "max_depth": STEPS,
            "segment_length": SEGMENT_LENGTH,
            "window_size": 16,
            "losses": losses,
            "gates": 100 * np.stack([np.ones(64), openness, np.log(1 - openness)]) if gates else None,
            **changes,
        }
    )
    tokens = TOKENS + 1
    return recurrence_table(record, Corpus(2 * tokens, tokens, tokens // 4))


def make_document_card(**changes):
    table = changes.pop("table", None) or make_document_table()
    fields = {
        "model_name": "Rec:fixed:skip on the standard library",
        "repo_id": "someone/rec-fixed-skip",
        "family": "block_recurrent",
        "claim": "Predicts source code byte by byte.",
        "task": "text-generation",
        "metric": "bits_per_byte",
        "halting": table["halting"],
        "chunks": {"window_size": 16, "num_state_vectors": 8},
        "benchmark": Benchmark("long_documents", "python", "1.0.0", 164, {"test_share": 0.2}, "someone/documents"),
        "results": [SplitResult("test", table)],
        "compared": [Compared("Slide with one more layer", 345_678, {"test": [0.9, 0.82]})],
        "example": Example("def read("),
    }
    return make_card(fixed=True, **{**fields, **changes})
