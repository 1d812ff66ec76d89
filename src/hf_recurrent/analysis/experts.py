"""Experts and the tokens that they serve: usage by step, load balance, and the tokens that go with each expert.

Shapes: B batch, S tokens, L steps, k experts of a token, E experts, V token ids.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import entropy

from ..models.ops.modes import inference_mode
from ..utils import plain
from .answers import prepare_batch, stack_input_ids, stack_output
from .evaluate import progress_bar
from .halting import joint_counts, stack_depths

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
    return float(entropy(counts, base=len(counts))) if len(counts) > 1 and counts.any() else None


def pointwise_mutual_information(counts: np.ndarray) -> np.ndarray:
    """Bits by which an expert and a token meet more often than by chance: log2 p(e, w) / p(e) p(w), (E, V) -> (E, V).

    Minus infinity where they never meet. Source: Church and Hanks 1990.
    """
    chance = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / max(counts.sum(), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 0, np.log2(counts / chance), -np.inf)


def expert_table(counts: Mapping[str, ExpertCounts], tokenizer: Any, examples: int) -> dict[str, Any]:
    """The statistics of experts that a card shows, as plain Python data without NaN.

    `n` examples, and `modules`: name -> `num_experts`, `per_token`, `usage` (L lists of E counts), their `balance` over
    all steps (see `load_balance`), and `experts`, those that were used, the busiest first: its number, its `share` of
    all tokens, and `by_count` and `by_information`, the tokens that it served most often, and those that go with it
    most by pointwise mutual information, regardless of the step: each a `token`, its `count` with this expert, and the
    `bits` of information.
    """
    return plain({"n": examples, "modules": {name: _module_table(found, tokenizer) for name, found in counts.items()}})


def _module_table(found: ExpertCounts, tokenizer: Any) -> dict[str, Any]:
    by_expert, bits = found.usage.sum(0), pointwise_mutual_information(found.tokens)

    def named(tokens: pd.DataFrame) -> list[dict[str, Any]]:
        names = tokenizer.convert_ids_to_tokens(tokens.index.tolist())
        return tokens.assign(token=names).to_dict("records")

    experts = []
    for expert in np.argsort(-by_expert, kind="stable")[: np.count_nonzero(by_expert)]:
        tokens = pd.DataFrame({"count": found.tokens[expert], "bits": bits[expert]})
        frequent = tokens[tokens["count"] > 0].nlargest(TOP, "count")
        informative = tokens[(tokens["count"] >= MIN_COUNT) & (tokens["bits"] > 0)].nlargest(TOP, ["bits", "count"])
        lists = {"by_count": named(frequent), "by_information": named(informative)}
        experts.append({"expert": expert, "share": by_expert[expert] / by_expert.sum(), **lists})
    sizes = {"num_experts": len(by_expert), "per_token": found.per_token}
    return {**sizes, "usage": found.usage, "balance": load_balance(by_expert), "experts": experts}
