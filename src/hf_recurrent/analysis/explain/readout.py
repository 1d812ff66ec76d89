"""Attention of the readout, the part of the final state that is classified, to each token of an example.

The readout depends on the architecture and on `config.pooling`:

- "end" or "cls": the last or the first token of a sequence, [EOS] or [BOS].
- "mean": every token of a sequence that takes the step; their attention is averaged.
- models that read chunk by chunk: the memory slots, which attend to the final states of each chunk once, in each of the
  layers that write the memory; their attention is averaged, and that to a chunk's tokens sums to 1.

The heads are averaged everywhere. A long text needs memory for `QUERIES` x S weights of each head, not for S x S.

Shapes: A steps or layers in which the readout attends, S tokens; N sequences, which are the example itself, or the two
texts of a siamese pair; H heads, D head dim, Q queries, K keys.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from ...models.ops.attention import Attention, SelfAttention

# number whose weights are held at once
QUERIES = 256
POOLED = {"end": "the last token, [EOS]", "cls": "the first token, [BOS]", "mean": "the mean over all tokens"}
Call = tuple[torch.Tensor, torch.Tensor]


def readout_modules(model: Any) -> list[Attention]:
    """The modules by which the readout attends; none if its attention is not known."""
    base = model.base_model
    if model.capabilities.memory_slots > 0:
        return [layer.attention for layer in base.memory_layers]
    if model.capabilities.reads != "whole":
        return []
    # layers before and after the block that is iterated are no steps
    parts = base.block if model.capabilities.shared_block else base
    return [module for module in parts.modules() if isinstance(module, SelfAttention)]


def describe_readout(config: Any) -> str:
    if slots := config.capabilities.memory_slots:
        return f"the mean over {slots} memory slots" if slots > 1 else "the memory slot"
    taking = " that take the step" if config.pooling == "mean" and config.capabilities.halts else ""
    return POOLED[config.pooling] + taking


@contextmanager
def recorded_calls(modules: list[Attention]) -> Iterator[list[Call]]:
    """A list that gets the queries and keys (N, Q or K, H, D) of each call of attention modules."""
    calls: list[Call] = []
    with ExitStack() as stack:
        for module in modules:

            def attend(query: torch.Tensor, key: torch.Tensor, *rest: Any, module: Any = module, **options: Any) -> Any:
                calls.append((query, key))
                return type(module).attend(module, query, key, *rest, **options)

            module.attend = attend
            stack.callback(delattr, module, "attend")
        yield calls


def readout_attention(
    model: Any, calls: list[Call], sequence: np.ndarray, chunk: np.ndarray, steps: np.ndarray | None
) -> np.ndarray:
    """Weights (A, S) with which the readout attends to each token, NaN where it takes no such step.

    Args:
        calls: of `readout_modules`, in one pass.
        sequence, chunk: (S,) numbers of the sequence of each token, and of its chunk in the sequence.
        steps: (S,) steps that each token takes; None for a fixed depth.
    """
    config, layers = model.config, len(readout_modules(model))
    by_memory, shared = config.capabilities.memory_slots > 0, model.capabilities.shared_block
    per_stage = layers if shared and not by_memory else 1
    last = [chunk[sequence == number].max() for number in range(sequence.max() + 1)]
    stages = layers if by_memory else len(calls) // per_stage if steps is None else max(1, int(steps.max()))
    rows = np.full((stages, len(sequence)), np.nan)
    for call, (query, key) in enumerate(calls):
        turn, stage = divmod(call, layers) if by_memory else (0, call // per_stage)
        # a chunk is written when the next one begins, and the last chunk of every sequence at the end
        read = [(number, min(turn, end)) for number, end in enumerate(last) if turn < end or turn == max(last)]
        for row, (number, piece) in enumerate(read if stage < stages else ()):
            own = np.flatnonzero((sequence == number) & (chunk == piece))
            readers = np.arange(query.shape[1])
            if not by_memory:
                readers = {"end": readers[len(own) - 1 : len(own)], "cls": readers[:1]}.get(
                    config.pooling, readers[: len(own)]
                )
                readers = readers if steps is None else readers[steps[own[readers]] > stage]
            if len(readers):
                causal = config.is_causal and not by_memory
                weights = mean_attention(query[row], key[row, : len(own)], readers, config.head_dim**-0.5, causal)
                # of the layers of a step their mean
                rows[stage, own] = np.nan_to_num(rows[stage, own]) + weights / per_stage
    return rows


def mean_attention(
    query: torch.Tensor, key: torch.Tensor, places: np.ndarray, scaling: float, causal: bool
) -> np.ndarray:
    """Softmax attention (K,) of the queries (Q, H, D) at `places` to keys (K, H, D): the mean over them and heads."""
    total = torch.zeros(len(key), dtype=torch.float64, device=key.device)
    number = torch.arange(len(key), device=key.device)
    key = key.float().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    for at in torch.as_tensor(places, device=key.device).split(QUERIES):
        scores = torch.einsum("qhd,khd->qhk", query[at].float(), key) * scaling
        if causal:
            scores = scores.masked_fill(number > at[:, None, None], -torch.inf)
        total += scores.softmax(-1).mean(1).sum(0)
    return (total / len(places)).cpu().numpy()
