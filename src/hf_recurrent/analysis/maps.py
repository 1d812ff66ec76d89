"""One example in detail: halting mass by unit and depth, and the memory slots that its chunks attend to and change.

Shapes: S tokens, K chunks, M memory slots, L depth steps, H heads, E width.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..files import plain
from ..inference.modes import inference_mode
from ..models.common.token_targets import NO_TARGET
from ..models.engine.chunk_plan import chunk_size
from .halting import fit_depth, halting_mass, read_units
from .inference import (
    as_numpy,
    attention_implementation,
    encode_example,
    predicted_classes,
    predicts_tokens,
    to_device,
)
from .model_facts import stopping_rule


def token_heat_map(
    model: torch.nn.Module, tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]
) -> dict[str, Any]:
    """Halting mass over depth of one example, as plain Python data.

    Args:
        example: a text, a pair of texts, or an encoded example with `input_ids` (columns that are not inputs of
            the tokenizer's model are left out).

    Returns:
        `tokens` (S strings), `unit` ("token", "chunk", "sentence", "example"; None for a fixed depth), `rows` (one
        label per halting unit: its token, chunk or sentence, or the whole example), `mass` (one list of L + 1
        values per unit), `steps` (one executed depth per unit) and `prediction` (class id). Without halting,
        `rows`, `mass` and `steps` are empty. Of a language model, `prediction` is the id predicted for the last token,
        and `answers` has for each unit whether the token after it has a label (in an encoded example).
    """
    inputs = to_device(encode_example(tokenizer, example), model)
    with inference_mode(model):
        output = model(**inputs, output_halting=True)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    result = {"tokens": tokens, "unit": None, "rows": [], "mass": [], "steps": []}
    language = predicts_tokens(output)
    if language and len(tokens) < 2:
        raise ValueError("the example has one token: a language model predicts the last one from those before it")
    result["prediction"] = predicted_classes(output.logits[:, -2] if language else output.logits)[0]
    if not model.config.capabilities.halts:
        return plain(result)
    kind, (steps,), (probabilities,) = read_units(output, model.config)
    live = steps >= 0
    names = {
        "token": tokens,
        "chunk": [f"chunk {i + 1}" for i in range(len(live))],
        "sentence": ["sentence 1", "sentence 2"],
        "example": ["example"],
    }[kind]
    probabilities = fit_depth(probabilities[live], model.config.num_hidden_layers)
    mass = halting_mass(probabilities, steps[live], stopping_rule(model.config)[0])
    if language:
        result["answers"] = _labelled_next(example, live)
    rows = [name for name, alive in zip(names, live, strict=True) if alive]
    return plain({**result, "unit": kind, "rows": rows, "mass": mass, "steps": steps[live]})


def _labelled_next(example: Any, live: np.ndarray) -> list[bool]:
    """Whether the token after each one that is not padding has a label; only an encoded example has labels."""
    if not isinstance(example, Mapping) or "labels" not in example:
        return [False] * int(live.sum())
    labelled = np.append(np.asarray(example["labels"])[1:] != NO_TARGET, False)
    return labelled[live].tolist()


def has_memory(config: Any) -> bool:
    """Whether `memory_map` can draw a model of `config`: it reads one sequence, or a joint pair, chunk by chunk."""
    return config.capabilities.memory_slots > 0 and not config.capabilities.siamese


def memory_map(
    model: torch.nn.Module, tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]
) -> dict[str, Any]:
    """Attention of each chunk of one example to the memory slots, and its updates of them, as plain Python data.

    Args:
        example: as of `token_heat_map`.

    Returns:
        `chunks` (K strings, the tokens of each), `reads` (K lists of M values, which sum to 1: mean attention of the
        chunk's tokens to each slot, over heads and executed steps) and `writes` (K lists of M values: the norm of
        each slot's change when the chunk is written).

    Raises:
        ValueError: the model has no memory, or the example is a siamese pair.
    """
    if not has_memory(model.config):
        raise ValueError(
            f"models of type {model.config.model_type!r} have no memory slots that one row reads and writes"
        )
    inputs = to_device(encode_example(tokenizer, example), model)
    with inference_mode(model), attention_implementation(model, "eager"):
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
    live = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[0].bool().cpu().numpy()
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0][live].tolist())
    width = len(live) if (model.config.capabilities.division == "balanced") else len(tokens)
    chunk = np.arange(len(tokens)) // chunk_size(model.config, width)
    reads = attention_by_chunk([as_numpy(layer[0])[:, live] for layer in output.read_attentions], chunk)
    states = np.stack([as_numpy(state[0]) for state in output.memory_states])
    writes = np.linalg.norm(np.diff(states, axis=0), axis=-1)
    texts = [" ".join(tokens[i] for i in np.flatnonzero(chunk == number)) for number in range(len(reads))]
    return plain({"chunks": texts, "reads": reads, "writes": writes[: len(reads)]})


def attention_by_chunk(attentions: Sequence[np.ndarray], chunk: np.ndarray) -> np.ndarray:
    """Mean attention (K, M) of each chunk's tokens to each slot.

    Args:
        attentions: L maps (H, S, M), whose rows sum to 1, or to 0 where a token had halted.
        chunk: (S,) number of each token's chunk.
    """
    by_token = np.stack(attentions).sum((0, 1))
    weights = np.stack([by_token[chunk == number].sum(0) for number in range(chunk.max() + 1)])
    return weights / weights.sum(-1, keepdims=True)
