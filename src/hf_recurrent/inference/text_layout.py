"""Tokens of several texts, each at a depth step of its own, that attend to the cached keys of their texts.

Shapes: N tokens present, R texts that are read, W tokens of the longest of them, E width, F features.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..models.engine.depth_loop import HaltingState, HaltingStrategy
from ..models.engine.layouts import TokenUnits, last_keys_are_kept, running_sums
from ..models.engine.unit_states import select_units
from ..models.ops.attention import TextRow
from ..models.ops.masks import as_implemented
from ..models.ops.row_groups import place
from .text_cache import TextCache, TextTokens, on_device


class Prompts(NamedTuple):
    """Texts whose tokens are read together.

    Attributes:
        rows: number of each text among them, by its place in the cache.
        width: W.
        halted: (R * W, E) states of tokens that have halted, zeros elsewhere.
    """

    rows: Mapping[int, int]
    width: int
    halted: torch.Tensor

    def index(self, tokens: TextTokens) -> torch.Tensor:
        """Places (N,) of tokens in (R * W,)."""
        rows = np.array([self.rows[each] for each in tokens.places.tolist()])
        return on_device(self.halted.device, rows * self.width + tokens.columns)[0]

    def sums(self, tokens: TextTokens, features: torch.Tensor) -> torch.Tensor:
        """Sums (N, F) of features over each token and those before it in its text."""
        index = self.index(tokens)
        halted = self.halted.repeat(1, features.shape[-1] // self.halted.shape[-1])
        whole = place(features, index, len(halted), halted).unflatten(0, (-1, self.width))
        sums = running_sums(whole, torch.ones_like(whole[..., 0], dtype=torch.bool))
        return sums.flatten(0, 1).index_select(0, index)

    def with_halted(self, tokens: TextTokens, states: torch.Tensor) -> "Prompts":
        return self._replace(halted=self.halted.index_copy(0, self.index(tokens), states))


class Halted(NamedTuple):
    """Tokens that have taken their last step.

    Attributes:
        states: (N, E) final running states.
        steps: (N,) that were taken.
    """

    tokens: TextTokens
    states: torch.Tensor
    steps: torch.Tensor

    @classmethod
    def in_order(cls, groups: Sequence["Halted"]) -> "Halted":
        """The tokens of several groups, text by text, each from its beginning."""
        first, *others = (group.tokens for group in groups)
        tokens = first.followed_by(*others)
        return cls(tokens, *(torch.cat([group[field] for group in groups]) for field in (1, 2))).take(
            np.lexsort((tokens.columns, tokens.places))
        )

    def take(self, index: np.ndarray) -> "Halted":
        (places,) = on_device(self.states.device, index)
        return Halted(self.tokens.take(index), *(each.index_select(0, places) for each in self[1:]))


def context_in(cache: TextCache, model: Any, tokens: TextTokens, tables: Any) -> NamedTuple:
    """The context, without memory, of a base model's attention from tokens to the keys of a cache."""
    rows = cache.rows(tokens.places, tokens.steps)
    places, columns = on_device(cache.key.device, cache.flat_places(tokens, rows), tokens.columns)
    starts = np.flatnonzero(np.diff(tokens.places, prepend=-1))
    inputs = tables, columns, cache.key, cache.value, places
    if model.gathers_texts and len(starts) == len(rows):
        return model.text_context(*inputs, (), int(tokens.columns.max()) + 1)
    stops = np.append(starts[1:], len(rows))
    ends = tokens.columns[stops - 1] + 1
    found = []
    numbers = (each.tolist() for each in (starts, stops, rows[starts], ends))
    for start, stop, row, length in zip(*numbers, strict=True):
        mask = None
        if stop - start > 1:
            visible = columns[start:stop, None] >= torch.arange(length, device=columns.device)
            mask = as_implemented(model.config, visible[None, None], torch.float32)
        found.append(TextRow(start, stop, row, length, mask))
    return model.text_context(*inputs, tuple(found), 0)


class TextLayout(TokenUnits):
    """Layout of `engine.depth_loop.Layout`, for tokens of texts with a `TextCache`.

    Args:
        model: a base model.
        prompts: of tokens that are read together and whose halting looks at running means.
    """

    can_compact = True

    def __init__(
        self,
        model: Any,
        strategy: HaltingStrategy,
        cache: TextCache,
        tokens: TextTokens,
        tables: Any,
        prompts: Prompts | None = None,
    ):
        self.model, self.strategy, self.cache, self.tables = model, strategy, cache, tables
        self.tokens, self.prompts = tokens, prompts

    def on_device(self, *arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
        return on_device(self.cache.key.device, *arrays)

    def initial_state(self, hidden: torch.Tensor) -> HaltingState:
        return self.strategy.initial_state(hidden, torch.ones(len(hidden), dtype=torch.bool, device=hidden.device))

    def features(self, state: HaltingState, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        features = self.strategy.features(state, candidate)
        if not self.strategy.running_mean:
            return features
        sums = self.cache.added_sums(self.tokens, features)
        self.tokens = self.tokens._replace(decisions=self.tokens.decisions + 1)
        if self.prompts is not None:
            sums = self.prompts.sums(self.tokens, features)
        (lengths,) = self.on_device(self.tokens.columns + 1)
        return (sums / lengths[:, None]).to(features.dtype)

    def context(self) -> NamedTuple:
        """The block's context."""
        context, memory = context_in(self.cache, self.model, self.tokens, self.tables), self.cache.memory
        if memory is None:
            return context
        return context._replace(memory=memory.key_value.select(*self.on_device(self.tokens.places)))

    def advance(self, block: torch.nn.Module, state: HaltingState, step: int) -> tuple[NamedTuple, "TextLayout"]:
        source = self.strategy.attended(state)
        output = self.model.text_step(state, self.context(), source)
        layout = copy.copy(self)
        layout.tokens = self.tokens._replace(steps=self.tokens.steps + 1)
        return output, layout

    def leave(
        self, state: HaltingState, live: np.ndarray, steps: np.ndarray
    ) -> tuple["TextLayout", HaltingState, Halted]:
        """Keep the tokens that are live -> their layout and state, and the others, which are then cached.

        Args:
            live, steps: (N,), as the state has them.
        """
        index, kept = np.flatnonzero(~live), np.flatnonzero(live)
        leaving, staying = self.on_device(index, kept)
        left = select_units(state, leaving)
        tokens, taken = self.tokens.take(index), steps[index]
        if last_keys_are_kept(self.model.config):
            self.cache.repeat(tokens, taken)
        else:
            source = self.strategy.attended(left)
            source, columns = left.hidden if source is None else source, self.on_device(tokens.columns)
            self.cache.fill(tokens, taken, self.model.text_keys_values(source, self.tables, *columns))
        layout = copy.copy(self)
        if self.strategy.running_mean:
            candidate = left.hidden if self.strategy.needs_candidate else None
            self.cache.add_later_sums(tokens, self.strategy.features(left, candidate))
            if self.prompts is not None:
                layout.prompts = self.prompts.with_halted(tokens, left.hidden)
        layout.tokens = self.tokens.take(kept)
        states, _, executed = self.strategy.output(left)
        return layout, select_units(state, staying), Halted(tokens, states, executed)

    def joined(self, other: "TextLayout") -> "TextLayout":
        layout = copy.copy(self)
        layout.tokens = self.tokens.followed_by(other.tokens)
        return layout
