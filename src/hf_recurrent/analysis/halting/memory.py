"""Which memory slots a chunk-recurrent model reads and writes, chunk by chunk, along one example.

Shapes: S tokens, K chunks, M memory slots, L depth steps, H heads, E width.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...metrics.serialize import plain
from ...models.chunk_plan import chunk_size
from .heat_map import encode_example
from .inference import as_numpy, eager_attention, inference_mode, to_device


def has_memory(config: Any) -> bool:
    """Whether `memory_map` can draw a model of `config`: it reads a row, or a pair as one row, chunk by chunk."""
    return hasattr(config, "num_memory_slots") and getattr(config, "pair_encoding", None) != "siamese"


def memory_map(
    model: torch.nn.Module, tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]
) -> dict[str, Any]:
    """What each chunk of one example reads and writes, as plain Python data.

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
        raise ValueError(f"a {model.config.model_type!r} model has no memory slots that one row reads and writes")
    inputs = to_device(encode_example(tokenizer, example), model)
    with inference_mode(model), eager_attention(model):
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
    live = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[0].bool().cpu().numpy()
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0][live].tolist())
    # the cut of a row depends on its width, which only padding would make another than its length
    width = len(tokens) if model.config.chunking != "balanced" else len(live)
    chunk = np.arange(len(tokens)) // chunk_size(model.config, width)
    reads = reads_by_chunk([as_numpy(layer[0])[:, live] for layer in output.read_attentions], chunk)
    states = np.stack([as_numpy(state[0]) for state in output.memory_states])
    writes = np.linalg.norm(np.diff(states, axis=0), axis=-1)
    texts = [" ".join(tokens[i] for i in np.flatnonzero(chunk == number)) for number in range(len(reads))]
    return plain({"chunks": texts, "reads": reads, "writes": writes[: len(reads)]})


def reads_by_chunk(attentions: Sequence[np.ndarray], chunk: np.ndarray) -> np.ndarray:
    """Mean attention (K, M) of each chunk's tokens to each slot.

    Args:
        attentions: L maps (H, S, M), whose rows sum to 1, or to 0 where a token had halted.
        chunk: (S,) number of each token's chunk.
    """
    by_token = np.stack(attentions).sum((0, 1))
    read = np.stack([by_token[chunk == number].sum(0) for number in range(chunk.max() + 1)])
    return read / read.sum(-1, keepdims=True)
