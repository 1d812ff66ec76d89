"""What a causal language model answers token by token, and how deep it goes at which tokens.

Shapes: B rows, S tokens, V words, N rows of a whole evaluation, K kinds of tokens, L the most depth steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from .buckets import bucketize

IGNORED = -100


class TokenKinds(NamedTuple):
    """Kinds that a benchmark tells its tokens apart by: K `names`, and what gives each token of (B, S) ids its kind.

    `of` returns numbers of kinds (B, S); what is below 0, such as padding, is of none.
    """

    names: tuple[str, ...]
    of: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class TokenRecord:
    """Per-token results of a language model. Step fields are None for a model of fixed depth.

    Fields:
        labelled: `(N,)` tokens of each row that have a label.
        right: `(N,)` how many of these were predicted.
        answer_steps: `(N,)` executed depth steps of the token from which the row's last labelled token is predicted.
        position_counts: `(S, L + 1)` how many tokens at each position stopped after 0, ..., L steps.
        kind_counts: `(K, L + 1)` the same for each kind of token; None where kinds are not told apart.
        kind_names: K names.
    """

    labelled: np.ndarray
    right: np.ndarray
    answer_steps: np.ndarray | None = None
    position_counts: np.ndarray | None = None
    kind_counts: np.ndarray | None = None
    kind_names: tuple[str, ...] = ()


class TokenCounts:
    """Sums the step counts of `TokenRecord` over batches."""

    def __init__(self, depth: int, kinds: TokenKinds | None):
        self.depth = depth
        self.kinds = kinds
        self.positions = np.zeros((0, depth + 1), dtype=np.int64)
        self.by_kind = None if kinds is None else np.zeros((len(kinds.names), depth + 1), dtype=np.int64)

    def add(self, input_ids: np.ndarray, steps: np.ndarray) -> None:
        """Count a batch: ids and executed steps (B, S), negative at padding."""
        live = steps >= 0
        # positions of a row count from its first token, wherever its padding is
        position = live.cumsum(1) - 1
        missing = max(0, steps.shape[1] - len(self.positions))
        self.positions = np.pad(self.positions, ((0, missing), (0, 0)))
        self.positions += count_steps(position[live], steps[live], self.positions.shape)
        if self.kinds is not None:
            kind = self.kinds.of(input_ids)
            counted = live & (kind >= 0)
            self.by_kind += count_steps(kind[counted], steps[counted], self.by_kind.shape)


def count_steps(group: np.ndarray, steps: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Groups and steps `(U,)` of U tokens -> counts `shape` = (groups, L + 1)."""
    return np.bincount(group * shape[1] + steps, minlength=shape[0] * shape[1]).reshape(shape)


def is_language_model(output: Any) -> bool:
    """Whether a model's output predicts tokens: logits (B, S, V) rather than (B, C)."""
    logits = getattr(output, "logits", None)
    return logits is not None and logits.dim() == 3


def token_answers(logits: torch.Tensor, labels: np.ndarray) -> dict[str, np.ndarray]:
    """How the labelled tokens of rows were predicted, as columns of one value per row.

    Args:
        logits: (B, S, V); those of a token predict the next one.
        labels: (B, S) token ids where a prediction counts, -100 elsewhere; the first token is not predicted.

    Returns:
        `labels` and `predictions`, token ids of each row's last labelled token; `answer_at`, the position from which
        that one is predicted; `labelled` and `right`, how many tokens have a label, and of how many it was predicted.

    Raises:
        ValueError: a row has no label to predict, or labels have another shape.
    """
    if labels.shape != tuple(logits.shape[:2]):
        raise ValueError(f"labels have shape {labels.shape}, but logits are of {tuple(logits.shape[:2])} tokens")
    predicted, wanted = logits[:, :-1].argmax(-1).cpu().numpy(), labels[:, 1:]
    labelled = wanted != IGNORED
    if not labelled.any(1).all():
        raise ValueError(f"row {int(labelled.any(1).argmin())} of a batch has no label after its first token")
    last = labelled.shape[1] - 1 - labelled[:, ::-1].argmax(1)
    rows = np.arange(len(last))
    return {
        "labels": wanted[rows, last],
        "predictions": predicted[rows, last],
        "answer_at": last,
        "labelled": labelled.sum(1),
        "right": ((predicted == wanted) & labelled).sum(1),
    }


def steps_of_counts(counts: np.ndarray) -> dict[str, float]:
    """`mean`, `median`, `p95` and `max` depth steps of tokens, from their counts `(L + 1,)`."""
    steps = np.repeat(np.arange(len(counts)), counts)
    return {
        "mean": steps.mean(),
        "median": np.median(steps),
        "p95": np.quantile(steps, 0.95),
        "max": steps.max(),
    }


def token_tables(record: TokenRecord) -> dict[str, dict[str, Any]]:
    """How deep the model goes: `position`, and `kind` if kinds are told apart, each with `rows` as slices have them.

    A row holds `value` (label), `low` and `high` (positions, or None), `n` tokens, `steps` and `forced_halt_rate`.
    """
    positions = np.arange(len(record.position_counts))
    index, labels, _ = bucketize(positions)
    groups = [index == bucket for bucket in range(len(labels))]
    tables = {
        "position": {
            "numeric": True,
            "rows": [
                token_row(label, record.position_counts[group].sum(0), positions[group].min(), positions[group].max())
                for label, group in zip(labels, groups, strict=True)
            ],
        }
    }
    if record.kind_counts is not None:
        found = zip(record.kind_names, record.kind_counts, strict=True)
        rows = [token_row(name, counts) for name, counts in found if counts.any()]
        tables["kind"] = {"numeric": False, "rows": rows}
    return tables


def token_row(label: str, counts: np.ndarray, low: int | None = None, high: int | None = None) -> dict[str, Any]:
    total = counts.sum()
    return {
        "value": label,
        "low": low,
        "high": high,
        "n": total,
        "steps": steps_of_counts(counts),
        "forced_halt_rate": counts[-1] / total,
    }
