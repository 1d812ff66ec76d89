"""One optimiser step over long documents: each row goes on with its own state, and gradients stop at segments.

Shapes: B rows of a process, N tokens a segment; G groups of B / G rows.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ..documents import Segment
from ..documents.reader import IGNORED
from ..registry import ARCHITECTURES


class StepSums(NamedTuple):
    """`nats` and `tokens` that were predicted in a step by this process, scalars on its device."""

    nats: torch.Tensor
    tokens: torch.Tensor


def require_constant_state(model: Any) -> None:
    """Raise a ValueError for a model that cannot read a document of any length piece by piece."""
    config = model.config
    if model.model.cache_remembers_padding:
        able = [
            name
            for name, family in ARCHITECTURES.items()
            if not family.model_class("AutoModel").cache_remembers_padding and name != config.model_type
        ]
        raise ValueError(
            f"model_type is {config.model_type!r}, whose cache grows with the document: expected one whose state is of "
            f"constant size: {', '.join(able)}"
        )
    if getattr(config, "chunking", "fixed") != "fixed":
        raise ValueError(
            f"config.chunking is {config.chunking!r}, which looks at the whole document at once: expected 'fixed'"
        )


def check_segment_length(config: Any, segment_length: int) -> None:
    """Raise a ValueError unless a segment consists of whole windows, where the model has windows."""
    window = getattr(config, "window_size", None)
    if window is not None and segment_length % window:
        raise ValueError(
            f"segment_length is {segment_length} and config.window_size {window}: a segment must consist of whole "
            f"windows, such as {max(round(segment_length / window), 1) * window}"
        )


def segment_inputs(segment: Segment) -> dict[str, torch.Tensor]:
    """The arguments of a model's forward pass over a segment."""
    return {
        "input_ids": segment.input_ids,
        "attention_mask": segment.attention_mask,
        "shift_labels": segment.labels,
        "start_of_document": segment.start_of_document,
    }


def train_step(accelerator: Accelerator, model: torch.nn.Module, segment: Segment, caches: list[Any]) -> StepSums:
    """Add the gradients of a segment's mean loss, over all labelled tokens of all processes and groups, to `model`.

    The segment's rows are as many groups as there are `caches`, which are read one after another and replaced by
    what they become. A ponder loss is a mean over rows and weighs as much in each group.
    """
    groups = len(caches)
    rows = segment.input_ids.shape[0] // groups
    everywhere = accelerator.reduce((segment.labels != IGNORED).sum().to(accelerator.device)).clamp_min(1)
    sums = StepSums(*torch.zeros(2, device=accelerator.device, dtype=torch.float64))
    for group in range(groups):
        part = segment.rows(slice(group * rows, (group + 1) * rows)).to(accelerator.device)
        with accelerator.no_sync(model) if group + 1 < groups else nullcontext():
            outputs = model(**segment_inputs(part), past_key_values=caches[group], use_cache=True, detach=True)
            tokens = (part.labels != IGNORED).sum()
            ponder = 0.0 if outputs.aux_loss is None else outputs.aux_loss
            prediction = outputs.loss - ponder
            # processes are averaged, so that each must give its share times their number
            share = tokens / everywhere * accelerator.num_processes
            accelerator.backward(prediction * share + ponder / groups)
        caches[group] = outputs.past_key_values
        sums = StepSums(sums.nats + prediction.detach().double() * tokens, sums.tokens + tokens)
    return sums
