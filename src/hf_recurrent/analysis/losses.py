"""Losses of a causal language model on texts, summed while they are read, and the statistics that follow from them.

Shapes: B batch, S tokens, D texts, P bins of positions, V token ids.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from ..inference.processes import of_all
from ..metrics.functional import position_edges, position_rows, position_sums, word_perplexity
from ..models.common.token_targets import NO_TARGET

# bins of positions, the same for all texts, so that sums of any add up
EDGES = position_edges(2**40)


class Corpus(NamedTuple):
    """Sizes of each text of a split: bytes, tokens, and words where a perplexity by words means something.

    `token_bytes` are the bytes of each token id, where a token has always the same.
    """

    num_bytes: np.ndarray
    num_tokens: np.ndarray
    num_words: np.ndarray | None = None
    token_bytes: np.ndarray | None = None


@dataclass
class Losses:
    """Losses on texts that are read in one piece or segment by segment, in nats.

    Fields:
        parts: of each batch, a frame with a row for each text in it: its number (the index), and sums over its tokens:
            `nats`, `tokens` that are predicted, and how many of these are predicted `right`; the `confidence` in the
            predictions; tokens `read`, and their executed `steps` (NaN for a fixed depth).
        positions: (3, P) nats, predicted tokens, and steps of the tokens from which they are predicted, by how many
            tokens of the text come before the predicted one, in bins between `EDGES`.
        label_counts: (V,) how often each token was to be predicted.
    """

    parts: list[pd.DataFrame] = field(default_factory=list)
    positions: np.ndarray = field(default_factory=lambda: np.zeros((3, len(EDGES) - 1)))
    label_counts: Any = 0

    def add(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        mask: torch.Tensor,
        text: torch.Tensor,
        before: torch.Tensor,
        steps: torch.Tensor | None,
    ) -> None:
        """Count a batch.

        Args:
            logits: (B, S, V) of the token after each.
            labels: (B, S) the token after each; -100 where nothing is to be predicted.
            mask: (B, S) True at tokens, which are padded on either side.
            text: (B,) numbers of the texts; -1 of a row without a text.
            before: (B,) tokens of each text in the segments before.
            steps: (B, S) executed at each token; None for a fixed depth.
        """
        known, mask = text >= 0, mask.bool()
        labels = labels.masked_fill(~known[:, None], NO_TARGET)
        nats = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view_as(labels)
        best, answers = logits.max(-1)
        # the likeliest token's probability from that of the label
        own = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        predicted = labels != NO_TARGET
        by_token = {
            "nats": torch.where(predicted, nats, 0).double(),
            "tokens": predicted,
            "right": (answers == labels) & predicted,
            "confidence": torch.where(predicted, (best.float() - own.float() - nats).exp(), 0).double(),
            "read": mask,
            "steps": torch.full_like(nats, torch.nan) if steps is None else torch.where(mask, steps, 0),
        }
        rows = {name: values.sum(1)[known].cpu().numpy() for name, values in by_token.items()}
        self.parts.append(pd.DataFrame(rows, index=text[known].cpu().numpy()))
        place = (before[:, None] + mask.cumsum(1))[predicted].cpu().numpy()
        taken = torch.zeros_like(nats) if steps is None else steps
        sums, counts = position_sums(by_token["nats"][predicted].cpu().numpy(), place, EDGES)
        self.positions += [sums, counts, position_sums(taken[predicted].double().cpu().numpy(), place, EDGES)[0]]
        self.label_counts += np.bincount(labels[predicted].cpu().numpy(), minlength=logits.shape[-1])

    def of_all(self) -> "Losses":
        """The losses of all processes, each of which has read some texts.

        Raises:
            ValueError: nothing was to be predicted.
        """
        found = of_all(self)
        whole = Losses(
            [part for each in found for part in each.parts],
            np.sum([each.positions for each in found], axis=0),
            sum(each.label_counts for each in found),
        )
        if not whole.parts or not whole.num_tokens:
            raise ValueError("no token was to be predicted: pass texts of two tokens or more")
        return whole

    @cached_property
    def texts(self) -> pd.DataFrame:
        """The sums of each text (D), by its number."""
        return pd.concat(self.parts).groupby(level=0).sum(min_count=1)

    @property
    def num_tokens(self) -> int:
        """Predicted tokens of all texts."""
        return int(self.texts["tokens"].sum())

    @property
    def bits_per_token(self) -> float:
        """Mean over the predicted tokens of all texts; 2 to this power is the perplexity."""
        return float(self.texts["nats"].sum() / self.num_tokens / math.log(2))

    @property
    def mean_steps(self) -> float:
        """Mean depth steps of a token; NaN for a fixed depth."""
        return float(self.texts["steps"].sum(skipna=False) / self.texts["read"].sum())

    @property
    def constant_bits_per_token(self) -> float:
        """Bits of the best constant prediction: the entropy of the predicted tokens' frequencies."""
        shares = self.label_counts[self.label_counts > 0] / self.num_tokens
        return float(-(shares * np.log2(shares)).sum())

    @property
    def by_position(self) -> list[dict[str, float | int]]:
        """`position_rows` of the tokens, from the beginning of the texts on, with `mean_steps`."""
        rows = position_rows(*self.positions[:2], EDGES)
        halts = not math.isnan(self.mean_steps)
        means = (taken / count for _, count, taken in self.positions.T if count)
        return [{**row, "mean_steps": float(mean) if halts else None} for row, mean in zip(rows, means, strict=True)]

    def table(self, corpus: Corpus | None) -> dict[str, Any]:
        """The statistics of all texts.

        `documents`, `tokens` and `bytes` count predictions, `tokens_read` all tokens that were read; `all_predicted` is
        whether every token but each text's first was predicted, `exact_bytes` whether bytes are counted token by token
        (else a text's bytes count by the fraction of its tokens that was predicted). `constant_bits_per_token` and
        `_byte` are those of the best constant prediction. Without a `corpus`, numbers by byte or word are NaN or None.
        """
        texts = self.texts
        read_bytes = None if corpus is None else self.predicted_bytes(corpus)[0]
        # end-of-text tokens alone have no byte
        by_byte = self.num_tokens / read_bytes if read_bytes else math.nan
        perplexity = None
        if corpus is not None and corpus.num_words is not None:
            read = texts.index[texts["tokens"] > 0]
            if words := corpus.num_words[read].sum():
                perplexity = word_perplexity(self.bits_per_token, corpus.num_tokens[read].sum(), words)
        bits, constant = self.bits_per_token, self.constant_bits_per_token
        return {
            "documents": int((texts["tokens"] > 0).sum()),
            "tokens": self.num_tokens,
            "tokens_read": int(texts["read"].sum()),
            "all_predicted": bool((texts["tokens"] == (texts["read"] - 1).clip(0)).all()),
            "bytes": read_bytes,
            "exact_bytes": corpus is not None and corpus.token_bytes is not None,
            "bits_per_token": bits,
            "bits_per_byte": bits * by_byte,
            "word_perplexity": perplexity,
            "constant_bits_per_token": constant,
            "constant_bits_per_byte": constant * by_byte,
            "mean_steps": self.mean_steps,
        }

    def predicted_bytes(self, corpus: Corpus) -> tuple[float, pd.Series]:
        """Bytes of the predicted tokens of all texts, and of each text.

        They are counted where that is possible. Otherwise p predicted tokens of a text of n tokens have the share p / n
        of its bytes.
        """
        tokens = self.texts["tokens"]
        shares = tokens * corpus.num_bytes[tokens.index] / np.maximum(corpus.num_tokens[tokens.index], 1)
        total = estimated = float(shares.sum())
        if corpus.token_bytes is not None:
            known = self.label_counts[: len(corpus.token_bytes)]
            total = float(known @ corpus.token_bytes[: len(known)])
        return total, shares * (total / estimated if estimated else 1.0)
