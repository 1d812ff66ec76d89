"""Causal models whose depth step is a stack of layers with rotary positions, as Ouro and Huginn have it.

Shapes: B sequences, S tokens, P cached tokens, E width; states are (B, S, E), or (N, E) in a packed context.
"""

from collections.abc import Sequence

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..depth.depth_cache import DepthCache
from ..depth.early_exit import RunOn
from ..depth.halting import HaltingStrategy
from ..depth.loop import DepthOptions
from ..ops.attention import KeyValue, PaddedContext, Rotations
from ..ops.checks import check_given_positions, refuse
from ..ops.graphs import in_graph
from ..ops.layers import RMSNorm
from ..ops.masks import visible_keys
from ..ops.positions import rotation_angles, rotation_table
from ..ops.transformer_block import BlockOutput
from .base_model import DepthModel, ForwardCall, newest_columns
from .shared_block import SharedBlockModel


class SandwichLayer(nn.Module):
    """Attention and a feed-forward network F, each with a root mean square norm N before it and another after it.

    `a = x + N2 Attention(N1 x)`, `y = a + N4 F(N3 a)` or, with `norms_sums`, `a = N2(x + Attention(N1 x))`,
    `y = N4(a + F(N3 a))`.
    """

    def __init__(self, config, attention: nn.Module, feed_forward: nn.Module, norms_sums: bool = False):
        super().__init__()
        self.attention_norm, self.attended_norm, self.feed_forward_norm, self.fed_norm = (
            RMSNorm(config.hidden_size, eps=config.layer_norm_eps) for _ in range(4)
        )
        self.attention, self.feed_forward, self.norms_sums = attention, feed_forward, norms_sums

    def forward(self, hidden_states: torch.Tensor, context: PaddedContext) -> BlockOutput:
        normed = self.attention_norm(hidden_states)
        attended, weights, key, value = self.attention(normed, normed, context)
        return BlockOutput(self.updated(hidden_states, attended), weights, None, None, key, value)

    def updated(self, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The states after the layer, from the states before it and what these attended to."""
        if self.norms_sums:
            states = self.attended_norm(states + attended)
            return self.fed_norm(states + self.feed_forward(self.feed_forward_norm(states)))
        states = states + self.attended_norm(attended)
        return states + self.fed_norm(self.feed_forward(self.feed_forward_norm(states)))


class CheckpointedLayer(GradientCheckpointingLayer, SandwichLayer):
    """A `SandwichLayer` that gradient checkpointing computes again by itself, rather than with its depth step."""


def apply_layers(layers: Sequence[nn.Module], hidden_states: torch.Tensor, context: PaddedContext) -> BlockOutput:
    """The output of layers one after another, which are one depth step.

    Attention weights are those of the layers' heads, layer by layer. Keys and values are a tuple of each layer's in a
    padded context, and in others side by side, as those of further heads.
    """
    outputs: list[BlockOutput] = []
    for number, layer in enumerate(layers):
        own = context.of_layer(number, len(layers))
        own = own if layer.attention.window is None else own._replace(attention_mask=context.window_mask)
        outputs.append(layer(hidden_states, own))
        hidden_states = outputs[-1].hidden_states
    pairs = [KeyValue(output.key, output.value) for output in outputs]
    key, value = zip(*pairs, strict=True) if isinstance(context, PaddedContext) else context.of_step(pairs)
    weights = None if outputs[0].attentions is None else torch.cat([output.attentions for output in outputs], dim=1)
    return BlockOutput(hidden_states, weights, None, None, key, value)


def check_one_text(positions: torch.Tensor, mask: torch.Tensor) -> None:
    """Raise a ValueError unless positions (B, S) or (1, S) rise from token to token, by the mask (B, S).

    A graph checks no values, and would have to hold for one length alone.
    """
    if in_graph():
        return
    restarts = (positions.diff() <= 0) & mask[:, 1:] & mask[:, :-1]

    def message() -> str:
        row, column = restarts.nonzero()[0].tolist()
        before, after = positions.expand(mask.shape)[row, column : column + 2].tolist()
        return (
            f"`position_ids` row {row} holds {after} after {before}, as where texts are packed into a row: they would "
            "read each other; pass each text as a row of its own"
        )

    refuse((restarts.any(), message))


class StackedDepthModel(SharedBlockModel, DepthModel):
    """A stack of layers over all tokens of a sequence.

    Each layer of each step has keys and values of its own. What those of a token that has stopped are in the steps
    after, its config's `skipped_steps` says.
    """

    depth_follows_length = False
    model_arguments = ("position_ids",)

    def strategy(self, call: ForwardCall, max_depth: int, cache) -> HaltingStrategy:
        strategy = super().strategy(call, max_depth, cache)
        if self.config.skipped_steps != "computed" or not (strategy.halts or strategy.exits):
            return strategy
        if cache is not None and cache.depth != max_depth:
            raise ValueError(
                f"this call takes {max_depth} steps but `past_key_values` was made for {cache.depth}: all of them are "
                f"computed for all tokens of a sequence (skipped_steps='computed'), pass max_depth={cache.depth}"
            )
        return RunOn(strategy)

    def depth_options(self, call: ForwardCall, max_depth: int) -> DepthOptions:
        # keys that tokens keep would have to be carried through the graph
        return super().depth_options(call, max_depth)._replace(loop_in_graph=None)

    def new_cache(self, max_depth: int | None = None) -> DepthCache:
        return DepthCache(self.cache_steps(max_depth), self.signature(), self.config.layers_per_step)

    def signature(self) -> str:
        return f"{super().signature()}, {self.config.layers_per_step} layers a step"

    def context(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> PaddedContext:
        config, cache = self.config, call.cache
        positions = call.model_kwargs.get("position_ids")
        if positions is None:
            columns = torch.arange if cache is None else cache.columns
            # scores depend on their differences alone, so that padding on the left may count
            positions = columns(hidden.shape[1], device=hidden.device)[None]
        else:
            check_given_positions("position_ids", positions, tuple(hidden.shape[:2]))
            check_one_text(positions, newest_columns(mask, hidden.shape[1]))
        # see `scaled_frequencies`
        scaling = getattr(config, "rotary_scaling", None)
        table = rotation_table(rotation_angles(positions, config.head_dim, config.rope_theta, scaling))
        window_mask = None if self.window is None else visible_keys(config, hidden, mask, cache, self.window)
        attention_mask = visible_keys(config, hidden, mask, cache)
        return PaddedContext(attention_mask, Rotations(table, table), window_mask=window_mask)
