"""Losses of a language model on texts that it reads in one piece each: blocks of tokens, or documents.

Shapes: B batch, S tokens, D texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import pad

from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import dealt
from ..models.common.token_targets import NO_TARGET
from .answers import to_device
from .evaluate import progress_bar
from .halting import slice_table
from .losses import Corpus, Losses
from .model_facts import stopping_rule
from .recurrence import DOCUMENT, RecurrenceRecord, recurrence_table

BLOCKS, DOCUMENTS = "blocks", "documents"


def collect_text_losses(
    model: Any,
    batches: Iterable[Mapping[str, torch.Tensor]],
    *,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> Losses:
    """Losses of a causal language model of this package on texts, each read from its first token.

    Args:
        batches: `input_ids` and `attention_mask` (B, S), padded on either side, and `text` (B,), numbers of the texts.
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.

    Raises:
        ValueError: nothing is to be predicted.
    """
    losses, halts = Losses(), model.config.capabilities.halts
    with inference_mode(model):
        for batch in progress_bar(dealt(batches), progress, "reading texts", "batch"):
            inputs = to_device(batch, model)
            text, mask = inputs.pop("text"), inputs["attention_mask"].bool()
            outputs = model(**inputs, max_depth=max_depth, halting_threshold=halting_threshold)
            # the token after each; padding on the left predicts nothing
            following = pad(inputs["input_ids"].masked_fill(~mask, NO_TARGET)[:, 1:], (0, 1), value=NO_TARGET)
            labels, steps = following.masked_fill(~mask, NO_TARGET), outputs.ponder_steps if halts else None
            losses.add(outputs.logits, labels, mask, text, torch.zeros_like(text), steps)
    return losses.of_all()


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

    More keys are `texts`, the `kind` of texts; the `threshold` that stops tokens; `token_accuracy` and `perplexity`; in
    rows of `by_position` the `mean_steps` of tokens, from which those at that position are predicted; and `by_column`,
    column -> rows by its value, and the rank correlation of a text's mean steps with it.

    Args:
        kind: "blocks" or "documents".
        block_size: most tokens of a text.
        max_depth, halting_threshold: those of the run; None: the configured ones.
        slices: column -> a value for each text.
    """
    config, texts = model.config, losses.texts
    rule, threshold = stopping_rule(config)
    depth = config.num_hidden_layers if max_depth is None else max_depth
    table = recurrence_table(
        RecurrenceRecord(rule, depth, block_size, config.capabilities.window_size, {DOCUMENT: losses}), sizes
    )
    table |= {"texts": kind, "threshold": threshold if halting_threshold is None else halting_threshold}
    table["token_accuracy"] = float(texts["right"].sum() / losses.num_tokens)
    table["perplexity"] = float(2.0 ** table["bits_per_token"]) if table["bits_per_token"] < 1000 else None
    for row, steps in zip(table["by_position"], losses.positions["mean_steps"], strict=True):
        row["mean_steps"] = steps
    texts = texts.assign(bits=texts["nats"] / np.log(2), bytes=losses.predicted_bytes(sizes)[1])
    halts, steps = config.capabilities.halts, texts["steps"] / texts["read"].clip(1)

    def row(members: pd.Index) -> dict[str, Any] | None:
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

    table["by_column"] = {
        name: slice_table(pd.Series(values), row, steps if halts else None) for name, values in (slices or {}).items()
    }
    return plain(table)
