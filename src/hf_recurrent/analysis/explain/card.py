"""Single examples in a model card: their explanations, halting mass by depth, and memory slots that chunks change.

Shapes: S tokens, K chunks, M memory slots, L depth steps, H heads, E width.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...data.labels import MULTI
from ...models.ops.modes import inference_mode
from ...utils import file_name, plain
from ..answers import answer_name, as_numpy, example_inputs, to_device
from ..evaluate import attention_implementation
from ..halting import unit_kind, unit_mass
from .explanation import (
    MAX_PICTURE_TOKENS,
    MAX_TOKENS,
    NotExplainedError,
    check_model,
    explain_encoded,
    reads_pixels,
    token_places,
)

# tokens of the pictures that a card shows, if there are some
PICTURE_TOKENS = 1000


def draw_example(
    folder: str | os.PathLike, model: Any, tokenizer: Any, example: Mapping[str, Any], *, prefix: str, max_prompt: int
) -> dict[str, Any] | None:
    """Draw the `Explanation` of an encoded example into `folder`/assets.

    Args:
        example: the inputs of a classifier with `labels`, one number or a list of shares; or of a language model with
            one for each token, -100 where there is none, which are cut before a labelled token, after `max_prompt`
            tokens at most.
        prefix: beginning of the figure's name.

    Returns:
        The `kind` of the figure, "routing" of a text or "picture"; its `path` in the folder; and as entries of
        `routing` and `pictures` in results have them, the right `answer`, the `prediction`, its `probability`, and of
        a text the `tokens`. None where there is nothing to draw: texts of models whose layers are not shared, that
        read chunks, or route tokens to experts; more tokens than can be seen; or pixels of a picture that was cut.
    """
    capabilities, inputs, labels = model.capabilities, example_inputs(tokenizer, example), example["labels"]
    pixels = reads_pixels(model, tokenizer)
    if not pixels and (not capabilities.shared_block or capabilities.reads != "whole" or capabilities.routers):
        return None
    if np.ndim(labels) == 0 or model.config.problem_type == MULTI:
        answer = answer_name(labels, model.config)
    else:
        answered = [place for place, label in enumerate(labels) if place > 0 and label >= 0]
        place = max((place for place in answered if place <= max_prompt), default=answered[0])
        inputs = {name: value[:, :place] for name, value in inputs.items()}
        answer = tokenizer.convert_ids_to_tokens(labels[place])
    if inputs["input_ids"].shape[1] > (MAX_PICTURE_TOKENS if pixels else MAX_TOKENS):
        return None
    try:
        check_model(model)
        found = explain_encoded(model, tokenizer, inputs)
    except NotExplainedError:
        return None
    # only those who draw import matplotlib
    from .plots import plot_explanation

    kind = "picture" if pixels else "routing"
    path = f"assets/{file_name(prefix, kind)}.png"
    plot_explanation(found, Path(folder) / path)
    facts = {"answer": answer, "prediction": found.prediction, "probability": found.probability}
    return {"kind": kind, "path": path, **facts, **({} if pixels else {"tokens": found.tokens})}


def examples_to_draw(lengths: Sequence[int], labels: Sequence[int]) -> list[int]:
    """For each of the first two labels, the example with a length in tokens nearest to `PICTURE_TOKENS`."""
    order = sorted(range(len(lengths)), key=lambda place: abs(lengths[place] - PICTURE_TOKENS))
    return [next(place for place in order if labels[place] == label) for label in sorted(set(labels))[:2]]


def token_heat_map(model: Any, tokenizer: Any, example: Mapping[str, Any]) -> dict[str, Any]:
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


def memory_map(model: Any, tokenizer: Any, example: Mapping[str, Any]) -> dict[str, Any]:
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
