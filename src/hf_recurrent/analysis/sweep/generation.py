"""What a sequence-to-sequence model writes by itself, against the target.

Shapes: B rows, T tokens of a target.
"""

from typing import Any

import numpy as np

from ..halting.stacks import Batch
from ..halting.tokens import IGNORED


def written_right(model: Any, batch: Batch) -> np.ndarray:
    """(B,) whether greedy generation gives the target, its end included."""
    longest = int((batch.labels != IGNORED).sum(1).max())
    source = {name: value for name, value in batch.inputs.items() if not name.startswith("decoder_")}
    written = model.generate(**source, max_new_tokens=longest, do_sample=False, num_beams=1)
    end = model.config.eos_token_id
    return np.array(
        [
            up_to_end(row, end) == [token for token in labels if token != IGNORED]
            for row, labels in zip(written[:, 1:].tolist(), batch.labels.tolist(), strict=True)
        ]
    )


def up_to_end(tokens: list[int], end: int) -> list[int]:
    """Tokens up to the first `end`, that included."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
