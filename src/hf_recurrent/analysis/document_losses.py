"""Losses of long documents and gates of a recurrent state, summed segment by segment in constant memory.

Shapes: B batch, N tokens a segment, D documents, P bins of positions, V token ids; K blocks a segment, W tokens a
block, S state vectors, E width, U = S x E units of a state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from ..metrics.functional import position_edges, position_rows, position_sums

# the same for all documents, so that sums of any add up
EDGES = position_edges(2**40)
# smallest fraction that is kept: its logarithm is finite, and a float32 cannot tell it from 0 after 1 - x
MIN_KEPT = 1e-7


@dataclass(frozen=True)
class DocumentLosses:
    """Losses of a language model over documents, in nats.

    Fields:
        nats: `(D,)` summed over each document's predicted tokens; documents are numbered as in the corpus.
        tokens: `(D,)` predicted tokens of each document.
        read: `(D,)` tokens of each document that were read.
        position_nats, position_tokens: `(P,)` the same sums by how many tokens of the document stand before the
            predicted one, in bins between `EDGES`.
        label_counts: `(V,)` how often each token was to be predicted.
        steps: executed depth steps, summed over all tokens read; NaN for a fixed depth.
    """

    nats: np.ndarray
    tokens: np.ndarray
    read: np.ndarray
    position_nats: np.ndarray
    position_tokens: np.ndarray
    label_counts: np.ndarray
    steps: float = math.nan

    @property
    def num_tokens(self) -> int:
        """Predicted tokens of all documents."""
        return int(self.tokens.sum())

    @property
    def bits_per_token(self) -> float:
        """Mean over the predicted tokens of all documents; 2 to this power is the perplexity."""
        return float(self.nats.sum() / self.num_tokens / math.log(2))

    @property
    def constant_bits_per_token(self) -> float:
        """Bits of the best constant prediction: the entropy of the predicted tokens' frequencies."""
        shares = self.label_counts[self.label_counts > 0] / self.num_tokens
        return float(-(shares * np.log2(shares)).sum())

    @property
    def mean_steps(self) -> float | None:
        """Mean depth steps of a token; None for a fixed depth."""
        return None if math.isnan(self.steps) else float(self.steps / self.read.sum())

    def by_position(self) -> list[dict[str, float | int]]:
        """`position_rows` of the tokens, from the document's beginning on."""
        return position_rows(self.position_nats, self.position_tokens, EDGES)


def segment_losses(
    nats: np.ndarray,
    labels: np.ndarray,
    mask: np.ndarray,
    document: np.ndarray,
    position: np.ndarray,
    vocab_size: int,
    steps: np.ndarray | None = None,
) -> DocumentLosses:
    """Losses of one segment, which those of the next are merged with.

    Args:
        nats, labels, mask: (B, N) cross-entropies, token ids (-100: nothing to predict), and which are no padding.
        document, position: (B,) the document's number (-1: none), and its tokens in the segments before.
        steps: (B, N) executed at each token; None for a fixed depth.
    """
    known, mask = document >= 0, mask.astype(bool)
    labelled = (labels >= 0) & known[:, None]
    nats = np.where(labelled, nats, 0.0).astype(np.float64)
    by_document = [np.bincount(document[known], weights=values.sum(axis=1)[known]) for values in (nats, labelled, mask)]
    # tokens before the one to be predicted: those of the segments before, and those of this segment so far
    before = position[:, None] + mask.cumsum(axis=1)
    return DocumentLosses(
        by_document[0],
        *(counts.astype(np.int64) for counts in by_document[1:]),
        *position_sums(nats[labelled], before[labelled], EDGES),
        np.bincount(labels[labelled], minlength=vocab_size),
        math.nan if steps is None else float(steps[mask].sum()),
    )


def merge_losses(parts: Sequence[DocumentLosses]) -> DocumentLosses:
    """Sums over segments, or over processes that read documents of one corpus."""

    def total(arrays: list[np.ndarray]) -> np.ndarray:
        longest = max(map(len, arrays))
        return sum(np.pad(array, (0, longest - len(array))) for array in arrays)

    *arrays, steps = zip(
        *([getattr(part, field.name) for field in fields(DocumentLosses)] for part in parts), strict=True
    )
    return DocumentLosses(*map(total, arrays), float(sum(steps)))


def mean_difference(first: DocumentLosses, second: DocumentLosses) -> tuple[float, float | None]:
    """Bits a token that `second` needs more than `first` on the same tokens, and the standard error of that.

    The error is that of a ratio over D documents, sqrt(D / (D - 1) sum_d (x_d - m n_d)^2) / sum_d n_d, with the bits
    x_d that document d needs more, its n_d tokens and the mean m; None for a single document.
    """
    counted = first.tokens > 0
    tokens = first.tokens[counted]
    more = (second.nats - first.nats)[counted] / math.log(2)
    mean, documents = more.sum() / tokens.sum(), len(tokens)
    if documents < 2:
        return float(mean), None
    variance = ((more - mean * tokens) ** 2).sum() * documents / (documents - 1)
    return float(mean), float(math.sqrt(variance) / tokens.sum())


@dataclass
class GateSums:
    """Gates of a recurrent state, summed over all its updates.

    Fields:
        openness: `(U,)` fraction of each unit that an update forgets, from 0 to 1.
        log_kept: `(U,)` logarithm of the fraction that it keeps.
        updates: number of updates.
    """

    openness: Any = 0.0
    log_kept: Any = 0.0
    updates: int = 0

    def add(self, gates: Sequence[torch.Tensor], complete: torch.Tensor) -> None:
        """Add the gates of a segment: (B, S, E) for each completed block, the fraction that its update forgets.

        Args:
            complete: (B, K) bool, blocks that hold nothing but tokens; others do not count.
        """
        completed = int(complete.any(0).sum())
        for gate, counted in zip(gates, complete[:, :completed].T, strict=True):
            forgotten = gate[counted].double().flatten(1)
            if len(forgotten):
                self.openness = self.openness + forgotten.sum(0)
                self.log_kept = self.log_kept + (1 - forgotten).clamp_min(MIN_KEPT).log().sum(0)
                self.updates += len(forgotten)

    @classmethod
    def merged(cls, parts: Sequence["GateSums"]) -> "GateSums | None":
        """The sums over all processes, as arrays; None where no block was complete."""
        parts = [part for part in parts if part.updates]
        if not parts:
            return None
        sums = (sum(getattr(part, name).cpu().numpy() for part in parts) for name in ("openness", "log_kept"))
        return cls(*sums, sum(part.updates for part in parts))


def complete_blocks(attention_mask: torch.Tensor, position: torch.Tensor, window_size: int) -> torch.Tensor:
    """Blocks of a segment that are filled with tokens: (B, N) and (B,) -> (B, N / W) bool.

    Args:
        position: tokens of the document read before the segment, in whole blocks.
    """
    blocks = attention_mask.unfold(1, window_size, window_size).bool().all(-1)
    return blocks & (position % window_size == 0)[:, None]
