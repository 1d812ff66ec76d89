"""`ExpertCounts` -> a JSON table: usage, balance and the tokens of each expert."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...metrics.serialize import plain, write_json
from .counts import ExpertCounts
from .measures import load_balance, most_frequent, most_informative, pointwise_mutual_information

EXPERT_FILE = "expert_stats.json"
# tokens that are named of each expert, as in Table 3 of the Sparse Universal Transformer paper
TOP = 5


def expert_table(counts: Mapping[str, ExpertCounts], tokenizer: Any, examples: int) -> dict[str, Any]:
    """Everything that a card says about experts, as plain Python data without NaN.

    `n` examples, and `modules`: name -> `num_experts`, `per_token`, `routed` (tokens times steps), `usage` (L lists of
    E counts), `shares` of each expert over all steps, their `balance` (entropy over log E; None for one expert),
    `balance_by_step` (None in a step that no token takes), and `experts`, those that were used, the busiest first: its
    number, its `share`, and `by_count` and `by_information`, the tokens that it served most often, and those that go
    with it most by pointwise mutual information, regardless of the step: each a `token`, its `count` with this expert,
    and the `bits` of information.
    """
    return plain({"n": examples, "modules": {name: _module(found, tokenizer) for name, found in counts.items()}})


def _module(counts: ExpertCounts, tokenizer: Any) -> dict[str, Any]:
    by_expert = counts.usage.sum(0)
    total = by_expert.sum()
    bits = pointwise_mutual_information(counts.tokens)
    return {
        "num_experts": len(by_expert),
        "per_token": counts.per_token,
        "routed": total // counts.per_token,
        "usage": counts.usage,
        "shares": by_expert / max(total, 1),
        "balance": load_balance(by_expert),
        "balance_by_step": [load_balance(step) for step in counts.usage],
        "experts": [
            _expert(expert, by_expert, counts.tokens[expert], bits[expert], tokenizer)
            for expert in np.argsort(-by_expert, kind="stable").tolist()
            if by_expert[expert]
        ],
    }


def _expert(expert: int, by_expert: np.ndarray, counts: np.ndarray, bits: np.ndarray, tokenizer: Any) -> dict[str, Any]:
    def named(tokens: list[int]) -> list[dict[str, Any]]:
        names = tokenizer.convert_ids_to_tokens(tokens)
        return [
            {"token": name, "count": counts[token], "bits": bits[token]}
            for name, token in zip(names, tokens, strict=True)
        ]

    return {
        "expert": expert,
        "share": by_expert[expert] / by_expert.sum(),
        "by_count": named(most_frequent(counts, TOP)),
        "by_information": named(most_informative(bits, counts, TOP)),
    }


def write_expert_stats(folder: str | os.PathLike, tables: Mapping[str, Any]) -> Path:
    """Write `{"splits": tables}`, split -> table, to `folder`/expert_stats.json in one step."""
    return write_json(Path(folder) / EXPERT_FILE, {"splits": tables})
