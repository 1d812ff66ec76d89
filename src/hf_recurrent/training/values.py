"""Ranges of the numbers among this package's own settings."""

import dataclasses
import math
from typing import Any

# setting -> its least and its greatest value, both allowed
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_train_samples", "max_eval_samples", "max_length", "threshold_samples"), (1, math.inf)),
    **dict.fromkeys(("batch_tokens", "max_tokens", "average_checkpoints", "evaluation_depth"), (1, math.inf)),
    **dict.fromkeys(("tokenizer_vocab_size", "num_merges", "vocab_size", "max_seq_length"), (1, math.inf)),
    **dict.fromkeys(("segment_length", "eval_segment_length", "block_size", "max_answer_length"), (1, math.inf)),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size", "num_proc"), (1, math.inf)),
    # a token besides the end-of-sequence token
    **dict.fromkeys(("max_source_length", "max_target_length"), (2, math.inf)),
    **dict.fromkeys(("ponder_warmup_steps", "short_first_steps", "early_stopping_patience"), (0, math.inf)),
    **dict.fromkeys(("doc_stride", "learning_rate"), (0, math.inf)),
    **dict.fromkeys(("mlm_probability", "thresholds"), (0, 1)),
    "short_first_share": (0, 0.99),
    "short_first_power": (1e-6, math.inf),
    "validation_split_percentage": (1, 99),
}


def check_numbers(arguments: Any, *positive: str) -> None:
    """Raise a ValueError for a number of an argument dataclass, or in a list of it, outside its range in `RANGES`.

    Args:
        positive: names of further fields, which are whole numbers from 1.
    """
    ranges = RANGES | dict.fromkeys(positive, (1, math.inf))
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name not in ranges or value is None:
            continue
        low, high = ranges[field.name]
        for number in value if isinstance(value, list) else [value]:
            # NaN is in no range
            if not low <= number <= high or number == math.inf:
                most = "" if high == math.inf else f" to {high}"
                raise ValueError(f"{field.name} is {number}: expected a number from {low}{most or ' on'}")
