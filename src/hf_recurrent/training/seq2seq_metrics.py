"""What `Trainer` reports at an evaluation of a model that turns a source into a target, from one pass with the target.

A row is right if every token of its target is the likeliest one after the true tokens before it. That is what greedy
decoding gives the row right for: as long as it has made no mistake, it has the true tokens before it. So no token need
be generated to know it. B rows, T target tokens, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

IGNORED = -100
# columns of `row_statistics`; the last ones are there for stacks that halt alone
TARGET_COLUMNS = ("tokens", "nll", "right_tokens", "right")
HALTING_COLUMNS = ("ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost")


def row_statistics(output: Mapping[str, Any], labels: torch.Tensor) -> torch.Tensor:
    """Numbers of each row, (B, 8) in double precision: `TARGET_COLUMNS` and `HALTING_COLUMNS`, NaN where unknown.

    These are the labelled tokens, their negative log-likelihood in nats (sum), how many of them are predicted, whether
    all are, and of decoder and encoder the executed and the expected depth, in steps, means over the row's tokens.

    Args:
        output: a model's output with `logits` (B, T, V), aligned with `labels`.
        labels: (B, T) token ids, -100 where there is none.
    """
    logits = output["logits"]
    labelled = labels != IGNORED
    losses = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(labels)
    hits = (logits.argmax(-1) == labels) & labelled
    tokens = labelled.sum(1)
    columns = [tokens, losses.double().sum(1), hits.sum(1), hits.sum(1) == tokens]
    for name in HALTING_COLUMNS:
        value = output.get(name)
        if value is None:
            columns.append(torch.full_like(tokens, float("nan"), dtype=torch.float64))
        else:
            columns.append(mean_of_row(value))
    return torch.stack([column.double() for column in columns], 1)


def mean_of_row(values: torch.Tensor) -> torch.Tensor:
    """(B,) as they are, or the means of (B, S) steps over each row's tokens, -1 being padding."""
    if values.dim() == 1:
        return values
    live = values >= 0
    return (values * live).sum(1) / live.sum(1).clamp_min(1)


def summarize(statistics: np.ndarray) -> dict[str, float]:
    """Metrics of rows as `row_statistics` tells them, (N, 8).

    `nll` is the mean over tokens in nats, `accuracy` the share of rows that greedy decoding gets right, and
    `token_accuracy` that of tokens; ponder statistics are means over rows.
    """
    columns = dict(zip((*TARGET_COLUMNS, *HALTING_COLUMNS), statistics.T, strict=True))
    tokens = columns["tokens"].sum()
    metrics = {
        "nll": columns["nll"].sum() / tokens,
        "accuracy": columns["right"].mean(),
        "token_accuracy": columns["right_tokens"].sum() / tokens,
    }
    metrics |= {name: columns[name].mean() for name in HALTING_COLUMNS if not np.isnan(columns[name]).any()}
    return {name: float(value) for name, value in metrics.items()}


def compute_seq2seq_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`summarize` of what the trainer kept of each row."""
    return summarize(prediction.predictions)
