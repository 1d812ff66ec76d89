"""What the readout of a classifier attends to at each step, without a map of all tokens to all tokens.

The readout is what is classified, so it depends on the family and on `config.pooling`:

- "end" or "cls": the last or the first token of a sequence, [EOS] or [BOS].
- "mean": every token of a sequence that takes the step; their reads are averaged.
- models that read chunk by chunk: the memory slots, which read the final states of each chunk once, in each of the
  layers that write the memory; their reads are averaged, and those of a chunk's tokens sum to 1.

Everywhere the heads are averaged. Of S tokens a pass needs no more memory than `QUERIES` x S weights a head.

Shapes: N sequences, which are the row, or the two texts of a siamese pair; W tokens of the longer one; S tokens of the
row; H heads, D head dim, Q queries, K keys, M memory slots, E width.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from ...models.attention import PaddedContext, SelfAttention
from ...models.chunk_plan import chunk_size
from ...models.chunk_recurrence import ChunkRecurrentModel
from ...models.depth_model import DepthModel
from ...models.memory import CrossAttention
from ...models.position import rotate
from ..halting.inference import attention_by, inference_mode

# whose weights are held at once
QUERIES = 256
TOKENS, MEMORY = "tokens", "memory"


def readout_kind(model: Any) -> str | None:
    """What reads: "tokens", "memory"; None for models whose attention this module does not know."""
    base = model.base_model
    if isinstance(base, ChunkRecurrentModel):
        return MEMORY
    return TOKENS if isinstance(base, DepthModel) and self_attentions(base) else None


def self_attentions(base: Any) -> list[SelfAttention]:
    """Those of each layer, or the one that all steps share."""
    return [module for module in base.modules() if isinstance(module, SelfAttention)]


def readout_attention(
    model: Any, inputs: Mapping[str, torch.Tensor], columns: Sequence[np.ndarray], steps: np.ndarray | None, **call: Any
) -> np.ndarray:
    """Weights (T, S) with which the readout attends to each token, in T steps, layers or layers of the memory.

    Rows are NaN over the tokens of a sequence whose readout takes no such step any more.

    Args:
        model: a classifier of which `readout_kind` is not None.
        inputs: one row without padding, on the model's device.
        columns: of the tokens of each sequence, as `route.sequences` gives them.
        steps: (S,) how many steps each token takes; None for a fixed depth.
        call: arguments of the model's own, such as `max_steps`.
    """
    base = model.base_model
    seen = MemoryReads(base, columns) if readout_kind(model) == MEMORY else TokenReads(base, columns, steps)
    with inference_mode(model), without_compaction(model), attention_by(model, "sdpa"), watched(seen.modules, seen):
        model(**inputs, **call)
    return seen.merged()


@contextmanager
def watched(modules: Sequence[torch.nn.Module], see: Callable) -> Iterator[None]:
    """Let `see(module, inputs)` know of what each of `modules` is called with."""
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(module.register_forward_pre_hook(see))
        yield


@contextmanager
def without_compaction(model: Any) -> Iterator[None]:
    """Keep halted tokens and sequences in their places, which changes no result."""
    config = model.config
    before = getattr(config, "compaction", None)
    if before is not None:
        config.compaction = False
    try:
        yield
    finally:
        if before is not None:
            config.compaction = before


class TokenReads:
    """The rows of self-attention that belong to the readout, call by call."""

    def __init__(self, base: Any, columns: Sequence[np.ndarray], steps: np.ndarray | None):
        self.modules = self_attentions(base)
        self.config = base.config
        self.columns = columns
        self.steps = steps
        self.rows: list[np.ndarray] = []

    def __call__(self, module: SelfAttention, inputs: tuple[torch.Tensor, torch.Tensor, PaddedContext]) -> None:
        """Of queries and source (N, W, E)."""
        states, source, context = inputs
        query = rotate(module.heads(module.q_proj(states)), context.rotations.query)
        key = rotate(module.heads(module.k_proj(source)), context.rotations.key)
        row = np.full(sum(map(len, self.columns)), np.nan)
        for number, own in enumerate(self.columns):
            places = self.readers(own, len(self.rows))
            if len(places):
                keys = key[number, : len(own)]
                row[own] = mean_read(query[number, : len(own)], keys, places, module.scaling, self.config.is_causal)
        self.rows.append(row)

    def readers(self, own: np.ndarray, step: int) -> np.ndarray:
        """Which tokens of a sequence are the readout and take step number `step`, counted from 0."""
        places = np.arange(len(own))
        if self.config.pooling != "mean":
            places = places[-1:] if self.config.pooling == "end" else places[:1]
        return places if self.steps is None else places[self.steps[own[places]] > step]

    def merged(self) -> np.ndarray:
        return np.stack(self.rows[: None if self.steps is None else max(1, int(self.steps.max()))])


class MemoryReads:
    """What memory slots read of each chunk, in each layer that writes the memory.

    A chunk is written when the next one begins, in the rows that have a next one, and the last chunk of every row at
    the end.
    """

    def __init__(self, base: Any, columns: Sequence[np.ndarray]):
        self.modules = [layer.attention for layer in base.memory_layers]
        self.chunks = cut(base.config, columns)
        self.most = max(map(len, self.chunks))
        self.calls = 0
        self.weights = np.full((len(self.modules), sum(map(len, columns))), np.nan)

    def __call__(self, module: CrossAttention, inputs: tuple) -> None:
        """Of slots (N, M, E), and keys and values (N, K, H, D), the chunk's before what is no token."""
        memory, source = inputs[:2]
        query = module.heads(module.q_proj(module.query_norm(memory)))
        index, layer = divmod(self.calls, len(self.modules))
        self.calls += 1
        for slots, keys, own in zip(query, source.key, self.written(index), strict=True):
            places = np.arange(len(slots))
            self.weights[layer, own] = mean_read(slots, keys[: len(own)], places, module.scaling, False)

    def written(self, index: int) -> list[np.ndarray]:
        """The columns of the chunks that are written together, at the `index`-th time."""
        if index == self.most - 1:
            return [chunks[-1] for chunks in self.chunks]
        return [chunks[index] for chunks in self.chunks if len(chunks) > index + 1]

    def merged(self) -> np.ndarray:
        return self.weights


def cut(config: Any, columns: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The columns of each chunk of each sequence."""
    width = max(map(len, columns))
    # only the balanced cut depends on the width of the batch
    sizes = [chunk_size(config, width if config.chunking == "balanced" else len(own)) for own in columns]
    return [np.split(own, range(size, len(own), size)) for own, size in zip(columns, sizes, strict=True)]


def mean_read(query: torch.Tensor, key: torch.Tensor, places: np.ndarray, scaling: float, causal: bool) -> np.ndarray:
    """Softmax attention (K,) of the queries (Q, H, D) at `places` to keys (K, H, D): the mean over them and heads."""
    total = torch.zeros(len(key), dtype=torch.float64, device=key.device)
    number = torch.arange(len(key), device=key.device)
    for start in range(0, len(places), QUERIES):
        at = torch.as_tensor(places[start : start + QUERIES], device=key.device)
        scores = torch.einsum("qhd,khd->qhk", query[at].float(), key.float()) * scaling
        if causal:
            scores = scores.masked_fill(number > at[:, None, None], -torch.inf)
        total += scores.softmax(-1).mean(1).sum(0)
    return (total / len(places)).cpu().numpy()
