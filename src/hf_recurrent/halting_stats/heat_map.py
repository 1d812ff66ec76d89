"""One example under the lens: which token (or which sentence) spent its halting mass at which depth."""

from collections.abc import Mapping
from typing import Any

import torch

from ..metrics.serialize import plain
from .inference import halting_of, inference_mode, predicted_classes, read_units, to_device
from .record import fit_depth, halting_mass


def token_heat_map(
    model: torch.nn.Module, tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]
) -> dict[str, Any]:
    """Halting mass over depth of one example, as plain Python data.

    Args:
        example: a text, a pair of texts, or an encoded row with `input_ids` (columns that are not inputs of
            the tokenizer's model are left out).

    Returns:
        `tokens` (S strings), `unit` ("token", "sentence", "example"; None for a fixed depth), `rows` (one
        label per halting unit: its token, its sentence, or the whole example), `mass` (one list of L + 1
        values per row), `steps` (one executed depth per row) and `prediction` (class id). Without halting,
        `rows`, `mass` and `steps` are empty.
    """
    inputs = to_device(_encode(tokenizer, example), model)
    halting = halting_of(model.config)
    with inference_mode(model):
        output = model(**inputs, output_halting=True)
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    result = {"tokens": tokens, "unit": None, "rows": [], "mass": [], "steps": []}
    result["prediction"] = predicted_classes(output.logits)[0]
    if halting == "none":
        return plain(result)
    kind, steps, probabilities = read_units(output, halting)
    live = steps[0] >= 0
    rows = {"token": tokens, "sentence": ["sentence 1", "sentence 2"], "example": ["example"]}[kind]
    if len(rows) != len(live):
        raise ValueError(f"the model reports {len(live)} halting units for {len(rows)} rows ({kind} halting)")
    steps = steps[0][live]
    mass = halting_mass(fit_depth(probabilities[0][live], model.config.num_hidden_layers), steps)
    kept = [row for row, alive in zip(rows, live, strict=True) if alive]
    return plain({**result, "unit": kind, "rows": kept, "mass": mass, "steps": steps})


def _encode(tokenizer: Any, example: str | tuple[str, str] | Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """A batch of one."""
    if isinstance(example, Mapping):
        known = {name: example[name] for name in tokenizer.model_input_names if name in example}
        if "input_ids" not in known:
            raise ValueError(f"an encoded example needs 'input_ids', got {sorted(example)}")
        return {name: torch.as_tensor(value).reshape(1, -1) for name, value in known.items()}
    texts = (example,) if isinstance(example, str) else tuple(example)
    return dict(tokenizer(*texts, return_tensors="pt"))
