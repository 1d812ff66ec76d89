"""Long documents: losses with and without the carried state, loss by position, and how far the state's gates are open.

Shapes: B batch, N tokens a segment, D documents, V token ids, U units of a state.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ..benchmarks.long_documents.tokenizers import token_num_bytes
from ..documents import DocumentReader, encode_documents
from ..documents.reader import Segment
from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import of_all, share
from ..metrics.functional import word_perplexity
from .document_losses import (
    DocumentLosses,
    GateSums,
    complete_blocks,
    mean_difference,
    merge_losses,
    segment_losses,
)
from .inference import progress_bar
from .model_facts import stopping_rule

if TYPE_CHECKING:
    from datasets import Dataset

# carried from segment to segment of a document: everything; nothing; everything but the state vectors, which begin
# each segment as they begin a document
DOCUMENT, SEGMENT, STATE = "document", "segment", "state"
CARRIES = (DOCUMENT, SEGMENT, STATE)
# configurations of the benchmark that hold prose, of which a perplexity by words means something
PROSE = ("pg19", "folder")
# default size of a segment, in windows or chunks, and in tokens where a model has neither
BLOCKS, TOKENS = 8, 512
GATE_BINS = 20
DECILES = np.arange(10, 100, 10)
# by whose standard error an effect is decided
FEWEST_DOCUMENTS = 5


@dataclass(frozen=True)
class RecurrenceRecord:
    """Results of `collect_recurrence`.

    Fields:
        halting: the model's halting strategy; "none" for a fixed depth.
        max_depth: maximum depth steps.
        segment_length: tokens of a segment.
        window_size: tokens of a block, after each of which a state is updated; None where there are no blocks.
        losses: carry -> losses, all of the same tokens.
        gates: of the state vectors, where the document was carried; None without.
    """

    halting: str
    max_depth: int
    segment_length: int
    window_size: int | None
    losses: dict[str, DocumentLosses]
    gates: GateSums | None = None


class Corpus(NamedTuple):
    """Sizes of each document of a split: bytes, tokens, and words where a perplexity by words means something.

    `token_bytes` are the bytes of each token id, where a token has always the same.
    """

    num_bytes: np.ndarray
    num_tokens: np.ndarray
    num_words: np.ndarray | None = None
    token_bytes: np.ndarray | None = None


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
        carries: as for `collect_recurrence`; the document is carried in any case.
        by_words: whether to give a perplexity by words.

    Raises:
        ValueError: a model or tokenizer that cannot read the documents, or nothing to predict.
    """
    carries = None if carries is None else tuple(dict.fromkeys((DOCUMENT, *carries)))
    check_carries(model, carries or (DOCUMENT,))
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but the model {model.config.vocab_size}: take the one that it "
            "was trained with"
        )
    encoded = encode_documents(documents, tokenizer)
    reader = DocumentReader(
        encoded,
        min(batch_size, len(encoded)),
        default_segment_length(model.config) if segment_length is None else segment_length,
        pad_token_id=model.config.pad_token_id or 0,
        shard=share(),
    )
    record = collect_recurrence(model, reader, carries, progress=progress)
    words = np.array(documents["num_words"][:]) if by_words else None
    sizes = Corpus(np.array(documents["num_bytes"][:]), encoded.lengths, words, token_bytes(tokenizer))
    return recurrence_table(record, sizes)


def token_bytes(tokenizer: Any) -> np.ndarray | None:
    """(V,) bytes of each token id; None where they depend on the text around it."""
    try:
        return token_num_bytes(tokenizer)
    except ValueError:
        return None


def default_segment_length(config: Any) -> int:
    """Some windows or chunks of the model; the paper's segments have 8 windows."""
    block = config.capabilities.span
    return TOKENS if block is None else BLOCKS * block


def evaluate_documents(
    model: Any, segments: Iterable[Segment], carry: str = DOCUMENT, *, progress: bool = False
) -> DocumentLosses:
    """Losses of a causal language model over documents in one pass, in constant memory.

    Args:
        model: a causal language model of this package whose cache is of constant size.
        segments: batches of segments of documents, such as a `DocumentReader`.
        carry: what goes on from segment to segment, one of `CARRIES`.
        progress: show a progress bar.

    Raises:
        ValueError: a model that cannot be read so, or nothing to predict.
    """
    return collect_recurrence(model, segments, (carry,), gates=False, progress=progress).losses[carry]


def collect_recurrence(
    model: Any,
    segments: Iterable[Segment],
    carries: Iterable[str] | None = None,
    *,
    gates: bool = True,
    progress: bool = False,
) -> RecurrenceRecord:
    """Losses of the same tokens in one pass for each of `carries`, and how far the gates of the state are open.

    Arguments are those of `evaluate_documents`, and:

    Args:
        carries: some of `CARRIES`; None: all that differ in the model.
        gates: whether to collect gates, where the model has a gated state.
    """
    config = model.config
    if carries is None:
        carries = CARRIES if config.capabilities.state_vectors > 0 else (DOCUMENT, SEGMENT)
    carries = tuple(carries)
    check_carries(model, carries)
    gate_sums = GateSums() if gates and config.capabilities.state_vectors > 0 and DOCUMENT in carries else None
    evaluators = [_CarryEvaluator(model, carry, gate_sums if carry == DOCUMENT else None) for carry in carries]
    length = 0
    with inference_mode(model):
        for segment in progress_bar(segments, progress, "reading documents", "segment"):
            length = segment.input_ids.shape[1]
            moved = Segment(*(tensor.to(model.device) for tensor in segment))
            for evaluator in evaluators:
                evaluator.add(moved)
    parts = of_all(([evaluator.losses for evaluator in evaluators], gate_sums, length))
    losses = {}
    for carry, *own in zip(carries, *(found for found, _, _ in parts), strict=True):
        own = [each for each in own if each is not None]
        if not own or not (whole := merge_losses(own)).num_tokens:
            raise ValueError("no token was to be predicted: the segments hold no document of two tokens or more")
        losses[carry] = whole
    return RecurrenceRecord(
        halting=stopping_rule(config)[0],
        max_depth=config.num_hidden_layers,
        segment_length=max(length for *_, length in parts),
        window_size=config.capabilities.window_size,
        losses=losses,
        gates=None if gate_sums is None else GateSums.merged([sums for _, sums, _ in parts]),
    )


class _CarryEvaluator:
    """The cache and the summed losses of one way of carrying state."""

    def __init__(self, model: Any, carry: str, gates: GateSums | None = None):
        self.model, self.carry, self.gates = model, carry, gates
        self.cache = model.model.new_cache()
        self.losses: DocumentLosses | None = None

    def add(self, segment: Segment) -> None:
        """Predict the tokens of a segment on the model's device, and carry its state to the next."""
        start = segment.start_of_document
        if self.carry == SEGMENT:
            start = torch.ones_like(start)
        elif self.carry == STATE and self.cache.num_rows is not None:
            self.cache.reset_states()
        outputs = self.model(
            input_ids=segment.input_ids,
            attention_mask=segment.attention_mask,
            past_key_values=self.cache,
            use_cache=True,
            start_of_document=start,
            output_gates=self.gates is not None,
        )
        # by token: outputs.loss is their mean
        nats = cross_entropy(outputs.logits.flatten(0, 1).float(), segment.labels.flatten(), reduction="none")
        arrays = (nats.view_as(segment.labels), segment.labels, segment.attention_mask)
        losses = segment_losses(
            *(tensor.cpu().numpy() for tensor in (*arrays, segment.document, segment.position)),
            vocab_size=self.model.config.vocab_size,
            steps=outputs.ponder_steps.cpu().numpy() if self.model.config.capabilities.halts else None,
        )
        self.losses = losses if self.losses is None else merge_losses([self.losses, losses])
        if self.gates is not None:
            complete = complete_blocks(
                segment.attention_mask, segment.position, self.model.config.capabilities.window_size
            )
            self.gates.add(outputs.gates, complete)


def check_carries(model: Any, carries: tuple[str, ...]) -> None:
    """Raise a ValueError unless a model can read documents with each of `carries`."""
    kind = type(model).__name__
    if model.capabilities.growing_cache:
        raise ValueError(
            f"model is of class {kind}, whose cache grows with the document: evaluate a model that carries a state of "
            "constant size, such as tlb, gutlb, rnn or block_recurrent"
        )
    for carry in carries:
        if carry not in CARRIES:
            raise ValueError(f"carry is {carry!r}: expected one of {', '.join(CARRIES)}")
    if STATE in carries and model.config.capabilities.state_vectors == 0:
        raise ValueError(f"carry is {STATE!r}, but {kind} of this configuration has no state vectors to reset")


def recurrence_table(record: RecurrenceRecord, corpus: Corpus | None = None) -> dict[str, Any]:
    """The statistics of one split of long documents that a card shows, as plain Python data without NaN.

    `documents`, `tokens` and `bytes` count predictions, `tokens_read` all tokens that were read; `all_predicted` is
    whether every token but each document's first was predicted, `exact_bytes` whether bytes are counted token by token
    (else a document's bytes count by the fraction of its tokens that was predicted). `bits_per_token`, `bits_per_byte`
    and `word_perplexity` are with the document carried, and `constant_bits_per_token` and `_byte` of the best constant
    prediction on the same tokens. Without a `corpus`, numbers by byte or word are None.

    `carries` has a row for each `carry`: its bits, the bits a token that it needs more than with the document carried
    (`difference`), and the `standard_error` of that over documents. `by_position` has a row
    for each bin of positions; `gates` is None for a model without gated state vectors.
    """
    losses = record.losses[DOCUMENT]
    read_bytes = None if corpus is None else predicted_bytes(losses, corpus)
    # end-of-text tokens alone stand for no byte
    # not a number is None in the table
    by_byte = losses.num_tokens / read_bytes if read_bytes else math.nan
    carries = []
    for carry, own in record.losses.items():
        difference, error = (None, None) if carry == DOCUMENT else mean_difference(losses, own)
        row = {
            "carry": carry,
            "bits_per_token": own.bits_per_token,
            "bits_per_byte": own.bits_per_token * by_byte,
        }
        carries.append({**row, "difference": difference, "standard_error": error})
    bins = {carry: own.by_position() for carry, own in record.losses.items()}
    by_position = [
        {
            "first": rows[0]["first"],
            "last": rows[0]["last"],
            "tokens": rows[0]["n"],
            "bits_per_token": {carry: row["bits_per_token"] for carry, row in zip(bins, rows, strict=True)},
        }
        for rows in zip(*bins.values(), strict=True)
    ]
    return plain(
        {
            "documents": int((losses.tokens > 0).sum()),
            "tokens": losses.num_tokens,
            "tokens_read": int(losses.read.sum()),
            "all_predicted": bool((losses.tokens == np.maximum(losses.read - 1, 0)).all()),
            "bytes": read_bytes,
            "exact_bytes": corpus is not None and corpus.token_bytes is not None,
            "bits_per_token": losses.bits_per_token,
            "bits_per_byte": losses.bits_per_token * by_byte,
            "word_perplexity": _word_perplexity(losses, corpus),
            "constant_bits_per_token": losses.constant_bits_per_token,
            "constant_bits_per_byte": losses.constant_bits_per_token * by_byte,
            "fixed_depth": record.halting == "none",
            "halting": record.halting,
            "max_depth": record.max_depth,
            "mean_steps": losses.mean_steps,
            "segment_length": record.segment_length,
            "carries": carries,
            "by_position": by_position,
            "gates": None if record.gates is None else gate_table(record.gates, record.window_size),
        }
    )


def predicted_bytes(losses: DocumentLosses, corpus: Corpus) -> float:
    """Bytes of the predicted tokens: counted where that is possible.

    Otherwise p predicted tokens of a document of n tokens stand for their share p / n of its bytes.
    """
    if corpus.token_bytes is None:
        sizes = [np.asarray(values, dtype=np.float64)[: len(losses.tokens)] for values in corpus[:2]]
        return float((sizes[0] * losses.tokens / np.maximum(sizes[1], 1)).sum())
    known = losses.label_counts[: len(corpus.token_bytes)]
    return float(known @ np.asarray(corpus.token_bytes, dtype=np.float64)[: len(known)])


def _word_perplexity(losses: DocumentLosses, corpus: Corpus | None) -> float | None:
    """Over the documents that were read; None without numbers of words, or without words."""
    if corpus is None or corpus.num_words is None:
        return None
    read = np.flatnonzero(losses.tokens)
    words = np.asarray(corpus.num_words)[read].sum()
    if not words:
        return None
    return word_perplexity(losses.bits_per_token, np.asarray(corpus.num_tokens)[read].sum(), words)


def gate_table(gates: GateSums, window_size: int) -> dict[str, Any]:
    """Openness of gates over the units of a state, and blocks and tokens after which half of a unit is forgotten.

    `deciles` are the nine between the tenths of the units, `histogram` counts units in 20 bins from 0 to 1.
    `half_life_blocks` has the first, fifth and last of the nine as `p10`, `median` and `p90`; None is never.
    """
    openness = gates.openness / gates.updates
    # exp(k log_kept) is left of a unit after k updates
    with np.errstate(divide="ignore"):
        half_life = np.log(2) / np.abs(gates.log_kept / gates.updates)
    places = {"p10": 10, "median": 50, "p90": 90}
    # a percentile between two units may be one of them, infinite ones included
    found = {name: float(np.percentile(half_life, place, method="lower")) for name, place in places.items()}
    return {
        "mean": openness.mean(),
        "deciles": np.percentile(openness, DECILES),
        "histogram": np.histogram(openness, bins=GATE_BINS, range=(0.0, 1.0))[0],
        "units": len(openness),
        "updates": gates.updates,
        "window_size": window_size,
        "half_life_blocks": found,
        "half_life_tokens": {name: blocks * window_size for name, blocks in found.items()},
    }


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
