"""The first tokens of sequences, packed while they are cached.

Shapes: B sequences of S columns, N tokens present, H heads, D head dim, F features of the halting head.
"""

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from ..ops.attention import PackedContext, PaddedContext, Rotations
from ..ops.row_groups import place
from ..ops.transformer_block import BlockOutput
from .frozen_tokens import FrozenTokens, Tokens
from .layouts import Finished, PackedLayout, last_keys_are_kept
from .unit_states import select_units


class PrefillLayout(PackedLayout):
    """Live tokens packed, with an empty cache: every row stays, so that a step's keys and values are what is cached."""

    padded: PaddedContext

    @classmethod
    def prefill(
        cls,
        config,
        strategy,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        context: PaddedContext,
        cache,
    ) -> tuple["PrefillLayout", torch.Tensor]:
        """(B, S, E) -> the layout of all valid tokens, and their states (N, E)."""
        units = mask.flatten().nonzero().squeeze(-1)
        halted = torch.zeros_like(hidden).flatten(0, 1) if strategy.running_mean else None
        frozen = FrozenTokens(memory=context.memory, hidden=halted)
        layout = cls(config, strategy, mask, context.rotations, Tokens(units, units), frozen)
        layout.cache, layout.padded = cache, context
        return layout, hidden.flatten(0, 1).index_select(0, units)

    def build_context(self) -> PackedContext:
        context, scale = super().build_context(), self.padded.key_scale
        return context if scale is None else replace(context, key_scale=scale.repeat(self.mask.shape[0], 1)[:, None])

    def running_sums(self, features: torch.Tensor, step: int) -> torch.Tensor:
        sums = super().running_sums(features, step)
        self.cache.write_sums(step, sums)
        return sums

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PrefillLayout"]:
        output, layout = super().advance(block, state, step)
        # the next step overwrites them
        self.write(step, output.key.clone(), output.value.clone())
        return output, layout

    def write(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Cache keys and values (B * S, H, D) of a step."""
        self.cache.write_new(step, *(states.unflatten(0, self.mask.shape).transpose(1, 2) for states in (key, value)))

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["PrefillLayout", NamedTuple, Finished]:
        """Keep the live tokens at `keep` (n,), and all rows -> layout, state and the finished tokens."""
        drop = (~state.live).nonzero().squeeze(-1)
        layout = copy.copy(self)
        layout.__dict__.pop("context", None)
        layout.frozen, layout.tokens = self.freeze(state, drop, drop), self.tokens.at(keep)
        layout.row = self.row[keep]
        finished = Finished(self.units[drop], *self.strategy.output(select_units(state, drop)))
        return layout, select_units(state, keep), finished

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Cache, for the steps that all tokens skipped, the keys, values and sums of their final states."""
        strategy, cache, frozen = self.strategy, self.cache, self.frozen
        if cache.num_written < cache.depth and last_keys_are_kept(self.config):
            for step in range(cache.num_written, cache.depth):
                cache.write_new(step, *cache.newest(step - 1))
        elif cache.num_written < cache.depth:
            source, tokens = self.attended(state), self.tokens
            if frozen.released is not None:
                source, tokens = torch.cat((source, frozen.released_state)), tokens.followed_by(frozen.released)
            rotations = Rotations(*self.rotations.of_tokens(tokens.units))
            projected = block.keys_values(source, self.padded._replace(rotations=rotations))
            pairs = zip(projected, (frozen.key, frozen.value), strict=True)
            final = [place(new, tokens.places, self.mask.numel(), old, overwrite=True) for new, old in pairs]
            for step in range(cache.num_written, cache.depth):
                self.write(step, *final)
        if strategy.running_mean:
            features = strategy.features(state, state.hidden if strategy.needs_candidate else None)
            for step in filter(strategy.decides, range(cache.num_written_sums, cache.depth)):
                self.running_sums(features, step)
