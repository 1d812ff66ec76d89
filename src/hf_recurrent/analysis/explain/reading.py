"""One example of many tokens: how deep the model went at each, and what its readout attended to.

`Explanation` holds all of a short text's attention; this is what can be held and seen of thousands of tokens.
Shapes: T steps, A steps or layers in which the readout attends, S tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..halting.inference import as_numpy, halting_of, inference_mode, to_device
from .canvas import Canvas, NotDrawableError, canvas_of
from .readout import MEMORY, TOKENS, cut, readout_attention, readout_kind
from .route import by_token, predicted, sequences
from .text import encode_text

READERS = {"end": "the last token, [EOS]", "cls": "the first token, [BOS]", "mean": "the mean over all tokens"}


@dataclass(frozen=True)
class Reading:
    """What became of one row.

    Attributes:
        prediction: the label's name, or the value of a regression.
        probability: of the prediction; None for a regression.
        unit: what halts: "token", "chunk", "sentence" (each text of a pair by itself), "row"; None for a fixed depth.
        steps: (S,) how many steps each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting, up to the step at which the last token stopped; zero
            after a token has. None for a fixed depth.
        attention: (A, S) weights with which the readout attends to each token, as `readout_attention` gives them;
            None where these are not known.
        beside: (S,) how many tokens share the readout's attention with each one, itself included: those of its chunk or
            of its sequence.
        chunks: (S,) the number of the chunk that each token is read in, counted over all texts; None for models that
            read a row at once.
        stage: what A counts: "step", "layer" or "memory layer".
        reader: the readout in words; None without attention.
    """

    prediction: str
    probability: float | None
    unit: str | None
    steps: np.ndarray | None
    halting: np.ndarray | None
    attention: np.ndarray | None
    beside: np.ndarray
    chunks: np.ndarray | None
    stage: str
    reader: str | None

    @property
    def num_steps(self) -> int:
        """Steps that the deepest token took."""
        return 0 if self.steps is None else int(self.steps.max())

    @property
    def relative(self) -> np.ndarray:
        """(A, S) attention as a multiple of an even share: 1 where all tokens beside a token are attended to alike."""
        return self.attention * self.beside

    def last_read(self, columns: np.ndarray) -> int | None:
        """The last of A at which the readout attended to the tokens in these columns; None if it never did."""
        if self.attention is None:
            return None
        attended = np.flatnonzero(~np.isnan(self.attention[:, columns]).all(-1))
        return int(attended[-1]) if len(attended) else None


def read(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, max_steps: int | None = None
) -> tuple[Reading, Canvas]:
    """How a classifier reads a picture's pixels, or the bytes of a text, or a pair of either.

    Raises:
        NotDrawableError: see `canvas_of` and `read_row`.
        ValueError: a text that `encode_text` refuses, or `max_steps` that the model refuses.
    """
    inputs = encode_text(model, tokenizer, text, text_pair, most_tokens=None)
    canvas = canvas_of(tokenizer, inputs)
    return read_row(model, tokenizer, inputs, max_steps), canvas


def read_row(model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], max_steps: int | None = None) -> Reading:
    """`read` of an encoded row without padding: tensors (1, S) under the names of the model's inputs.

    Two passes: the first tells the steps, without which it is not known whose reads count in the second.

    Raises:
        NotDrawableError: the model is no classifier, or it neither halts nor has attention that is known.
    """
    inputs, config = to_device(inputs, model), model.config
    halts, kind = halting_of(config) != "none", readout_kind(model)
    if not halts and kind is None:
        raise NotDrawableError(
            f"model is of the family {config.model_type!r}, of whose depth and attention there is nothing to draw"
        )
    with inference_mode(model):
        output = model(**inputs, output_halting=True, max_steps=max_steps)
    logits = getattr(output, "logits", None)
    if logits is None or logits.dim() != 2:
        raise NotDrawableError(f"model is a {type(model).__name__}: only what a classifier reads is drawn")
    columns, length = sequences(config, inputs), inputs["input_ids"].shape[1]
    prediction, probability = predicted(logits, config, tokenizer)
    steps = halting = attention = chunks = None
    groups = cut(config, columns) if hasattr(config, "chunking") else [[own] for own in columns]
    pieces = [piece for group in groups for piece in group]
    if halts:
        steps = by_token(output.ponder_steps[0].cpu().numpy(), columns, length, config)
        halting = by_token(as_numpy(output.halting_probabilities)[0], columns, length, config).T
        halting = halting[: int(steps.max()) + 1]
    if kind is not None:
        attention = readout_attention(model, inputs, columns, steps, max_steps=max_steps)
    sizes, order = [len(piece) for piece in pieces], np.argsort(np.concatenate(pieces))
    if hasattr(config, "chunking"):
        chunks = np.repeat(np.arange(len(pieces)), sizes)[order]
    return Reading(
        prediction=prediction,
        probability=probability,
        unit=unit_of(config) if halts else None,
        steps=steps,
        halting=halting,
        attention=attention,
        beside=np.repeat(sizes, sizes)[order],
        chunks=chunks,
        stage="memory layer" if kind == MEMORY else "step" if hasattr(model.base_model, "block") else "layer",
        reader=None if kind is None else reader_of(config, kind),
    )


def unit_of(config: Any) -> str:
    if config.token_units:
        return "token"
    if hasattr(config, "chunking"):
        return "chunk"
    return "sentence" if config.pair_encoding == "siamese" else "row"


def reader_of(config: Any, kind: str) -> str:
    """The readout in words."""
    if kind == TOKENS:
        taking = " that take the step" if config.pooling == "mean" and halting_of(config) != "none" else ""
        return READERS[config.pooling] + taking
    slots = config.num_memory_slots
    return f"the mean over {slots} memory slots" if slots > 1 else "the memory slot"
