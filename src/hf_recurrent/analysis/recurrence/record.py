"""What one pass over long documents says about a model's recurrence."""

from dataclasses import dataclass

from .gates import GateRecord
from .losses import DocumentLosses

# what goes on from segment to segment of a document: everything; nothing; everything but the state vectors, which
# begin each segment as they begin a document
DOCUMENT, SEGMENT, STATE = "document", "segment", "state"
CARRIES = (DOCUMENT, SEGMENT, STATE)


@dataclass(frozen=True)
class RecurrenceRecord:
    """Results of `collect`.

    Fields:
        halting: the model's halting strategy; "none" for a fixed depth.
        max_steps: the most depth steps.
        segment_length: tokens of a segment.
        window_size: tokens of a block, after each of which a state is updated; None where there are no blocks.
        losses: what was carried -> losses, all of the same tokens.
        gates: of the state vectors, where the document was carried; None without.
    """

    halting: str
    max_steps: int
    segment_length: int
    window_size: int | None
    losses: dict[str, DocumentLosses]
    gates: GateRecord | None = None
