"""One example under the lens: which token (or which sentence) spent its halting mass at which depth."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...metrics.serialize import plain
from .inference import halting_of, inference_mode, predicted_classes, read_units, to_device
from .record import fit_depth, halting_mass
from .tokens import IGNORED, is_language_model


def token_heat_map(
    model: torch.nn.Module, tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]
) -> dict[str, Any]:
    """Halting mass over depth of one example, as plain Python data.

    Args:
        example: a text, a pair of texts, or an encoded row with `input_ids` (columns that are not inputs of
            the tokenizer's model are left out).

    Returns:
        `tokens` (S strings), `unit` ("token", "chunk", "sentence", "example"; None for a fixed depth), `rows` (one
        label per halting unit: its token, chunk or sentence, or the whole example), `mass` (one list of L + 1
        values per row), `steps` (one executed depth per row) and `prediction` (class id). Without halting,
        `rows`, `mass` and `steps` are empty. Of a language model, `prediction` is the id predicted for the last token,
        and `answers` says for each of `rows` whether the token after it has a label (in an encoded row).
    """
    inputs = to_device(encode_example(tokenizer, example), model)
    halting = halting_of(model.config)
    with inference_mode(model):
        output = model(**inputs, output_halting=True)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    result = {"tokens": tokens, "unit": None, "rows": [], "mass": [], "steps": []}
    language = is_language_model(output)
    result["prediction"] = predicted_classes(output.logits[:, -2] if language else output.logits)[0]
    if halting == "none":
        return plain(result)
    kind, steps, probabilities = read_units(output, model.config)
    live = steps[0] >= 0
    chunks = [f"chunk {i + 1}" for i in range(len(live))]
    sentences = ["sentence 1", "sentence 2"]
    rows = {"token": tokens, "chunk": chunks, "sentence": sentences, "example": ["example"]}[kind]
    if len(rows) != len(live):
        raise ValueError(f"the model reports {len(live)} halting units for {len(rows)} rows ({kind} halting)")
    steps = steps[0][live]
    mass = halting_mass(fit_depth(probabilities[0][live], model.config.num_hidden_layers), steps, halting)
    kept = [row for row, alive in zip(rows, live, strict=True) if alive]
    if language:
        result["answers"] = _answers(example, live)
    return plain({**result, "unit": kind, "rows": kept, "mass": mass, "steps": steps})


def _answers(example: Any, live: np.ndarray) -> list[bool]:
    """Whether the token after each living one has a label, which only an encoded row can say."""
    if not isinstance(example, Mapping) or "labels" not in example:
        return [False] * int(live.sum())
    labelled = np.append(np.asarray(example["labels"])[1:] != IGNORED, False)
    return labelled[live].tolist()


def encode_example(tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """An example as a batch of one."""
    if isinstance(example, Mapping):
        known = {name: example[name] for name in tokenizer.model_input_names if name in example}
        if "input_ids" not in known:
            raise ValueError(f"an encoded example needs 'input_ids', got {sorted(example)}")
        return {name: torch.as_tensor(value).reshape(1, -1) for name, value in known.items()}
    texts = (example,) if isinstance(example, str) else tuple(example)
    return dict(tokenizer(*texts, return_tensors="pt"))
