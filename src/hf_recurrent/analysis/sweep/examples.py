"""When the tokens of a few rows stop: what is left of their halting mass before each step.

Shapes: S tokens, U halting units of a row, L most depth steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...metrics.serialize import plain
from ..halting.heat_map import encode_example
from ..halting.inference import halting_of, inference_mode, read_units
from ..halting.record import fit_depth, halting_mass
from ..halting.stacks import ENCODER, prepare, read_ids, stacks_of

# of a row, and rows that halt as a whole
MOST_TOKENS, MOST_ROWS = 40, 16
DIGITS = 4


def remaining_mass(mass: np.ndarray) -> np.ndarray:
    """Share of a unit's output that step l or a later one gives: mass (U, L + 1) of states 0..L -> (U, L).

    One less the mass of the states before step l (`1 - sum alpha` of the paper's Figures 5 to 7).
    """
    return np.clip(mass[:, ::-1].cumsum(1)[:, ::-1][:, 1:], 0.0, 1.0)


def halting_pictures(model: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What to draw of each stack of a model that halts, as plain data.

    Args:
        rows: encoded rows in order of their lengths, with `labels`.

    Returns:
        For each stack its name, the `unit` that halts, and `examples`, each with `names` of its units, executed `steps`
        and `remaining` (U lists of L values). Where tokens halt one by one, an example is a row: one of middling length
        and the longest of at most 40 tokens. Where rows halt as a whole, or their chunks, it is up to 16 of them.
    """
    fitting = [row for row in rows if len(row["input_ids"]) <= MOST_TOKENS] or list(rows[:1])
    with inference_mode(model):
        found = [_units(model, tokenizer, row) for row in chosen_rows(model.config, fitting)]
    return plain(
        [
            {"stack": stack, "unit": unit, "examples": merged(unit, [row[stack][1] for row in found])}
            for stack, (unit, _) in found[0].items()
        ]
    )


def chosen_rows(config: Any, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The middle row and the last one, or rows at even distances where each has few units."""
    last = len(rows) - 1
    places = {last // 2, last} if config.token_units else np.linspace(0, last, MOST_ROWS).round().astype(int).tolist()
    return [rows[place] for place in sorted(set(places))]


def merged(unit: str, examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One example of all rows where each has few units."""
    if unit == "token":
        return examples
    return [{name: [unit for example in examples for unit in example[name]] for name in examples[0]}]


def _units(model: Any, tokenizer: Any, row: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Stack -> what halts in it, and of one row its units."""
    inputs = dict(encode_example(tokenizer, row))
    inputs["labels"] = torch.as_tensor(row["labels"]).reshape(1, -1)
    inputs = prepare(model, inputs).inputs
    output = model(**inputs, output_halting=True)
    found = {}
    for stack, most in stacks_of(model.config).items():
        tokens = tokenizer.convert_ids_to_tokens(read_ids(inputs, stack)[0].tolist())
        kind, steps, probabilities = read_units(_of_stack(output, stack), model.config)
        live = steps[0] >= 0
        steps, probabilities = steps[0][live], fit_depth(probabilities[0][live], most)
        mass = halting_mass(probabilities, steps, halting_of(model.config))
        names = np.array(_names(kind, tokens, len(live)))[live]
        found[stack] = (
            kind,
            {
                "names": names.tolist(),
                "steps": steps.tolist(),
                "remaining": remaining_mass(mass).round(DIGITS).tolist(),
            },
        )
    return found


def _of_stack(output: Any, stack: str) -> Any:
    """An output whose halting fields are those of a stack."""
    if stack != ENCODER:
        return output
    return type(output)(
        logits=output.logits,
        ponder_steps=output.encoder_ponder_steps,
        halting_probabilities=output.encoder_halting_probabilities,
    )


def _names(kind: str, tokens: list[str], units: int) -> list[str]:
    """What to call each unit of a row."""
    if kind == "token":
        return tokens
    row = f"{len(tokens)} tokens"
    return [row] if units == 1 else [f"{row}, {kind} {i + 1}" for i in range(units)]
