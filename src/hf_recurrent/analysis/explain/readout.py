"""One example of many tokens: the depth of each, and the attention of the readout to each.

`Explanation` holds all of a short text's attention; a `ReadoutTrace` can be held and seen of thousands of tokens. The
readout is the part of the final state that is classified, so it depends on the architecture and on `config.pooling`:

- "end" or "cls": the last or the first token of a sequence, [EOS] or [BOS].
- "mean": every token of a sequence that takes the step; their attention is averaged.
- models that read chunk by chunk: the memory slots, which attend to the final states of each chunk once, in each of the
  layers that write the memory; their attention is averaged, and that to a chunk's tokens sums to 1.

Everywhere the heads are averaged. Of S tokens a pass needs no more memory than `QUERIES` x S weights a head.

Shapes: T steps, A steps or layers in which the readout attends, S tokens; N sequences, which are the example itself, or
the two texts of a siamese pair; W tokens of the longer one; H heads, D head dim, Q queries, K keys, M memory slots,
E width.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...inference.modes import inference_mode
from ...models.ops.attention import PackedContext, PaddedContext, Rotations, SelfAttention
from ...models.ops.memory import CrossAttention
from ...models.ops.positions import rotate
from ..inference import as_numpy, attention_implementation, config_fields, to_device
from ..model_facts import halting_unit
from .canvas import Canvas, NotDrawableError, canvas_of
from .explanation import chunk_columns, encode_text, expand_units, format_prediction, sequence_columns

# number whose weights are held at once
QUERIES = 256
TOKENS, MEMORY = "tokens", "memory"
POOLED = {"end": "the last token, [EOS]", "cls": "the first token, [BOS]", "mean": "the mean over all tokens"}


@dataclass(frozen=True)
class ReadoutTrace:
    """Depth and readout attention of one example.

    Attributes:
        prediction: the label's name, or the value of a regression.
        probability: of the prediction; None for a regression.
        unit: what halts: "token", "chunk", "sentence" (each text of a pair by itself), "row"; None for a fixed depth.
        steps: (S,) steps that each token took and kept; None for a fixed depth.
        halting: (T, S) conditional probabilities of halting, up to the step at which the last token stopped; zero
            after a token has. None for a fixed depth.
        attention: (A, S) weights with which the readout attends to each token, as `readout_attention` gives them;
            None where these are not known.
        group_size: (S,) number of tokens that share the readout's attention with each one, itself included: those of
            its chunk or of its sequence.
        chunks: (S,) the number of the chunk that each token is read in, counted over all texts; None for models that
            read a row at once.
        stage: what A counts: "step", "layer" or "memory layer".
        reader: description of the readout; None without attention.
    """

    prediction: str
    probability: float | None
    unit: str | None
    steps: np.ndarray | None
    halting: np.ndarray | None
    attention: np.ndarray | None
    group_size: np.ndarray
    chunks: np.ndarray | None
    stage: str
    reader: str | None

    @property
    def num_steps(self) -> int:
        """Steps that the deepest token took."""
        return 0 if self.steps is None else int(self.steps.max())

    @property
    def relative(self) -> np.ndarray:
        """(A, S) attention as a multiple of an even share: 1 where all tokens of a group are attended to alike."""
        return self.attention * self.group_size

    def last_attended(self, columns: np.ndarray) -> int | None:
        """The last of A at which the readout attended to the tokens in these columns; None if it never did."""
        if self.attention is None:
            return None
        attended = np.flatnonzero(~np.isnan(self.attention[:, columns]).all(-1))
        return int(attended[-1]) if len(attended) else None


def trace_readout(
    model: Any, tokenizer: Any, text: str, text_pair: str | None = None, max_depth: int | None = None
) -> tuple[ReadoutTrace, Canvas]:
    """Depth and readout attention of a classifier on a picture's pixels, the bytes of a text, or a pair of either.

    Raises:
        NotDrawableError: see `canvas_of` and `trace_encoded`.
        ValueError: a text that `encode_text` does not accept, or `max_depth` that the model does not accept.
    """
    inputs = encode_text(model, tokenizer, text, text_pair, max_tokens=None)
    canvas = canvas_of(tokenizer, inputs)
    return trace_encoded(model, tokenizer, inputs, max_depth), canvas


def trace_encoded(
    model: Any, tokenizer: Any, inputs: Mapping[str, torch.Tensor], max_depth: int | None = None
) -> ReadoutTrace:
    """`trace_readout` of an encoded example without padding: tensors (1, S) by the names of the model's inputs.

    Two passes: the steps of the first decide whose attention counts in the second.

    Raises:
        NotDrawableError: the model is no classifier, or it neither halts nor has attention that is known.
    """
    inputs, config = to_device(inputs, model), model.config
    kind = readout_kind(model)
    if not config.capabilities.halts and kind is None:
        raise NotDrawableError(
            f"model is of the architecture {config.model_type!r}, of whose depth and attention there is nothing to draw"
        )
    with inference_mode(model):
        output = model(**inputs, output_halting=True, max_depth=max_depth)
    logits = getattr(output, "logits", None)
    if logits is None or logits.dim() != 2:
        raise NotDrawableError(f"model is of class {type(model).__name__}: only what a classifier reads is drawn")
    columns, length = sequence_columns(config, inputs), inputs["input_ids"].shape[1]
    prediction, probability = format_prediction(logits, config, tokenizer)
    steps = halting = None
    if config.capabilities.halts:
        steps = expand_units(output.ponder_steps[0].cpu().numpy(), columns, length, config)
        halting = expand_units(as_numpy(output.halting_probabilities)[0], columns, length, config).T
        halting = halting[: int(steps.max()) + 1]
    groups = [chunk for chunks in chunk_columns(config, columns) for chunk in chunks]
    sizes, order = [len(group) for group in groups], np.argsort(np.concatenate(groups))
    return ReadoutTrace(
        prediction=prediction,
        probability=probability,
        unit=halting_unit(config) if config.capabilities.halts else None,
        steps=steps,
        halting=halting,
        attention=None if kind is None else readout_attention(model, inputs, columns, steps, max_depth=max_depth),
        group_size=np.repeat(sizes, sizes)[order],
        chunks=np.repeat(np.arange(len(groups)), sizes)[order] if config.capabilities.reads == "chunks" else None,
        stage="memory layer" if kind == MEMORY else "step" if model.capabilities.shared_block else "layer",
        reader=None if kind is None else describe_readout(config, kind),
    )


def describe_readout(config: Any, kind: str) -> str:
    if kind == TOKENS:
        taking = " that take the step" if config.pooling == "mean" and config.capabilities.halts else ""
        return POOLED[config.pooling] + taking
    slots = config.num_memory_slots
    return f"the mean over {slots} memory slots" if slots > 1 else "the memory slot"


def readout_kind(model: Any) -> str | None:
    """The part of the model that attends: "tokens", "memory"; None for models whose attention is not known here."""
    if model.capabilities.memory_slots > 0:
        return MEMORY
    attends = any(isinstance(module, SelfAttention) for module in model.base_model.modules())
    return TOKENS if attends and model.capabilities.reads == "whole" else None


def readout_attention(
    model: Any, inputs: Mapping[str, torch.Tensor], columns: Sequence[np.ndarray], steps: np.ndarray | None, **call: Any
) -> np.ndarray:
    """Weights (A, S) with which the readout attends to each token, in A steps, layers or layers of the memory.

    Rows are NaN over the tokens of a sequence whose readout takes no such step any more.

    Args:
        model: a classifier of which `readout_kind` is not None.
        inputs: one example without padding, on the model's device.
        columns: of the tokens of each sequence, as of `sequence_columns`.
        steps: (S,) steps that each token takes; None for a fixed depth.
        call: arguments of the model's own, such as `max_depth`.
    """
    base = model.base_model
    seen = MemoryAttention(base, columns) if readout_kind(model) == MEMORY else TokenAttention(base, columns, steps)
    # halted tokens and sequences stay in their places, which changes no result
    fields = {"compaction": False} if model.config.capabilities.shared_block else {}
    with (
        inference_mode(model),
        config_fields(model, **fields),
        attention_implementation(model, "sdpa"),
        ExitStack() as hooks,
    ):
        for module in seen.modules:
            hooks.enter_context(module.register_forward_pre_hook(seen))
        model(**inputs, **call)
    return seen.weights()


class TokenAttention:
    """The rows of self-attention that belong to the readout, call by call."""

    def __init__(self, base: Any, columns: Sequence[np.ndarray], steps: np.ndarray | None):
        self.modules = [module for module in base.modules() if isinstance(module, SelfAttention)]
        self.config = base.config
        self.columns = columns
        self.steps = steps
        self.rows: list[np.ndarray] = []

    def __call__(
        self, module: SelfAttention, inputs: tuple[torch.Tensor, torch.Tensor, PaddedContext | PackedContext]
    ) -> None:
        """Of queries and source (N, W, E), or of their packed tokens."""
        states, source, context = inputs
        if isinstance(context, PackedContext):
            rotations = Rotations(context.query_rotation, context.key_rotation)
        else:
            rotations = context.rotations
        query = rotate(module.heads(module.q_proj(states)), rotations.query)
        key = rotate(module.heads(module.k_proj(source)), rotations.key)
        if isinstance(context, PackedContext):
            query, key = (context.queries.unpack(states) for states in (query, key))
        row = np.full(sum(map(len, self.columns)), np.nan)
        for number, own in enumerate(self.columns):
            places = self.readout_tokens(own, len(self.rows))
            if len(places):
                keys = key[number, : len(own)]
                row[own] = mean_attention(
                    query[number, : len(own)], keys, places, module.scaling, self.config.is_causal
                )
        self.rows.append(row)

    def readout_tokens(self, own: np.ndarray, step: int) -> np.ndarray:
        """Tokens of a sequence that are the readout and take step number `step`, counted from 0."""
        places = np.arange(len(own))
        if self.config.pooling != "mean":
            places = places[-1:] if self.config.pooling == "end" else places[:1]
        return places if self.steps is None else places[self.steps[own[places]] > step]

    def weights(self) -> np.ndarray:
        return np.stack(self.rows[: None if self.steps is None else max(1, int(self.steps.max()))])


class MemoryAttention:
    """Attention of memory slots to each chunk, in each layer that writes the memory.

    A chunk is written when the next one begins, in the sequences that have a next one, and the last chunk of every
    sequence at the end.
    """

    def __init__(self, base: Any, columns: Sequence[np.ndarray]):
        self.modules = [layer.attention for layer in base.memory_layers]
        self.chunks = chunk_columns(base.config, columns)
        self.max_chunks = max(map(len, self.chunks))
        self.calls = 0
        self.rows = np.full((len(self.modules), sum(map(len, columns))), np.nan)

    def __call__(self, module: CrossAttention, inputs: tuple) -> None:
        """Of slots (N, M, E), and keys and values (N, K, H, D), the chunk's tokens first."""
        memory, source = inputs[:2]
        query = module.heads(module.q_proj(module.query_norm(memory)))
        index, layer = divmod(self.calls, len(self.modules))
        self.calls += 1
        for slots, keys, own in zip(query, source.key, self.written(index), strict=True):
            places = np.arange(len(slots))
            self.rows[layer, own] = mean_attention(slots, keys[: len(own)], places, module.scaling, False)

    def written(self, index: int) -> list[np.ndarray]:
        """The columns of the chunks that are written together, at the `index`-th time."""
        if index == self.max_chunks - 1:
            return [chunks[-1] for chunks in self.chunks]
        return [chunks[index] for chunks in self.chunks if len(chunks) > index + 1]

    def weights(self) -> np.ndarray:
        return self.rows


def mean_attention(
    query: torch.Tensor, key: torch.Tensor, places: np.ndarray, scaling: float, causal: bool
) -> np.ndarray:
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
