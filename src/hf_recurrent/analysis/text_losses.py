"""Losses of a language model on texts that it reads in one piece each: blocks of tokens, or documents.

Shapes: B batch, S tokens, D texts, V token ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
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
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> TextLosses:
    """Losses of a causal language model of this package on texts, each read from its first token.

    Args:
        batches: `input_ids` and `attention_mask` (B, S), padded on either side, and `text` (B,), numbers of the texts.
        num_texts: D.
        max_steps: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.

    Raises:
        ValueError: nothing is to be predicted.
    """
    config, losses = model.config, None
    options = {"max_steps": max_steps, "halting_threshold": halting_threshold}
    options = {name: value for name, value in options.items() if value is not None}
    right, steps, confidence = np.zeros(num_texts, dtype=np.int64), *np.full((2, num_texts), np.nan)
    position_steps = np.zeros(len(EDGES) - 1)
    with inference_mode(model):
        for batch in progress_bar(dealt(batches), progress, "reading texts", "batch"):
            inputs = to_device(batch, model)
            text, mask = inputs.pop("text").cpu().numpy(), inputs["attention_mask"].bool()
            outputs = model(**inputs, **options)
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
    return TextLosses(whole, right, *(joined_field(parts, name) for name in ("steps", "confidence")), position_steps)


def joined_field(parts: list[TextLosses], name: str) -> np.ndarray:
    """A field (D,) of all texts, each read by one of the processes; NaN where none has a value."""
    values = np.stack([getattr(part, name) for part in parts])
    return np.where(np.isnan(values).all(0), np.nan, np.nansum(values, axis=0))


def text_table(
    model: Any,
    found: TextLosses,
    sizes: Corpus,
    *,
    kind: str,
    block_size: int,
    max_steps: int | None = None,
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
        max_steps, halting_threshold: those of the run; None: the configured ones.
        slices: column -> a value for each text.
    """
    config, losses = model.config, found.losses
    depth = config.num_hidden_layers if max_steps is None else max_steps
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
    known = bytes_of_texts(losses, sizes, table)
    table["by_column"] = {
        name: column_table(np.asarray(values), found, known) for name, values in (slices or {}).items()
    }
    return plain(table)


def bytes_of_texts(losses: DocumentLosses, sizes: Corpus, table: Mapping[str, Any]) -> np.ndarray:
    """Bytes that are predicted of each text (D,), which add up to those of the table."""
    shares = sizes.num_bytes * losses.tokens / np.maximum(sizes.num_tokens, 1)
    return shares * (table["bytes"] / shares.sum() if shares.sum() else 1.0)


def column_table(values: np.ndarray, found: TextLosses, num_bytes: np.ndarray) -> dict[str, Any]:
    """Losses by the value of a column (D,)."""
    buckets, losses = bucketize(values), found.losses
    means = found.steps / np.maximum(losses.read, 1)
    rows = []
    for code, label in enumerate(buckets.categories):
        chosen = np.flatnonzero(buckets.codes == code)
        tokens = losses.tokens[chosen].sum()
        if not tokens:
            continue
        bits = losses.nats[chosen].sum() / np.log(2)
        rows.append(
            {
                "value": label,
                "n": len(chosen),
                "tokens": int(tokens),
                "bits_per_token": bits / tokens,
                "bits_per_byte": bits / num_bytes[chosen].sum() if num_bytes[chosen].sum() else None,
                "token_accuracy": found.right[chosen].sum() / tokens,
                "mean_steps": found.steps[chosen].sum() / losses.read[chosen].sum(),
            }
        )
    numeric = is_numeric(values)
    halts = not np.isnan(means).all()
    return {"numeric": numeric, "rows": rows, "spearman": spearman(values, means) if numeric and halts else None}
