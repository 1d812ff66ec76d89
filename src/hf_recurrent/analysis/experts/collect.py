"""One pass over batches -> which experts of which module served which tokens."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..halting.collect import with_progress
from ..halting.inference import inference_mode
from ..halting.stacks import DECODER, ENCODER, has_two_stacks, prepare, read_ids, stacks_of
from .counts import ExpertCounts

# module -> what the output calls its experts, and the config fields with their number and how many serve a token
MODULES = {
    "self-attention": ("attention_experts", "attention_experts"),
    "cross-attention": ("cross_attention_experts", "attention_experts"),
    "feed-forward": ("feed_forward_experts", "feed_forward_experts"),
}


def require_experts(model: Any, name: str = "the model") -> None:
    """Raise a ValueError unless `model` routes tokens to experts."""
    if not hasattr(model.config, "feed_forward_experts"):
        raise ValueError(
            f"{name} has no experts (family {model.config.model_type!r}): pass a model of the family 'sut'"
        )


def modules_of(config: Any) -> dict[str, tuple[str, str, str]]:
    """Name of each module with experts -> its stack, its field in the output and its field in the config."""
    found = {}
    for stack in stacks_of(config):
        for module, (field, size) in MODULES.items():
            if module == "cross-attention" and stack != DECODER:
                continue
            name = f"{stack} {module}" if has_two_stacks(config) else module
            found[name] = (stack, f"encoder_{field}" if stack == ENCODER else field, size)
    return found


def collect(model: Any, batches: Iterable[Mapping[str, Any]], *, progress: bool = False) -> dict[str, ExpertCounts]:
    """Run a model over `batches` -> module -> what its experts did.

    The tokens of a decoder are those that it reads when it is given the true target.

    Args:
        model: a model with experts and a head; its training mode is restored afterwards.
        batches: a data loader or any iterable of batches with `labels`.
        progress: show a progress bar.

    Raises:
        ValueError: the model has no experts, or there are no batches.
    """
    require_experts(model)
    config, modules = model.config, modules_of(model.config)
    counts = {
        name: ExpertCounts(
            stacks_of(config)[stack], getattr(config, size), config.vocab_size, getattr(config, f"{size}_per_token")
        )
        for name, (stack, _, size) in modules.items()
    }
    seen = 0
    with inference_mode(model):
        for batch in with_progress(batches, progress, "experts", "batch"):
            inputs = prepare(model, batch).inputs
            output = model(**inputs, output_experts=True)
            for name, (stack, field, _) in modules.items():
                counts[name].add(_numpy(output[field]), _numpy(read_ids(inputs, stack)))
            seen += 1
    if not seen:
        raise ValueError("there are no batches to collect expert statistics from")
    return counts


def _numpy(ids: torch.Tensor):
    return ids.cpu().numpy()
