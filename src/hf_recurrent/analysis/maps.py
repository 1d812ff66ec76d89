"""One example in detail: halting mass by unit and depth, and the memory slots that its chunks attend to and change.

Shapes: S tokens, K chunks, M memory slots, L depth steps, H heads, E width.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..files import plain
from ..inference.modes import inference_mode
from .explain.explanation import token_places
from .halting import unit_kind, unit_mass
from .inference import as_numpy, attention_implementation, example_inputs, to_device


def token_heat_map(model: torch.nn.Module, tokenizer: Any, example: Mapping[str, Any]) -> dict[str, Any]:
    """Halting mass over depth of one encoded example of a model that halts, as plain Python data.

    Returns:
        `rows` (one label per halting unit: its token, chunk or sentence), `mass` (one list of L + 1 values per unit)
        and `steps` (one executed depth per unit).
    """
    config, inputs = model.config, to_device(example_inputs(tokenizer, example), model)
    with inference_mode(model):
        output = model(**inputs, output_halting=True)
    (live,), steps, mass = unit_mass(output, config, config.num_hidden_layers)
    kind, names = unit_kind(output, config), tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    if kind != "token":
        names = [f"{kind} {number}" for number in range(1, len(live) + 1)]
    return plain({"rows": np.array(names)[live], "mass": mass, "steps": steps})


def has_memory(config: Any) -> bool:
    """Whether `memory_map` can draw a model of `config`: it reads one sequence, or a joint pair, chunk by chunk."""
    return config.capabilities.memory_slots > 0 and not config.capabilities.siamese


def memory_map(model: torch.nn.Module, tokenizer: Any, example: Mapping[str, Any]) -> dict[str, Any]:
    """Memory slots that each chunk of an encoded example (no padding) attends to and changes, as plain Python data.

    Returns:
        `chunks` (K strings, the tokens of each), `reads` (K lists of M values, which sum to 1: mean attention of the
        chunk's tokens to each slot, over heads and executed steps) and `writes` (K lists of M values: the norm of
        each slot's change when the chunk is written).
    """
    inputs = to_device(example_inputs(tokenizer, example), model)
    with inference_mode(model), attention_implementation(model, "eager"):
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
    tokens = pd.Series(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()))
    _, chunk = token_places(model.config, inputs)
    # rows of maps (H, S, M) sum to 1, or to 0 where a token had halted
    by_token = np.sum([as_numpy(layer[0]) for layer in output.read_attentions], axis=(0, 1))
    reads = pd.DataFrame(by_token).groupby(chunk).sum()
    states = np.stack([as_numpy(state[0]) for state in output.memory_states])
    writes = np.linalg.norm(np.diff(states, axis=0), axis=-1)
    return plain(
        {
            "chunks": tokens.groupby(chunk).agg(" ".join).tolist(),
            "reads": reads.div(reads.sum(axis=1), axis=0).to_numpy(),
            "writes": writes[: len(reads)],
        }
    )
