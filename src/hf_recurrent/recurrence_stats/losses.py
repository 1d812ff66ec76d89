"""Losses of long documents, summed as they are read: by document, and by position in the document.

Shapes: B rows, N tokens a segment, D documents, P bins of positions, V token ids.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..metrics.functional import position_edges, position_rows, position_sums

# the same for all documents, so that sums of any add up
EDGES = position_edges(2**40)


@dataclass(frozen=True)
class DocumentLosses:
    """What a model predicted of documents, in nats.

    Fields:
        nats: `(D,)` summed over each document's predicted tokens; documents are those of the corpus, by their index.
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
    def num_documents(self) -> int:
        """Documents of which something was predicted."""
        return int((self.tokens > 0).sum())

    @property
    def bits_per_token(self) -> float:
        """Mean over the predicted tokens of all documents; 2 to this power is the perplexity."""
        return float(self.nats.sum() / self.num_tokens / math.log(2))

    @property
    def constant_bits_per_token(self) -> float:
        """What the best constant prediction would need: the entropy of the predicted tokens' frequencies."""
        shares = self.label_counts[self.label_counts > 0] / self.num_tokens
        return float(-(shares * np.log2(shares)).sum())

    @property
    def mean_steps(self) -> float | None:
        """Depth steps that a token took; None for a fixed depth."""
        return None if math.isnan(self.steps) else float(self.steps / self.read.sum())

    def predicted_units(self, units: Sequence[int], num_tokens: Sequence[int] | None = None) -> float:
        """How many bytes (or characters) the predicted tokens stand for.

        Of a document with `units[d]` bytes in `num_tokens[d]` tokens, p predicted tokens count as their share
        p / num_tokens[d] of the bytes: exact where each token is a byte, and for documents predicted as a whole.

        Args:
            units: of each document of the corpus.
            num_tokens: of each document; None: the tokens read, which is right where documents were read to their end.

        Raises:
            ValueError: another number of documents, or fewer tokens than were read.
        """
        units = np.asarray(units, dtype=np.float64)
        total = self.read if num_tokens is None else np.asarray(num_tokens)[: len(self.read)]
        if len(units) < len(self.read) or len(total) < len(self.read):
            raise ValueError(
                f"there are {len(units)} documents with a size, but document {len(self.read) - 1} was read: pass one "
                "number for each document of the corpus"
            )
        if (total < self.read).any():
            place = int((total < self.read).argmax())
            raise ValueError(f"num_tokens[{place}] is {total[place]}, but {self.read[place]} of them were read")
        known = total > 0
        return float((units[: len(total)][known] * self.tokens[known] / total[known]).sum())

    def bits_per_unit(self, units: Sequence[int], num_tokens: Sequence[int] | None = None) -> float:
        """Bits per byte (or character), with the predicted tokens' bytes as `predicted_units` counts them."""
        return float(self.nats.sum() / math.log(2) / self.predicted_units(units, num_tokens))

    def by_position(self) -> list[dict[str, float | int]]:
        """`position_rows` of the tokens, from the document's beginning on."""
        return position_rows(self.position_nats, self.position_tokens, EDGES)


class LossSums:
    """Adds up the losses of segments; what it keeps grows with the number of documents, not with their length."""

    def __init__(self, vocab_size: int):
        self.num_documents = 0
        self.documents = {name: np.zeros(0) for name in ("nats", "tokens", "read")}
        self.positions = np.zeros((2, len(EDGES) - 1))
        self.label_counts = np.zeros(vocab_size, dtype=np.int64)
        self.steps = math.nan

    def add(
        self,
        nats: np.ndarray,
        labels: np.ndarray,
        mask: np.ndarray,
        document: np.ndarray,
        position: np.ndarray,
        steps: np.ndarray | None = None,
    ) -> None:
        """Add a segment: `nats`, `labels` (-100: nothing to predict) and `mask` (B, N) of tokens, `document` (B,) their
        index (-1: none), `position` (B,) tokens of it read before, `steps` (B, N) executed at each token.
        """
        labelled, mask = (labels >= 0) & (document >= 0)[:, None], mask.astype(bool)
        nats = np.where(labelled, nats, 0.0).astype(np.float64)
        self._grow(int(document.max(initial=-1)) + 1)
        rows = document >= 0
        columns = {"nats": nats, "tokens": labelled, "read": mask}
        for name, values in columns.items():
            np.add.at(self.documents[name], document[rows], values.sum(axis=1)[rows])
        # tokens before the one to be predicted: those read before this segment, and those of it so far
        before = position[:, None] + mask.cumsum(axis=1)
        self.positions += position_sums(nats[labelled], before[labelled], EDGES)
        self.label_counts += np.bincount(labels[labelled], minlength=len(self.label_counts))
        if steps is not None:
            self.steps = (0.0 if math.isnan(self.steps) else self.steps) + float(steps[mask].sum())

    def total(self) -> DocumentLosses:
        """All that was added.

        Raises:
            ValueError: no token was to be predicted.
        """
        if not self.documents["tokens"].sum():
            raise ValueError("no token was to be predicted: the segments hold no document of two tokens or more")
        documents = {name: values[: self.num_documents] for name, values in self.documents.items()}
        position_nats, position_tokens = self.positions
        return DocumentLosses(
            nats=documents["nats"].copy(),
            tokens=documents["tokens"].astype(np.int64),
            read=documents["read"].astype(np.int64),
            position_nats=position_nats.copy(),
            position_tokens=position_tokens.astype(np.int64),
            label_counts=self.label_counts.copy(),
            steps=self.steps,
        )

    def _grow(self, documents: int) -> None:
        self.num_documents = max(self.num_documents, documents)
        for name, values in self.documents.items():
            if len(values) < documents:
                self.documents[name] = np.pad(values, (0, max(documents, 2 * len(values)) - len(values)))


def merge(parts: Sequence[DocumentLosses]) -> DocumentLosses:
    """What several processes predicted, each of its own documents of one corpus."""
    sums = {}
    for field in fields(DocumentLosses):
        values = [getattr(part, field.name) for part in parts]
        if field.name == "steps":
            sums["steps"] = float(sum(values))
            continue
        longest = max(map(len, values))
        sums[field.name] = sum(np.pad(value, (0, longest - len(value))) for value in values)
    return DocumentLosses(**sums)


def mean_difference(first: DocumentLosses, second: DocumentLosses) -> tuple[float, float | None]:
    """How many bits a token `second` needs more than `first` on the same tokens, and the standard error of that.

    The error is that of a ratio over D documents, sqrt(D / (D - 1) sum_d (x_d - m n_d)^2) / sum_d n_d, with the bits
    x_d that document d needs more, its n_d tokens and the mean m; None for a single document.

    Raises:
        ValueError: other tokens were predicted.
    """
    if not np.array_equal(first.tokens, second.tokens):
        raise ValueError("the two losses are of different tokens: take both from one pass")
    counted = first.tokens > 0
    tokens = first.tokens[counted]
    more = (second.nats - first.nats)[counted] / math.log(2)
    mean, documents = more.sum() / tokens.sum(), len(tokens)
    if documents < 2:
        return float(mean), None
    spread = ((more - mean * tokens) ** 2).sum() * documents / (documents - 1)
    return float(mean), float(math.sqrt(spread) / tokens.sum())
