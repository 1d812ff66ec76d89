"""Outputs of padded batches by way of a `DepthBatcher`, for code that reads a model's own outputs.

Shapes: B examples of a batch, S columns.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeVar

import torch
from transformers.utils.generic import ModelOutput

from .depth_batcher import DepthBatcher, ExampleOutput, answers_in_batches, is_recurrent
from .modes import inference_mode, is_divided

Batch = TypeVar("Batch")
# inputs that a refilled batch reads; what has others runs batch by batch
READ = {"input_ids", "attention_mask", "token_type_ids"}


def batch_outputs(
    model: Any,
    batches: Iterable[Batch],
    inputs_of: Callable[[Batch], Mapping[str, torch.Tensor]],
    output_halting: bool = False,
    batch_tokens: int | None = None,
    **options: Any,
) -> Iterator[tuple[Batch, ModelOutput]]:
    """Each batch and the model's output for it, from refilled batches where examples of the model leave early.

    Outputs then have `logits`, `ponder_cost`, `ponder_steps` and `halting_probabilities` alone.

    Args:
        model: a task model.
        inputs_of: function from a batch to its padded inputs (B, S), on the model's device.
        batch_tokens: of refilled batches, as of `DepthBatcher`; None: its default.
        options: as of `DepthBatcher`.

    Raises:
        ValueError: a batch has inputs that a refilled one does not read, and the first one has not.
    """
    limit = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    batcher = refilling_batcher(model, output_halting, {**options, **limit})
    rest = iter(batches)
    first = list(islice(rest, 1))
    batches = chain(first, rest)
    if batcher is None or any(inputs_of(batch).keys() - READ for batch in first):
        for batch in batches:
            with inference_mode(model):
                output = model(**inputs_of(batch), output_halting=output_halting, **options)
            yield batch, output
        return
    waiting: deque[tuple[Batch, torch.Tensor]] = deque()

    def examples() -> Iterator[dict[str, Any]]:
        for batch in batches:
            given = inputs_of(batch)
            for name in given.keys() - READ:
                raise ValueError(f"a batch has {name!r}, but the first one had not: give all batches the same inputs")
            inputs = {name: values.cpu().numpy() for name, values in given.items()}
            mask = inputs.get("attention_mask", inputs["input_ids"] == inputs["input_ids"])
            waiting.append((batch, torch.from_numpy(mask.astype(bool)).to(model.device)))
            for row in range(len(mask)):
                yield {name: values[row] for name, values in inputs.items()}

    outputs = batcher(examples())
    for output in outputs:
        batch, mask = waiting.popleft()
        yield batch, padded([output, *islice(outputs, len(mask) - 1)], mask)


def refilling_batcher(model: Any, output_halting: bool, options: Mapping[str, Any]) -> DepthBatcher | None:
    """A batcher of a model whose examples leave early.

    None for others, for models of other packages, that choose spans or sequences, and for those that are divided.
    """
    if not is_recurrent(model) or model.config.is_encoder_decoder or answers_in_batches(model):
        return None
    if is_divided(model):
        return None
    batcher = DepthBatcher(model, output_halting=output_halting, **options)
    with inference_mode(model):
        return batcher if batcher.can_refill(batcher.call()) else None


def padded(outputs: list[ExampleOutput], mask: torch.Tensor) -> ModelOutput:
    """The outputs of the examples of a batch with the mask (B, S) as one, padded as its inputs are."""
    found = ModelOutput()
    for name in ExampleOutput._fields:
        values = [getattr(output, name) for output in outputs]
        if values[0] is None:
            continue
        is_of_tokens = values[0].dim() == (1 if name == "ponder_steps" else 2)
        if not is_of_tokens:
            found[name] = torch.stack(values)
            continue
        joined = torch.cat(values)
        rows = joined.new_full((*mask.shape, *joined.shape[1:]), -1 if name == "ponder_steps" else 0)
        found[name] = rows.masked_scatter(mask.reshape(*mask.shape, *[1] * (joined.dim() - 1)), joined)
    return found
