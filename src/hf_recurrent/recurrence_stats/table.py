"""`RecurrenceRecord` -> a JSON table: bits per token and byte, what the state is for, loss by position, gates."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..metrics.functional import word_perplexity
from ..metrics.serialize import plain, write_json
from .gates import GateRecord
from .losses import DocumentLosses, mean_difference
from .record import DOCUMENT, RecurrenceRecord

RECURRENCE_FILE = "recurrence_stats.json"
GATE_BINS = 20
DECILES = np.arange(10, 100, 10)


class Corpus(NamedTuple):
    """Sizes of each document of a split: bytes, tokens, and words where a perplexity by words means something.

    `token_bytes` are the bytes of each token id, where a token has always the same.
    """

    num_bytes: np.ndarray
    num_tokens: np.ndarray
    num_words: np.ndarray | None = None
    token_bytes: np.ndarray | None = None


def recurrence_table(record: RecurrenceRecord, corpus: Corpus | None = None) -> dict[str, Any]:
    """Everything that a card says about one split of long documents, as plain Python data without NaN.

    `documents`, `tokens` and `bytes` count what was predicted, `tokens_read` all that was read, and `all_predicted`
    says whether that was every token but each document's first; `exact_bytes` whether bytes are counted token by token
    (else a document's count by the share of its tokens that was predicted). `bits_per_token`, `bits_per_byte` and
    `word_perplexity` are of the documents as they are read, and `constant_bits_per_token` and `_byte` of the best
    constant prediction on the same tokens. Without a `corpus`, what is by byte or word is None.

    `carries` has a row for each way of reading: what is carried, its bits, how many bits a token it needs more than
    with the document carried (`difference`), and the `standard_error` of that over documents. `by_position` has a row
    for each bin of positions; `gates` is None for a model without gated state vectors.

    Raises:
        ValueError: the record has no losses with the document carried, or `corpus` does not fit it.
    """
    if DOCUMENT not in record.losses:
        raise ValueError(f"the record has losses of {', '.join(record.losses)}: carry the {DOCUMENT!r} too")
    losses = record.losses[DOCUMENT]
    read_bytes = None if corpus is None else predicted_bytes(losses, corpus)
    by_byte = None if corpus is None else losses.num_tokens / read_bytes
    return plain(
        {
            "documents": losses.num_documents,
            "tokens": losses.num_tokens,
            "tokens_read": int(losses.read.sum()),
            "all_predicted": bool((losses.tokens == np.maximum(losses.read - 1, 0)).all()),
            "bytes": read_bytes,
            "exact_bytes": corpus is not None and corpus.token_bytes is not None,
            "bits_per_token": losses.bits_per_token,
            "bits_per_byte": _times(losses.bits_per_token, by_byte),
            "word_perplexity": _word_perplexity(losses, corpus),
            "constant_bits_per_token": losses.constant_bits_per_token,
            "constant_bits_per_byte": _times(losses.constant_bits_per_token, by_byte),
            "fixed_depth": record.halting == "none",
            "halting": record.halting,
            "max_steps": record.max_steps,
            "mean_steps": losses.mean_steps,
            "segment_length": record.segment_length,
            "carries": [_carry_row(record, carry, by_byte) for carry in record.losses],
            "by_position": _position_rows(record),
            "gates": None if record.gates is None else gate_table(record.gates, record.window_size),
        }
    )


def predicted_bytes(losses: DocumentLosses, corpus: Corpus) -> float:
    """Bytes that the predicted tokens stand for: counted where that is possible, else as `predicted_units` has it."""
    if corpus.token_bytes is None:
        return losses.predicted_units(corpus.num_bytes, corpus.num_tokens)
    known = losses.label_counts[: len(corpus.token_bytes)]
    return float(known @ np.asarray(corpus.token_bytes, dtype=np.float64)[: len(known)])


def _times(value: float, factor: float | None) -> float | None:
    return None if factor is None else value * factor


def _word_perplexity(losses: DocumentLosses, corpus: Corpus | None) -> float | None:
    """Over the documents that were read; None where nothing is known of words, or there are none."""
    if corpus is None or corpus.num_words is None:
        return None
    read = np.flatnonzero(losses.tokens)
    words = np.asarray(corpus.num_words)[read].sum()
    if not words:
        return None
    return word_perplexity(losses.bits_per_token, np.asarray(corpus.num_tokens)[read].sum(), words)


def _carry_row(record: RecurrenceRecord, carry: str, by_byte: float | None) -> dict[str, Any]:
    losses = record.losses[carry]
    difference, error = (None, None) if carry == DOCUMENT else mean_difference(record.losses[DOCUMENT], losses)
    return {
        "carry": carry,
        "bits_per_token": losses.bits_per_token,
        "bits_per_byte": _times(losses.bits_per_token, by_byte),
        "difference": difference,
        "standard_error": error,
    }


def _position_rows(record: RecurrenceRecord) -> list[dict[str, Any]]:
    bins = {carry: losses.by_position() for carry, losses in record.losses.items()}
    return [
        {
            "first": rows[0]["first"],
            "last": rows[0]["last"],
            "tokens": rows[0]["n"],
            "bits_per_token": {carry: row["bits_per_token"] for carry, row in zip(bins, rows, strict=True)},
        }
        for rows in zip(*bins.values(), strict=True)
    ]


def gate_table(gates: GateRecord, window_size: int) -> dict[str, Any]:
    """How far gates are open, over the units of a state, and after how many blocks and tokens half is forgotten.

    `deciles` are the nine between the tenths of the units, `histogram` counts units in 20 bins from 0 to 1.
    `half_life_blocks` has the first, fifth and last of the nine as `p10`, `median` and `p90`; None is never.
    """
    half_life = gates.half_life
    places = {"p10": 10, "median": 50, "p90": 90}
    # a percentile between two units may be one of them, infinite ones included
    found = {name: float(np.percentile(half_life, place, method="lower")) for name, place in places.items()}
    return {
        "mean": gates.openness.mean(),
        "deciles": np.percentile(gates.openness, DECILES),
        "histogram": np.histogram(gates.openness, bins=GATE_BINS, range=(0.0, 1.0))[0],
        "units": len(gates.openness),
        "updates": gates.updates,
        "window_size": window_size,
        "half_life_blocks": found,
        "half_life_tokens": {name: blocks * window_size for name, blocks in found.items()},
    }


def effect(row: Mapping[str, Any]) -> str:
    """What it does for a model to carry what a row of `carries` leaves behind.

    It "helps" or "hurts" where reading without it needs more, or fewer, bits by over two standard errors; else that is
    "unclear", and "untested" where a single document leaves no error to compare with.
    """
    difference, error = row["difference"], row["standard_error"]
    if error is None:
        return "untested"
    if abs(difference) <= 2 * error:
        return "unclear"
    return "helps" if difference > 0 else "hurts"


def write_recurrence_stats(folder: str | os.PathLike, tables: Mapping[str, Any]) -> Path:
    """Write `{"splits": tables}`, split -> table, to `folder`/recurrence_stats.json in one step."""
    return write_json(Path(folder) / RECURRENCE_FILE, {"splits": tables})
