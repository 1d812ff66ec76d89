"""Losses of a causal language model on texts, summed while they are read, and the statistics that follow from them.

Shapes: B batch, S tokens, D texts, V token ids.
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
from ..metrics.functional import word_perplexity
from ..models.common.token_targets import NO_TARGET


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
        parts: of each batch, a frame of sums over tokens, by the number of their `text` and by the `octave` of how many
            tokens come before the predicted one (0: one, 1: two or three, ...). Sums are `nats`; `tokens` that are
            predicted, those that are predicted `right`, the `confidence` in the predictions, and the steps of the
            tokens that they are predicted from (`depth`); and tokens `read` with their executed `steps`. Steps are NaN
            for a fixed depth.
        label_counts: (V,) how often each token was to be predicted.
    """

    parts: list[pd.DataFrame] = field(default_factory=list)
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
        read = mask.bool() & (text >= 0)[:, None]
        labels = labels.masked_fill(~read, NO_TARGET)
        predicted = labels != NO_TARGET
        nats = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view_as(labels)
        best, answers = logits.max(-1)
        # the likeliest token's probability from that of the label
        own = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        steps = torch.full_like(nats, torch.nan) if steps is None else steps
        octave = torch.frexp((before[:, None] + mask.cumsum(1)).double()).exponent - 1
        columns = {
            "text": text[:, None].expand_as(labels),
            "octave": octave,
            "nats": torch.where(predicted, nats, 0),
            "tokens": predicted,
            "right": (answers == labels) & predicted,
            "confidence": torch.where(predicted, (best.float() - own.float() - nats).exp(), 0),
            "depth": torch.where(predicted, steps, torch.nan),
            "read": read,
            "steps": steps,
        }
        tokens = pd.DataFrame({name: values[read].double().cpu().numpy() for name, values in columns.items()})
        self.parts.append(tokens.groupby(["text", "octave"]).sum(min_count=1))
        self.label_counts += np.bincount(labels[predicted].cpu().numpy(), minlength=logits.shape[-1])

    def of_all(self) -> "Losses":
        """The losses of all processes, each of which has read some texts.

        Raises:
            ValueError: nothing was to be predicted.
        """
        found = of_all(self)
        whole = Losses([part for each in found for part in each.parts], sum(each.label_counts for each in found))
        if not whole.parts or not whole.num_tokens:
            raise ValueError("no token was to be predicted: pass texts of two tokens or more")
        return whole

    @cached_property
    def texts(self) -> pd.DataFrame:
        """The sums of each text (D), by its number."""
        texts = pd.concat(self.parts).groupby("text").sum(min_count=1)
        return texts.set_axis(texts.index.astype(int))

    @cached_property
    def positions(self) -> pd.DataFrame:
        """A row for each octave of positions: `first` and `last`, `tokens`, `bits_per_token` and `mean_steps`."""
        sums = pd.concat(self.parts).groupby("octave").sum(min_count=1)
        sums = sums[sums["tokens"] > 0]
        first = 2 ** sums.index.astype(int)
        places = pd.DataFrame({"first": first, "last": 2 * first - 1, "tokens": sums["tokens"].astype(int)})
        bits, steps = sums["nats"] / sums["tokens"] / np.log(2), sums["depth"] / sums["tokens"]
        return places.assign(bits_per_token=bits, mean_steps=steps)

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
