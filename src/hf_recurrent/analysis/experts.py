"""Experts and the tokens that they serve: usage by step, load balance, and the tokens that go with each expert.

Shapes: B batch, S tokens, L steps, k experts of a token, E experts, V token ids.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from ..files import plain
from ..inference.modes import inference_mode
from .answers import prepare_batch, stack_input_ids, stack_output
from .evaluate import progress_bar
from .halting import joint_counts
from .model_facts import stack_depths

# module -> name of its experts in the output, and beginning of the config fields with their number and that of a token
MODULES = {
    "self-attention": ("attention_experts", "attention_experts"),
    "cross-attention": ("cross_attention_experts", "attention_experts"),
    "feed-forward": ("feed_forward_experts", "feed_forward_experts"),
}
# rarer pairs have a large pointwise mutual information by chance (Church and Hanks 1990 leave out those of 5 or fewer)
MIN_COUNT = 6
# tokens that are named of each expert, as in Table 3 of the Sparse Universal Transformer paper
TOP = 5


@dataclass
class ExpertCounts:
    """Choices of one router: `usage` (L, E) by step, and `tokens` (E, V) by token id.

    A token counts once for each of its k (`per_token`) experts in each step that it takes.
    """

    per_token: int
    usage: Any = 0
    tokens: Any = 0


def require_experts(model: Any, name: str = "the model") -> None:
    """Raise a ValueError unless `model` routes tokens to experts."""
    if not model.config.capabilities.routers:
        raise ValueError(
            f"{name} has no experts (architecture {model.config.model_type!r}): pass a model of the architecture 'sut'"
        )


def count_experts(
    model: Any, batches: Iterable[Mapping[str, Any]], *, progress: bool = False
) -> dict[str, ExpertCounts]:
    """Run a model over `batches` -> module -> the counts of its experts.

    The tokens of a decoder are its inputs when it is given the true target.

    Args:
        model: a model with experts and a head; its training mode is restored afterwards.
        batches: a data loader or any iterable of batches with `labels`.
        progress: show a progress bar.

    Raises:
        ValueError: the model has no experts, or there are no batches.
    """
    require_experts(model)
    config, counts = model.config, {}
    with inference_mode(model):
        for batch in progress_bar(batches, progress, "experts", "batch"):
            inputs = prepare_batch(model, batch).inputs
            output = model(**inputs, output_experts=True)
            for stack, (module, (field, size)) in product(stack_depths(config), MODULES.items()):
                # (B, S, L, k), negative where a token was not routed
                if (routed := stack_output(output, stack, field)) is None:
                    continue
                name = f"{stack} {module}" if config.capabilities.two_stacks else module
                found = counts.setdefault(name, ExpertCounts(getattr(config, f"{size}_per_token")))
                experts, ids = routed.cpu().numpy(), stack_input_ids(inputs, stack).cpu().numpy()
                row, token, step, _ = chosen = np.nonzero(experts >= 0)
                number = getattr(config, size)
                found.usage += joint_counts(step, experts[chosen], (experts.shape[2], number))
                found.tokens += joint_counts(experts[chosen], ids[row, token], (number, config.vocab_size))
    if not counts:
        raise ValueError("there are no batches to collect expert statistics from")
    return counts


def load_balance(counts: np.ndarray) -> float | None:
    """Entropy of the experts' shares over its maximum, log E: 1 if all of counts (E,) are equal, 0 if one is all.

    None where there is nothing to share out, or one expert.
    """
    total = counts.sum()
    if not total or len(counts) < 2:
        return None
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum() / math.log(len(counts))) + 0.0


def pointwise_mutual_information(counts: np.ndarray) -> np.ndarray:
    """Bits by which an expert and a token meet more often than by chance: log2 p(e, w) / p(e) p(w), (E, V) -> (E, V).

    Minus infinity where they never meet. Source: Church and Hanks 1990.
    """
    joint = counts / max(counts.sum(), 1)
    chance = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 0, np.log2(joint / chance), -np.inf)


def expert_table(counts: Mapping[str, ExpertCounts], tokenizer: Any, examples: int) -> dict[str, Any]:
    """The statistics of experts that a card shows, as plain Python data without NaN.

    `n` examples, and `modules`: name -> `num_experts`, `per_token`, `routed` (tokens times steps), `usage` (L lists of
    E counts), `shares` of each expert over all steps, their `balance` (entropy over log E; None for one expert),
    `balance_by_step` (None in a step that no token takes), and `experts`, those that were used, the busiest first: its
    number, its `share`, and `by_count` and `by_information`, the tokens that it served most often, and those that go
    with it most by pointwise mutual information, regardless of the step: each a `token`, its `count` with this expert,
    and the `bits` of information.
    """
    return plain({"n": examples, "modules": {name: _module_table(found, tokenizer) for name, found in counts.items()}})


def _module_table(counts: ExpertCounts, tokenizer: Any) -> dict[str, Any]:
    by_expert = counts.usage.sum(0)
    total = by_expert.sum()
    shares, bits = by_expert / max(total, 1), pointwise_mutual_information(counts.tokens)

    def named(tokens: pd.DataFrame) -> list[dict[str, Any]]:
        names = tokenizer.convert_ids_to_tokens(tokens.index.tolist())
        return tokens.assign(token=names)[["token", "count", "bits"]].to_dict("records")

    experts = []
    for expert in np.argsort(-by_expert, kind="stable")[: np.count_nonzero(by_expert)].tolist():
        tokens = pd.DataFrame({"count": counts.tokens[expert], "bits": bits[expert]})
        frequent = tokens[tokens["count"] > 0].nlargest(TOP, "count")
        informative = tokens[(tokens["count"] >= MIN_COUNT) & (tokens["bits"] > 0)].nlargest(TOP, ["bits", "count"])
        lists = {"by_count": named(frequent), "by_information": named(informative)}
        experts.append({"expert": expert, "share": shares[expert], **lists})
    return {
        "num_experts": len(by_expert),
        "per_token": counts.per_token,
        "routed": total // counts.per_token,
        "usage": counts.usage,
        "shares": shares,
        "balance": load_balance(by_expert),
        "balance_by_step": [load_balance(step) for step in counts.usage],
        "experts": experts,
    }
