"""Run a model on one example and keep what its steps did.

Shapes: T steps, H heads, S tokens, E width, W tokens of the longer sentence; N sequences, which are the row, or the two
sentences of a siamese pair.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...models.chunk_plan import chunk_size
from ...models.heads import split_pairs
from ...registry import FAMILIES
from ..halting.inference import as_numpy, eager_attention, halting_of, inference_mode, to_device
from .explanation import Explanation
from .text import MAX_TOKENS, encode_text


def explain(
    model: Any,
    tokenizer: Any,
    text: str,
    text_pair: str | None = None,
    max_steps: int | None = None,
    most_tokens: int | None = MAX_TOKENS,
) -> Explanation:
    """How a classifier or causal language model of this package routes one text, or one pair of texts.

    Args:
        max_steps: depth limit of this pass instead of the model's.
        most_tokens: refuse longer texts; None: take any.

    Raises:
        ValueError: a model that has no attention, no head or none of our families; a text that `encode_text`
            refuses; or `max_steps` that the model refuses.
    """
    check_model(model)
    return explain_row(model, tokenizer, encode_text(model, tokenizer, text, text_pair, most_tokens), max_steps)


def check_model(model: Any) -> None:
    config = model.config
    if config.model_type not in FAMILIES:
        raise ValueError(f"model is a {config.model_type!r}: expected one of {', '.join(FAMILIES)}")
    if not hasattr(config, "num_attention_heads"):
        raise ValueError(
            f"model is of the family {config.model_type!r}, which has no attention: there are no maps or gates to show"
        )
    if hasattr(config, "window_size"):
        raise ValueError(
            f"model is of the family {config.model_type!r}, whose tokens attend to the places of a window, not to the "
            "tokens of a row: call it with output_attentions=True and output_gates=True"
        )


def explain_row(
    model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], max_steps: int | None = None
) -> Explanation:
    """`explain` of an encoded row without padding: tensors (1, S) under the names of the model's inputs."""
    check_model(model)
    inputs, config = to_device(inputs, model), model.config
    wanted = {"output_attentions": True, "output_gates": True, "output_halting": True, "max_steps": max_steps}
    with inference_mode(model), eager_attention(model):
        output = model(**inputs, **wanted)
    if getattr(output, "logits", None) is None:
        raise ValueError(f"model is a {type(model).__name__}, which predicts nothing: pass one with a head")
    columns, length = sequences(config, inputs), inputs["input_ids"].shape[1]
    prediction, probability = predicted(output.logits, config, tokenizer)
    steps = halting = None
    if halting_of(config) != "none":
        steps = by_token(output.ponder_steps[0].cpu().numpy(), columns, length, config)
        probabilities = as_numpy(output.halting_probabilities)[0]
        halting = by_token(probabilities, columns, length, config).T[: len(output.attentions)]
    return Explanation(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        prediction=prediction,
        probability=probability,
        attention=np.stack([merged_maps(as_numpy(maps), columns, length) for maps in output.attentions]),
        gates=None
        if output.gates is None
        else np.stack([merged_gates(gate, columns, length) for gate in output.gates]),
        steps=steps,
        halting=halting,
        freezes=not halting_of(config).startswith("act"),
        readout=readout(config, length, output.logits.dim() == 3),
        continues=output.logits.dim() == 3,
    )


def predicted(logits: torch.Tensor, config: Any, tokenizer: Any) -> tuple[str, float | None]:
    """What is predicted, in words, and its probability, from logits (1, C) or (1, S, V)."""
    if logits.dim() == 3:
        shares = logits[0, -1].float().softmax(-1)
        best = int(shares.argmax())
        return tokenizer.convert_ids_to_tokens(best), float(shares[best])
    scores = logits[0].float()
    if len(scores) == 1 and config.problem_type in (None, "regression"):
        return f"{scores.item():.4g}", None
    several = config.problem_type == "multi_label_classification"
    shares = scores.sigmoid() if several else scores.softmax(-1)
    best = int(shares.argmax())
    return str(config.id2label[best]), float(shares[best])


def readout(config: Any, length: int, language: bool) -> int | None:
    """The token whose state is read out; None where it is a mean, a memory, or one of each sentence."""
    if language or (config.pooling == "end" and config.pair_encoding == "joint"):
        return length - 1
    return 0 if config.pooling == "cls" and config.pair_encoding == "joint" else None


def sequences(config: Any, inputs: Mapping[str, torch.Tensor]) -> list[np.ndarray]:
    """The columns of each sequence that the model encodes by itself."""
    length = inputs["input_ids"].shape[1]
    if config.pair_encoding != "siamese":
        return [np.arange(length)]
    mask = torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    pairs = split_pairs(mask, inputs["token_type_ids"])
    return [index[kept].cpu().numpy() for index, kept in zip(pairs.index, pairs.mask, strict=True)]


def merged_maps(maps: np.ndarray, columns: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, H, W, W) -> (H, S, S), zero between sequences."""
    merged = np.zeros((maps.shape[1], length, length))
    for block, own in zip(maps, columns, strict=True):
        merged[:, own[:, None], own] = block[:, : len(own), : len(own)]
    return merged


def merged_gates(gates: torch.Tensor, columns: Sequence[np.ndarray], length: int) -> np.ndarray:
    """(N, W, E) -> (S,) mean over units."""
    merged = np.zeros(length)
    for row, own in zip(as_numpy(gates).mean(-1), columns, strict=True):
        merged[own] = row[: len(own)]
    return merged


def by_token(values: np.ndarray, columns: Sequence[np.ndarray], length: int, config: Any) -> np.ndarray:
    """What is said of a row's halting units, (units...) or (units..., T), for each token: (S) or (S, T).

    Units are tokens, or each sequence as a whole, or each of its chunks.
    """
    if config.token_units:
        return values
    units = 0 if len(columns) == 1 else 1
    units += hasattr(config, "chunking")
    by_sequence = values.reshape(len(columns), -1, *values.shape[units:])
    width = max(map(len, columns))
    merged = np.zeros((length, *by_sequence.shape[2:]), dtype=values.dtype)
    for row, own in zip(by_sequence, columns, strict=True):
        unit = np.zeros(len(own), dtype=int)
        if hasattr(config, "chunking"):
            # only the balanced cut depends on the width of the batch
            unit = np.arange(len(own)) // chunk_size(config, width if config.chunking == "balanced" else len(own))
        merged[own] = row[unit]
    return merged
