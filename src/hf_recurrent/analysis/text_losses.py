"""Losses of a language model on texts that it reads in one piece each: blocks of tokens, or documents.

Shapes: B batch, S tokens, D texts, V token ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy, pad

from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import dealt, of_all
from ..metrics.functional import position_sums, spearman
from ..models.common.token_targets import NO_TARGET
from .document_losses import EDGES, DocumentLosses, merge_losses, segment_losses
from .inference import progress_bar, to_device
from .model_facts import stopping_rule
from .recurrence import DOCUMENT, Corpus, RecurrenceRecord, recurrence_table
from .tables import bucketize, is_numeric

BLOCKS, DOCUMENTS = "blocks", "documents"


class TextLosses(NamedTuple):
    """Losses of D texts: `losses`, and for each text (D,) the tokens predicted `right`, its executed `steps` (sum; NaN
    for a fixed depth) and the mean `confidence` in its predictions (NaN without any). `position_steps` are the sums of
    steps by the position of the predicted token.
    """

    losses: DocumentLosses
    right: np.ndarray
    steps: np.ndarray
    confidence: np.ndarray
    position_steps: np.ndarray


def collect_text_losses(
    model: Any,
    batches: Iterable[Mapping[str, torch.Tensor]],
    num_texts: int,
    *,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> TextLosses:
    """Losses of a causal language model of this package on texts, each read from its first token.

    Args:
        batches: `input_ids` and `attention_mask` (B, S), padded on either side, and `text` (B,), numbers of the texts.
        num_texts: D.
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.

    Raises:
        ValueError: nothing is to be predicted.
    """
    config, losses = model.config, None
    right, steps, confidence = np.zeros(num_texts, dtype=np.int64), *np.full((2, num_texts), np.nan)
    position_steps = np.zeros(len(EDGES) - 1)
    with inference_mode(model):
        for batch in progress_bar(dealt(batches), progress, "reading texts", "batch"):
            inputs = to_device(batch, model)
            text, mask = inputs.pop("text").cpu().numpy(), inputs["attention_mask"].bool()
            outputs = model(**inputs, max_depth=max_depth, halting_threshold=halting_threshold)
            # the token after each; padding on the left predicts nothing
            following = pad(inputs["input_ids"].masked_fill(~mask, NO_TARGET)[:, 1:], (0, 1), value=NO_TARGET)
            labels = following.masked_fill(~mask, NO_TARGET)
            nats = cross_entropy(outputs.logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
            nats, predicted = nats.view_as(labels), labels != NO_TARGET
            best, answers = outputs.logits.max(-1)
            hits = (answers == labels) & predicted
            # the likeliest token's probability from that of the label
            own = outputs.logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
            sure = torch.where(predicted, (best.float() - own.float() - nats).exp(), 0).sum(1) / predicted.sum(1)
            taken = outputs.ponder_steps.cpu().numpy() if config.capabilities.halts else None
            arrays = [tensor.cpu().numpy() for tensor in (nats, labels, mask)]
            part = segment_losses(*arrays, text, np.zeros_like(text), config.vocab_size, taken)
            losses = part if losses is None else merge_losses([losses, part])
            right[text], confidence[text] = hits.sum(1).cpu().numpy(), sure.cpu().numpy()
            if taken is not None:
                live, labelled = arrays[2], arrays[1] >= 0
                steps[text] = np.where(live, taken, 0).sum(1)
                position_steps += position_sums(taken[labelled].astype(float), live.cumsum(1)[labelled], EDGES)[0]
    return merged(of_all(TextLosses(losses, right, steps, confidence, position_steps)))


def merged(parts: list[TextLosses]) -> TextLosses:
    """The losses of all texts, from those of several processes, each of which has read some.

    Raises:
        ValueError: nothing was to be predicted.
    """
    losses = [part.losses for part in parts if part.losses is not None]
    if not losses or not (whole := merge_losses(losses)).num_tokens:
        raise ValueError("no token was to be predicted: each text has one token at most")
    right, position_steps = (sum(getattr(part, name) for part in parts) for name in ("right", "position_steps"))
    # each text is read by one of the processes, and has no number in the others
    steps, confidence = (np.fmax.reduce([getattr(part, name) for part in parts]) for name in ("steps", "confidence"))
    return TextLosses(whole, right, steps, confidence, position_steps)


def text_table(
    model: Any,
    found: TextLosses,
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
    config, losses = model.config, found.losses
    depth = config.num_hidden_layers if max_depth is None else max_depth
    rule, threshold = stopping_rule(config)
    record = RecurrenceRecord(*(rule, depth, block_size, config.capabilities.window_size), {DOCUMENT: losses})
    table = recurrence_table(record, sizes)
    table |= {"texts": kind, "threshold": threshold if halting_threshold is None else halting_threshold}
    table["token_accuracy"] = float(found.right.sum() / losses.num_tokens)
    table["perplexity"] = float(2.0 ** table["bits_per_token"]) if table["bits_per_token"] < 1000 else None
    filled = np.flatnonzero(losses.position_tokens)
    for row, place in zip(table["by_position"], filled, strict=True):
        halts = config.capabilities.halts
        row["mean_steps"] = float(found.position_steps[place] / losses.position_tokens[place]) if halts else None
    # of each text, which add up to those of the table
    num_bytes = sizes.num_bytes * losses.tokens / np.maximum(sizes.num_tokens, 1)
    num_bytes = num_bytes * (table["bytes"] / num_bytes.sum() if num_bytes.sum() else 1.0)
    table["by_column"] = {
        name: column_table(np.asarray(values), found, num_bytes) for name, values in (slices or {}).items()
    }
    return plain(table)


def column_table(values: np.ndarray, found: TextLosses, num_bytes: np.ndarray) -> dict[str, Any]:
    """Losses by the value of a column (D,)."""
    losses = found.losses
    texts = pd.DataFrame({"tokens": losses.tokens, "bits": losses.nats / np.log(2), "bytes": num_bytes})
    texts = texts.assign(right=found.right, steps=found.steps, read=losses.read)
    rows = []
    for label, members in texts.groupby(bucketize(values), observed=True):
        # of a fixed depth there is no number of steps
        total = members.sum(skipna=False)
        if total["tokens"]:
            rows.append(
                {
                    "value": label,
                    "n": len(members),
                    "tokens": int(total["tokens"]),
                    "bits_per_token": total["bits"] / total["tokens"],
                    "bits_per_byte": total["bits"] / total["bytes"] if total["bytes"] else None,
                    "token_accuracy": total["right"] / total["tokens"],
                    "mean_steps": total["steps"] / total["read"],
                }
            )
    numeric, halts = is_numeric(values), not texts["steps"].isna().all()
    means = texts["steps"] / texts["read"].clip(1)
    return {"numeric": numeric, "rows": rows, "spearman": spearman(values, means) if numeric and halts else None}
