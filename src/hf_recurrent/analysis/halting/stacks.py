"""Models of one stack and of two, an encoder and a decoder, alike: their batches, and what they are called.

Shapes: B rows, S tokens, T tokens of a target.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from .inference import split_labels, to_device
from .tokens import IGNORED

# the stack of a model that has one, and those of one that has two
MODEL, ENCODER, DECODER = "model", "encoder", "decoder"


class Batch(NamedTuple):
    """Inputs on the model's device, and labels: (B,) classes, or token ids (B, S) or (B, T), -100 where there is none.

    Where a model writes a target, inputs hold that too, one token behind the labels.
    """

    inputs: dict[str, torch.Tensor]
    labels: np.ndarray


def has_two_stacks(config: Any) -> bool:
    """Whether a model reads with one stack and writes with another."""
    return bool(getattr(config, "is_encoder_decoder", False))


def stacks_of(config: Any) -> dict[str, int]:
    """The most depth steps of each stack."""
    if has_two_stacks(config):
        return {ENCODER: config.num_hidden_layers, DECODER: config.num_decoder_layers}
    return {MODEL: config.num_hidden_layers}


def prepare(model: Any, batch: Mapping[str, Any]) -> Batch:
    """A batch of a data loader as `Batch`.

    Raises:
        ValueError: it has no labels.
    """
    batch = to_device(batch, model)
    inputs, labels = split_labels(batch)
    if has_two_stacks(model.config):
        from ...models.target_labels import read_mask

        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
        inputs["decoder_attention_mask"] = read_mask(batch["labels"], None, None)
    elif labels.ndim > 1 and "attention_mask" in inputs:
        # padding on the left predicts nothing, as in the model's own loss
        behind_padding = np.pad(inputs["attention_mask"].cpu().numpy()[:, :-1] == 0, ((0, 0), (1, 0)))
        labels = np.where(behind_padding, IGNORED, labels)
    return Batch(inputs, labels)


def read_ids(inputs: Mapping[str, torch.Tensor], stack: str) -> torch.Tensor:
    """The token ids that a stack reads."""
    return inputs["decoder_input_ids" if stack == DECODER else "input_ids"]
