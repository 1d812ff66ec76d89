"""Language models over long documents, read segment by segment with one thing or another carried between.

Shapes: B rows, N tokens a segment, V token ids.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from ...documents.reader import DocumentReader, Segment
from ..halting.inference import halting_of, inference_mode
from .gates import GateSums, complete_blocks
from .losses import DocumentLosses, LossSums
from .record import CARRIES, DOCUMENT, SEGMENT, STATE, RecurrenceRecord


def evaluate_documents(
    model: Any, segments: Iterable[Segment], carry: str = DOCUMENT, *, progress: bool = False
) -> DocumentLosses:
    """Losses of a causal language model over documents in one pass, in constant memory.

    Args:
        model: a causal language model of this package whose cache is of constant size.
        segments: what the rows of a batch read step by step, such as a `DocumentReader`.
        carry: what goes on from segment to segment, one of `CARRIES`.
        progress: show a progress bar.

    Raises:
        ValueError: a model that cannot be read so, or nothing to predict.
    """
    return collect(model, segments, (carry,), gates=False, progress=progress).losses[carry]


def collect(
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
        carries: some of `CARRIES`; None: all that the model has.
        gates: whether to look at the gates, where the model has a gated state.
    """
    carries = carries_of(model) if carries is None else tuple(carries)
    check_carries(model, carries)
    gate_sums = GateSums() if gates and has_states(model) and DOCUMENT in carries else None
    readings = [Reading(model, carry, gate_sums if carry == DOCUMENT else None) for carry in carries]
    length = 0
    with inference_mode(model):
        for segment in _with_progress(segments, progress):
            length = segment.input_ids.shape[1]
            moved = Segment(*(tensor.to(model.device) for tensor in segment))
            for reading in readings:
                reading.read(moved)
    return RecurrenceRecord(
        halting=halting_of(model.config),
        max_steps=model.config.num_hidden_layers,
        segment_length=length,
        window_size=getattr(model.config, "window_size", None),
        losses={reading.carry: reading.sums.total() for reading in readings},
        gates=None if gate_sums is None else gate_sums.total(),
    )


class Reading:
    """One way of reading: the cache that it carries, and what it has lost so far."""

    def __init__(self, model: Any, carry: str, gates: GateSums | None = None):
        self.model, self.carry, self.gates = model, carry, gates
        self.cache = model.model.new_cache()
        self.sums = LossSums(model.config.vocab_size)

    def read(self, segment: Segment) -> None:
        """Predict what a segment on the model's device holds, and take its state over."""
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
        # the loss of each token, which outputs.loss is the mean of
        nats = cross_entropy(outputs.logits.flatten(0, 1).float(), segment.labels.flatten(), reduction="none")
        halts = halting_of(self.model.config) != "none"
        arrays = (nats.view_as(segment.labels), segment.labels, segment.attention_mask)
        self.sums.add(
            *(tensor.cpu().numpy() for tensor in arrays),
            document=segment.document.cpu().numpy(),
            position=segment.position.cpu().numpy(),
            steps=outputs.ponder_steps.cpu().numpy() if halts else None,
        )
        if self.gates is not None:
            window = self.model.config.window_size
            self.gates.add(outputs.gates, complete_blocks(segment.attention_mask, segment.position, window))


def has_states(model: Any) -> bool:
    """Whether a model carries gated state vectors beside the keys and values of a window."""
    return bool(getattr(model.config, "recurrent_layers", None)) and hasattr(model.config, "num_state_vectors")


def carries_of(model: Any) -> tuple[str, ...]:
    """Those of `CARRIES` that differ in a model."""
    return CARRIES if has_states(model) else (DOCUMENT, SEGMENT)


def check_carries(model: Any, carries: tuple[str, ...]) -> None:
    """Raise a ValueError for what a model cannot be asked."""
    kind = type(model).__name__
    if getattr(model.model, "cache_remembers_padding", False) or not hasattr(model.model, "new_cache"):
        raise ValueError(
            f"model is a {kind}, whose cache grows with the document: evaluate a model that carries a state of "
            "constant size, such as tlb, gutlb, rnn or block_recurrent"
        )
    for carry in carries:
        if carry not in CARRIES:
            raise ValueError(f"carry is {carry!r}: expected one of {', '.join(CARRIES)}")
    if STATE in carries and not has_states(model):
        raise ValueError(f"carry is {STATE!r}, but a {kind} of this configuration has no state vectors to reset")


def _with_progress(segments: Iterable[Segment], progress: bool) -> Iterator[Segment]:
    if not progress:
        yield from segments
        return
    from tqdm.auto import tqdm

    # what a reader is about to read is known; of other segments it is not
    known = isinstance(segments, DocumentReader)
    total = int(segments.documents.lengths[segments.order].sum()) if known else None
    with tqdm(total=total, desc="reading documents", unit="token", unit_scale=True) as bar:
        for segment in segments:
            yield segment
            bar.update(int(segment.attention_mask.sum()))
