"""Long documents: losses with and without the carried state, loss by position, and how far the state's gates are open.

Shapes: B batch, N tokens a segment, K blocks a segment, D documents, V token ids, S state vectors, E width,
U = S x E units of a state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ..benchmarks.long_documents.tokenizers import token_num_bytes
from ..data.corpus import encode_documents
from ..data.segments import DocumentReader, Segment
from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import of_all, share
from .evaluate import progress_bar
from .losses import Corpus, Losses
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
# smallest fraction that is kept: its logarithm is finite, and a float32 cannot tell it from 0 after 1 - x
MIN_KEPT = 1e-7
GATE_BINS = 20
# by whose standard error an effect is decided
FEWEST_DOCUMENTS = 5


@dataclass(frozen=True)
class RecurrenceRecord:
    """Losses of a run, and the settings of the run.

    Fields:
        halting: the model's exit criterion or halting strategy; "none" for a fixed depth.
        max_depth: maximum depth steps.
        segment_length: tokens of a segment, or the most of a text that is read in one piece.
        window_size: tokens of a block, after each of which a state is updated; None where there are no blocks.
        losses: carry -> losses, all of the same tokens.
        gates: (3, U) over all updates of the state, where the document was carried: the number of updates, and sums of
            the fraction of each unit that an update forgets and of the logarithm of what it keeps; None without.
    """

    halting: str
    max_depth: int
    segment_length: int
    window_size: int | None
    losses: dict[str, Losses]
    gates: np.ndarray | None = None


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
) -> Losses:
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
    config, capabilities, length = model.config, model.config.capabilities, 0
    if carries is None:
        carries = CARRIES if capabilities.state_vectors > 0 else (DOCUMENT, SEGMENT)
    carries = tuple(carries)
    check_carries(model, carries)
    losses, caches = {carry: Losses() for carry in carries}, {carry: model.model.new_cache() for carry in carries}
    gates, gate_sums = gates and capabilities.state_vectors > 0 and DOCUMENT in carries, torch.zeros(())
    with inference_mode(model):
        for segment in progress_bar(segments, progress, "reading documents", "segment"):
            segment = segment.to(model.device)
            length = segment.input_ids.shape[1]
            for carry, cache in caches.items():
                start, gated = segment.start_of_document, gates and carry == DOCUMENT
                if carry == SEGMENT:
                    start = torch.ones_like(start)
                elif carry == STATE and cache.num_rows is not None:
                    cache.reset_states()
                outputs = model(
                    input_ids=segment.input_ids,
                    attention_mask=segment.attention_mask,
                    past_key_values=cache,
                    use_cache=True,
                    start_of_document=start,
                    output_gates=gated,
                )
                labels, mask, steps = segment.labels, segment.attention_mask, None
                if capabilities.halts:
                    steps = outputs.ponder_steps
                losses[carry].add(outputs.logits, labels, mask, segment.document, segment.position, steps)
                if gated:
                    gate_sums = gate_sums + sum_gates(outputs.gates, mask, segment.position, capabilities.window_size)
    found = of_all((gate_sums.cpu().numpy(), length))
    # a process may have read no segment
    sums = sum(own for own, _ in found) if gates else None
    return RecurrenceRecord(
        halting=stopping_rule(config)[0],
        max_depth=config.num_hidden_layers,
        segment_length=max(own for _, own in found),
        window_size=capabilities.window_size,
        losses={carry: own.of_all() for carry, own in losses.items()},
        gates=sums if sums is not None and sums.any() else None,
    )


def sum_gates(
    gates: Iterable[torch.Tensor], mask: torch.Tensor, position: torch.Tensor, window_size: int
) -> torch.Tensor:
    """`RecurrenceRecord.gates` of a segment, over the blocks that are filled with tokens.

    Args:
        gates: for each completed block (B, S, E), the fraction that its update forgets.
        mask: (B, N) tokens of the segment.
        position: (B,) tokens of the document read before the segment, in whole blocks.
    """
    complete = mask.unfold(1, window_size, window_size).bool().all(-1) & (position % window_size == 0)[:, None]
    completed = complete.T[complete.any(0)]
    total = torch.zeros(())
    for gate, counted in zip(gates, completed, strict=True):
        forgotten = gate[counted].double().flatten(1)
        sums = torch.ones_like(forgotten), forgotten, (1 - forgotten).clamp_min(MIN_KEPT).log()
        total = total + torch.stack(sums).sum(1)
    return total


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

    These are those of `Losses.table` with the document carried, and the settings of the record. `carries` has a row for
    each `carry`: its bits, the bits a token that it needs more than with the document carried (`difference`), and the
    `standard_error` of that over documents. `by_position` has a row for each bin of positions; `gates` is None for a
    model without gated state vectors.
    """
    losses = record.losses[DOCUMENT]
    table, carries = losses.table(corpus), []
    for carry, own in record.losses.items():
        # not a number is None in the table
        by_byte = table["bits_per_byte"] / table["bits_per_token"] * own.bits_per_token
        difference, error = (None, None) if carry == DOCUMENT else mean_difference(losses, own)
        row = {"carry": carry, "bits_per_token": own.bits_per_token, "bits_per_byte": by_byte}
        carries.append({**row, "difference": difference, "standard_error": error})
    bits = pd.DataFrame({carry: own.positions["bits_per_token"] for carry, own in record.losses.items()})
    places = losses.positions[["first", "last", "tokens"]].assign(bits_per_token=bits.to_dict("records"))
    return plain(
        {
            **table,
            "fixed_depth": record.halting == "none",
            "halting": record.halting,
            "max_depth": record.max_depth,
            "segment_length": record.segment_length,
            "carries": carries,
            "by_position": places.to_dict("records"),
            "gates": None if record.gates is None else gate_table(record.gates, record.window_size),
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


def gate_table(gates: np.ndarray, window_size: int) -> dict[str, Any]:
    """Openness of gates over the units of a state, and blocks and tokens after which half of a unit is forgotten.

    `deciles` are the nine between the tenths of the units, `histogram` counts units in 20 bins from 0 to 1.
    `half_life_blocks` has the first, fifth and last of the nine as `p10`, `median` and `p90`; None is never.
    """
    updates, (openness, log_kept) = gates[0, 0], gates[1:] / gates[0]
    # exp(k log_kept) is left of a unit after k updates
    with np.errstate(divide="ignore"):
        half_life = np.log(2) / np.abs(log_kept)
    places = {"p10": 10, "median": 50, "p90": 90}
    # a percentile between two units may be one of them, infinite ones included
    found = {name: float(np.percentile(half_life, place, method="lower")) for name, place in places.items()}
    return {
        "mean": openness.mean(),
        "deciles": np.percentile(openness, np.arange(10, 100, 10)),
        "histogram": np.histogram(openness, bins=GATE_BINS, range=(0.0, 1.0))[0],
        "units": len(openness),
        "updates": int(updates),
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
