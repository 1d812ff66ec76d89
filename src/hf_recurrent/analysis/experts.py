"""Experts and the tokens that they serve: usage by step, load balance, and the tokens that go with each expert.

Shapes: B batch, S tokens, L steps, k experts of a token, E experts, V token ids.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..files import plain
from ..inference.modes import inference_mode
from .inference import prepare_batch, progress_bar, stack_input_ids, stack_output
from .model_facts import DECODER, stack_depths
from .tables import joint_counts

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


class ExpertCounts:
    """Sums over batches of one router's choices: `usage` (L, E) by step, and `tokens` (E, V) by token id.

    A token counts once for each of its k experts in each step that it takes.
    """

    def __init__(self, num_steps: int, num_experts: int, vocab_size: int, per_token: int):
        self.per_token = per_token
        self.usage = np.zeros((num_steps, num_experts), dtype=np.int64)
        self.tokens = np.zeros((num_experts, vocab_size), dtype=np.int64)

    def add(self, experts: np.ndarray, ids: np.ndarray) -> None:
        """Count a batch: expert ids (B, S, L, k), negative where a token was not routed, and token ids (B, S)."""
        row, token, step, _ = routed = np.nonzero(experts >= 0)
        chosen, tokens = experts[routed], ids[row, token]
        self.usage += joint_counts(step, chosen, self.usage.shape)
        self.tokens += joint_counts(chosen, tokens, self.tokens.shape)


def require_experts(model: Any, name: str = "the model") -> None:
    """Raise a ValueError unless `model` routes tokens to experts."""
    if not model.config.capabilities.routers:
        raise ValueError(
            f"{name} has no experts (architecture {model.config.model_type!r}): pass a model of the architecture 'sut'"
        )


def expert_modules(config: Any) -> dict[str, tuple[str, str, str]]:
    """Name of each module with experts -> its stack, its field in the output and its field in the config."""
    return {
        f"{stack} {module}" if config.capabilities.two_stacks else module: (stack, field, size)
        for stack in stack_depths(config)
        for module, (field, size) in MODULES.items()
        if module != "cross-attention" or stack == DECODER
    }


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
    config, modules, seen = model.config, expert_modules(model.config), False
    counts = {
        name: ExpertCounts(
            stack_depths(config)[stack], getattr(config, size), config.vocab_size, getattr(config, f"{size}_per_token")
        )
        for name, (stack, _, size) in modules.items()
    }
    with inference_mode(model):
        for batch in progress_bar(batches, progress, "experts", "batch"):
            inputs = prepare_batch(model, batch).inputs
            output, seen = model(**inputs, output_experts=True), True
            for name, (stack, field, _) in modules.items():
                experts, ids = stack_output(output, stack, field), stack_input_ids(inputs, stack)
                counts[name].add(experts.cpu().numpy(), ids.cpu().numpy())
    if not seen:
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
    found = np.full(counts.shape, -np.inf)
    met = counts > 0
    found[met] = np.log2(joint[met] / chance[met])
    return found


def most_frequent(counts: np.ndarray, number: int) -> list[int]:
    """The token ids that an expert served most often, of counts (V,), the lower id first among equals."""
    order = np.argsort(-counts, kind="stable")[:number]
    return [int(token) for token in order if counts[token] > 0]


def most_informative(bits: np.ndarray, counts: np.ndarray, number: int) -> list[int]:
    """The token ids of the highest information with an expert, of bits and counts (V,), without those that are rare.

    Only those that meet the expert more often than by chance.
    """
    order = np.lexsort((-counts, -bits))
    return [int(token) for token in order if counts[token] >= MIN_COUNT and bits[token] > 0][:number]


def expert_table(counts: Mapping[str, ExpertCounts], tokenizer: Any, examples: int) -> dict[str, Any]:
    """The statistics of experts that a card shows, as plain Python data without NaN.

    `n` examples, and `modules`: name -> `num_experts`, `per_token`, `routed` (tokens times steps), `usage` (L lists of
    E counts), `shares` of each expert over all steps, their `balance` (entropy over log E; None for one expert),
    `balance_by_step` (None in a step that no token takes), and `experts`, those that were used, the busiest first: its
    number, its `share`, and `by_count` and `by_information`, the tokens that it served most often, and those that go
    with it most by pointwise mutual information, regardless of the step: each a `token`, its `count` with this expert,
    and the `bits` of information.
    """
    return plain({"n": examples, "modules": {name: module_table(found, tokenizer) for name, found in counts.items()}})


def module_table(counts: ExpertCounts, tokenizer: Any) -> dict[str, Any]:
    by_expert = counts.usage.sum(0)
    total = by_expert.sum()
    bits = pointwise_mutual_information(counts.tokens)

    def named(tokens: list[int], expert: int) -> list[dict[str, Any]]:
        names = tokenizer.convert_ids_to_tokens(tokens)
        return [
            {"token": name, "count": counts.tokens[expert, token], "bits": bits[expert, token]}
            for name, token in zip(names, tokens, strict=True)
        ]

    return {
        "num_experts": len(by_expert),
        "per_token": counts.per_token,
        "routed": total // counts.per_token,
        "usage": counts.usage,
        "shares": by_expert / max(total, 1),
        "balance": load_balance(by_expert),
        "balance_by_step": [load_balance(step) for step in counts.usage],
        "experts": [
            {
                "expert": expert,
                "share": by_expert[expert] / total,
                "by_count": named(most_frequent(counts.tokens[expert], TOP), expert),
                "by_information": named(most_informative(bits[expert], counts.tokens[expert], TOP), expert),
            }
            for expert in np.argsort(-by_expert, kind="stable").tolist()
            if by_expert[expert]
        ],
    }
