"""Losses of causal language models on texts: long documents, with and without the state that is carried from segment to
segment, and blocks or documents that are read in one piece.

Shapes: B batch, N tokens a segment, D texts, V token ids, S state vectors, E width.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy, pad

from ..benchmarks.tokenizers import token_num_bytes
from ..data.segments import DocumentReader, Segment, encode_documents
from ..deploy.processes import dealt, of_all, share
from ..metrics.functional import word_perplexity
from ..models.ops.losses import NO_TARGET
from ..models.ops.modes import inference_mode
from ..utils import plain
from .evaluate import progress_bar
from .halting import slice_table, stopping_rule

if TYPE_CHECKING:
    from datasets import Dataset

# carried from segment to segment of a document: everything; nothing; everything but the state vectors, which begin
# each segment as they begin a document
DOCUMENT, SEGMENT, STATE = "document", "segment", "state"
CARRIES = (DOCUMENT, SEGMENT, STATE)
# texts that are read in one piece
BLOCKS, DOCUMENTS = "blocks", "documents"
# configurations of the benchmark that hold prose, of which a perplexity by words means something
PROSE = ("pg19", "folder")
# default size of a segment, in windows or chunks, and in tokens where a model has neither
SEGMENT_BLOCKS, SEGMENT_TOKENS = 8, 512
# by whose standard error an effect is decided
FEWEST_DOCUMENTS = 5


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

    def add(self, segment: Segment, logits: torch.Tensor, steps: torch.Tensor | None) -> None:
        """Count a batch.

        Args:
            segment: may be padded on either side.
            logits: (B, N, V) of the token after each.
            steps: (B, N) executed at each token; None for a fixed depth.
        """
        read = segment.attention_mask.bool() & (segment.document >= 0)[:, None]
        labels = segment.labels.masked_fill(~read, NO_TARGET)
        predicted = labels != NO_TARGET
        nats = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none").view_as(labels)
        best, answers = logits.max(-1)
        # the likeliest token's probability from that of the label
        of_label = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        steps = torch.full_like(nats, torch.nan) if steps is None else steps
        before = segment.position[:, None] + segment.attention_mask.cumsum(1)
        columns = {
            "text": segment.document[:, None].expand_as(labels),
            "octave": torch.frexp(before.double()).exponent - 1,
            "nats": torch.where(predicted, nats, 0),
            "tokens": predicted,
            "right": (answers == labels) & predicted,
            "confidence": torch.where(predicted, (best.float() - of_label.float() - nats).exp(), 0),
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

    def predicted_bytes(self, corpus: Corpus) -> tuple[float, pd.Series]:
        """Bytes of the predicted tokens of all texts, and of each text.

        They are counted token by token where that is possible. Otherwise p predicted tokens of a text of n tokens have
        the share p / n of its bytes.
        """
        tokens = self.texts["tokens"]
        shares = tokens * corpus.num_bytes[tokens.index] / np.maximum(corpus.num_tokens[tokens.index], 1)
        if corpus.token_bytes is None:
            return float(shares.sum()), shares
        # a model may have more ids than its tokenizer
        known = self.label_counts[: len(corpus.token_bytes)]
        total = float(known @ corpus.token_bytes[: len(known)])
        return total, shares * (total / (shares.sum() or 1.0))


class Reading(NamedTuple):
    """Losses by what is carried, all of the same tokens, and how far the gates of a state were open.

    `forgotten` is the share of a state that an update forgets, the mean over all updates where the document is carried;
    None without such a state.
    """

    losses: dict[str, Losses]
    forgotten: float | None = None


# ---- reading


def evaluate_split(
    model: Any,
    tokenizer: Any,
    documents: "Dataset",
    *,
    segment_length: int | None = None,
    batch_size: int = 8,
    carries: Iterable[str] | None = None,
    by_words: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Read all documents of a split to their ends -> `recurrence_table`.

    Args:
        documents: with the columns `text`, `num_bytes` and `num_words`.
        segment_length: tokens a segment; None: `default_segment_length`.
        batch_size: documents that are read at a time.
        carries: as for `read_losses`, and the document in any case; None: all that differ in the model.
        by_words: whether to give a perplexity by words.

    Raises:
        ValueError: a model that cannot read the documents, or nothing to predict.
    """
    if segment_length is None:
        segment_length = default_segment_length(model.config)
    if carries is None:
        carries = CARRIES if model.config.capabilities.state_vectors > 0 else (DOCUMENT, SEGMENT)
    encoded, rows = encode_documents(documents, tokenizer), min(batch_size, len(documents))
    pad_token_id = model.config.pad_token_id or 0
    reader = DocumentReader(encoded, rows, segment_length, pad_token_id=pad_token_id, shard=share())
    reading = read_losses(model, reader, [*dict.fromkeys((DOCUMENT, *carries))], gates=True, progress=progress)
    words = np.array(documents["num_words"][:]) if by_words else None
    sizes = Corpus(np.array(documents["num_bytes"][:]), encoded.lengths, words, token_bytes(tokenizer))
    return recurrence_table(model.config, reading, sizes, segment_length)


def token_bytes(tokenizer: Any) -> np.ndarray | None:
    """(V,) bytes of each token id; None where they depend on the text around it."""
    try:
        return token_num_bytes(tokenizer)
    except ValueError:
        return None


def default_segment_length(config: Any) -> int:
    """Some windows or chunks of the model; the paper's segments have 8 windows."""
    block = config.capabilities.span
    return SEGMENT_TOKENS if block is None else SEGMENT_BLOCKS * block


def evaluate_documents(model: Any, segments: Iterable[Segment], carry: str = DOCUMENT) -> Losses:
    """Losses on documents in one pass, in constant memory; arguments and errors are those of `read_losses`."""
    return read_losses(model, segments, (carry,)).losses[carry]


def read_losses(
    model: Any,
    segments: Iterable[Segment],
    carries: Sequence[str] | None,
    *,
    gates: bool = False,
    progress: bool = False,
    **options: Any,
) -> Reading:
    """Losses of a causal language model of this package on the same tokens, in one pass for each of `carries`.

    Args:
        segments: batches of segments of documents, such as a `DocumentReader`.
        carries: what goes on from segment to segment, some of `CARRIES`, of a model whose cache is of constant size;
            None: each segment is a whole text.
        gates: whether to collect how far the gates of a state are open, where the model has one.
        progress: show a progress bar.
        options: of the model's forward pass.

    Raises:
        ValueError: a model that cannot read so, or nothing to predict.
    """
    capabilities = model.config.capabilities
    check_carries(model, carries or ())
    caches = {DOCUMENT: None} if carries is None else {carry: model.model.new_cache() for carry in carries}
    losses, forgotten = {carry: Losses() for carry in caches}, []
    with inference_mode(model):
        for segment in progress_bar(segments, progress, "reading texts", "batch"):
            segment = segment.to(model.device)
            for carry, cache in caches.items():
                inputs = {"input_ids": segment.input_ids, "attention_mask": segment.attention_mask, **options}
                gated = gates and carry == DOCUMENT and capabilities.state_vectors > 0
                if cache is not None:
                    if carry == STATE and cache.num_rows is not None:
                        cache.reset_states()
                    start = segment.start_of_document | (carry == SEGMENT)
                    inputs |= {"past_key_values": cache, "use_cache": True, "start_of_document": start}
                outputs = model(**inputs, output_gates=gated)
                losses[carry].add(segment, outputs.logits, outputs.ponder_steps if capabilities.halts else None)
                if gated:
                    forgotten += forgotten_shares(outputs.gates, segment, capabilities.window_size)
    updates = [share for each in of_all(forgotten) for share in each]
    return Reading(
        {carry: each.of_all() for carry, each in losses.items()}, float(np.mean(updates)) if updates else None
    )


def check_carries(model: Any, carries: Sequence[str]) -> None:
    """Raise a ValueError unless a model can read documents with each of `carries`."""
    if carries and model.capabilities.growing_cache:
        raise ValueError(
            f"model is of class {type(model).__name__}, whose cache grows with the document: evaluate a model that "
            "carries a state of constant size, such as tlb, gutlb, rnn or block_recurrent"
        )
    able = CARRIES if model.config.capabilities.state_vectors > 0 else (DOCUMENT, SEGMENT)
    for carry in carries:
        if carry not in able:
            raise ValueError(f"carry is {carry!r}: expected one of {', '.join(able)} for this model")


def forgotten_shares(gates: Sequence[torch.Tensor], segment: Segment, window_size: int) -> Iterator[float]:
    """The share of a state that an update forgets, after each block of a segment that is filled with tokens.

    Args:
        gates: for each completed block (B, S, E), the fraction that its update forgets.
    """
    filled = segment.attention_mask.unfold(1, window_size, window_size).bool().all(-1)
    complete = filled & (segment.position % window_size == 0)[:, None]
    for gate, rows in zip(gates, complete.T[complete.any(0)], strict=True):
        yield from gate[rows].double().mean((1, 2)).tolist()


def collect_text_losses(
    model: Any, batches: Iterable[Mapping[str, torch.Tensor]], *, progress: bool = False, **options: Any
) -> Losses:
    """Losses of a causal language model of this package on texts, each read from its first token.

    Args:
        batches: `input_ids` and `attention_mask` (B, N), padded on either side, and `text` (B,), numbers of the texts.
        progress: show a progress bar.
        options: `max_depth` and `halting_threshold` of this run.

    Raises:
        ValueError: nothing is to be predicted.
    """

    def segments() -> Iterator[Segment]:
        for batch in dealt(batches):
            ids, mask, text = batch["input_ids"], batch["attention_mask"], batch["text"]
            # the token after each; padding on the left predicts nothing
            following = pad(ids.masked_fill(mask == 0, NO_TARGET)[:, 1:], (0, 1), value=NO_TARGET)
            labels = following.masked_fill(mask == 0, NO_TARGET)
            yield Segment(ids, mask, labels, text >= 0, torch.zeros_like(text), text)

    return read_losses(model, segments(), None, progress=progress, **options).losses[DOCUMENT]


# ---- tables


def recurrence_table(config: Any, reading: Reading, corpus: Corpus, segment_length: int) -> dict[str, Any]:
    """The statistics of one split of texts that a card shows, as plain Python data without NaN.

    With the document carried: `documents`, `tokens` and `bytes` count predictions; `exact_bytes` is whether bytes are
    counted token by token; `constant_bits_per_token` and `_byte` are those of the best constant prediction; further
    bits, `token_accuracy`, the perplexity by words and mean steps are of the model. `carries` has a row for each
    `carry`: its bits, the bits a token that it needs more than with the document carried (`difference`), and the
    `standard_error` of that over documents. `by_position` has a row for each octave of positions, whose `mean_steps`
    are of the tokens from which those at that position are predicted; `gates` has the `mean` share of a state that an
    update forgets; None without gated state vectors.
    """
    losses, rule = reading.losses[DOCUMENT], stopping_rule(config)[0]
    read = losses.texts[losses.texts["tokens"] > 0].index
    num_bytes, _ = losses.predicted_bytes(corpus)
    # end-of-text tokens alone have no byte
    by_byte = losses.num_tokens / num_bytes if num_bytes else math.nan
    perplexity = None
    if corpus.num_words is not None and (words := corpus.num_words[read].sum()):
        perplexity = word_perplexity(losses.bits_per_token, corpus.num_tokens[read].sum(), words)
    carries = []
    for carry, other in reading.losses.items():
        bits = other.bits_per_token
        difference, error = (None, None) if carry == DOCUMENT else mean_difference(losses, other)
        row = {"carry": carry, "bits_per_token": bits, "bits_per_byte": bits * by_byte}
        carries.append({**row, "difference": difference, "standard_error": error})
    positions = pd.DataFrame({carry: other.positions["bits_per_token"] for carry, other in reading.losses.items()})
    return plain(
        {
            "documents": len(read),
            "tokens": losses.num_tokens,
            "bytes": num_bytes,
            "exact_bytes": corpus.token_bytes is not None,
            "bits_per_token": losses.bits_per_token,
            "bits_per_byte": losses.bits_per_token * by_byte,
            "token_accuracy": losses.texts["right"].sum() / losses.num_tokens,
            "word_perplexity": perplexity,
            "constant_bits_per_token": losses.constant_bits_per_token,
            "constant_bits_per_byte": losses.constant_bits_per_token * by_byte,
            "mean_steps": losses.mean_steps,
            "fixed_depth": rule == "none",
            "halting": rule,
            "max_depth": config.num_hidden_layers,
            "segment_length": segment_length,
            "carries": carries,
            "by_position": losses.positions.assign(bits_per_token=positions.to_dict("records")).to_dict("records"),
            "gates": None if reading.forgotten is None else {"mean": reading.forgotten},
        }
    )


def mean_difference(first: Losses, second: Losses) -> tuple[float, float | None]:
    """Bits a token that `second` needs more than `first` on the same tokens, and the standard error of that.

    The error is that of a ratio over D documents, sqrt(D / (D - 1) sum_d (x_d - m n_d)^2) / sum_d n_d, with the bits
    x_d that document d needs more, its n_d tokens and the mean m; None for a single document.
    """
    tokens = first.texts["tokens"]
    tokens = tokens[tokens > 0]
    more = (second.texts["nats"] - first.texts["nats"])[tokens.index] / np.log(2)
    mean, documents = more.sum() / tokens.sum(), len(tokens)
    if documents < 2:
        return mean, None
    return mean, np.sqrt(((more - mean * tokens) ** 2).sum() * documents / (documents - 1)) / tokens.sum()


def carry_effect(row: Mapping[str, Any], documents: int) -> str:
    """The effect of carrying the state that a row of `carries` resets: "helps", "hurts", "unclear" or "untested".

    The state helps or hurts where resetting it needs more, or fewer, bits by over two standard errors. Fewer than five
    documents leave none, or one that is itself too uncertain to decide by, so the effect is untested.
    """
    difference, error = row["difference"], row["standard_error"]
    if documents < FEWEST_DOCUMENTS:
        return "untested"
    if abs(difference) <= 2 * error:
        return "unclear"
    return "helps" if difference > 0 else "hurts"


def text_table(
    model: Any,
    losses: Losses,
    sizes: Corpus,
    *,
    kind: str,
    block_size: int,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    slices: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """`recurrence_table` of texts that were read in one piece, as plain Python data.

    More keys are `texts`, the `kind` of texts; the `threshold` that stops tokens; `perplexity`; and `by_column`, column
    -> rows by its value, and the rank correlation of a text's mean steps with it.

    Args:
        kind: "blocks" or "documents".
        block_size: most tokens of a text.
        max_depth, halting_threshold: those of the run; None: the configured ones.
        slices: column -> a value for each text.
    """
    config, texts = model.config, losses.texts
    table = recurrence_table(config, Reading({DOCUMENT: losses}), sizes, block_size)
    texts = texts.assign(bits=texts["nats"] / np.log(2), bytes=losses.predicted_bytes(sizes)[1])

    def row_of(members: pd.Index) -> dict[str, Any] | None:
        total = texts.loc[members].sum(skipna=False)
        # texts of one token predict nothing
        return total["tokens"] and {
            "n": len(members),
            "tokens": int(total["tokens"]),
            "bits_per_token": total["bits"] / total["tokens"],
            "bits_per_byte": total["bits"] / total["bytes"] if total["bytes"] else None,
            "token_accuracy": total["right"] / total["tokens"],
            "mean_steps": total["steps"] / total["read"],
        }

    steps = texts["steps"] / texts["read"].clip(1) if config.capabilities.halts else None
    columns = {name: slice_table(pd.Series(values), row_of, steps) for name, values in (slices or {}).items()}
    return {
        **table,
        "texts": kind,
        "max_depth": config.num_hidden_layers if max_depth is None else max_depth,
        "threshold": stopping_rule(config)[1] if halting_threshold is None else halting_threshold,
        "perplexity": 2.0 ** table["bits_per_token"] if table["bits_per_token"] < 1000 else None,
        "by_column": plain(columns),
    }
