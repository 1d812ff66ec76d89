"""Layout, cache and trace of a sparse universal block.

Shapes: B sequences, S new tokens, P tokens before them, K keys, n tokens present, m of them that experts serve, k
experts for each, d width, L maximum of depth steps.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn

from ..depth.cache import CacheLayer
from ..depth.depth_cache import DepthCache
from ..depth.halting import HaltingStrategy, select_units
from ..depth.layouts import Finished, Layout
from ..depth.loop import LiveCount, Trace, assemble
from ..ops.attention import KeyValue
from ..ops.flex_attention import FlexMask, is_flex
from ..ops.graphs import in_graph
from ..ops.masks import Mask
from ..ops.positions import token_positions
from ..ops.row_groups import place
from .block import SUTBlock, SUTBlockOutput
from .halting import token_weights
from .routed_attention import SUTContext
from .routing import RouterStatistics


class StackCache(DepthCache):
    """A layer for each depth step and, of a decoder with an encoder, one after them for the encoder's states.

    Its keys and values (B, H, S', D) serve every depth step and every new token.
    """

    def __init__(self, depth: int, signature: str, attends_to_source: bool):
        super().__init__(depth, signature, outer_layers=[CacheLayer()] * attends_to_source)

    @property
    def source(self) -> KeyValue | None:
        """(B, H, S', D) each, None before the first call, or without an encoder."""
        tensors = self.layers[-1].tensors if len(self.layers) > self.depth else {}
        return KeyValue(tensors["keys"], tensors["values"]) if tensors else None

    @property
    def source_has_padding(self) -> bool:
        """Whether padding is in the source, which only a mask tells apart."""
        return "has_padding" in self.layers[-1].tensors

    def write_source(self, source: KeyValue, mask: torch.Tensor) -> None:
        """Keys and values (B, H, S', D) of a source, by its mask (B, S')."""
        padding = {} if in_graph() or bool(mask.all()) else {"has_padding": torch.tensor(True)}
        self.layers[-1].replace({"keys": source.key, "values": source.value, **padding})


class SparseLayout(Layout):
    """Live tokens packed (n, d), and the keys and values of all tokens.

    New keys come from all tokens that were live before the latest decision, those that it halted included. Where every
    token must take every step, those that have halted are still present, but neither attend nor have experts.

    Args:
        block: the one that is iterated.
        mask: (B, S) bool, True at tokens.
        key_mask: (B, P + S) bool, likewise.
        units: (n,) numbers of the tokens that are computed, None for all.
        memory: keys and values (B, H, K', D) of another stack's states, and their mask (B, K'), if it is attended to.
        statistics: whether routers sum up their statistics.

    Attributes:
        live_count: set where only live tokens attend and have experts, among those that are present.
    """

    live_count: LiveCount | None = None

    def __init__(
        self,
        block: SUTBlock,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        key_mask: torch.Tensor,
        units: torch.Tensor | None,
        cache,
        memory: tuple[KeyValue, torch.Tensor] | None,
        statistics: bool,
    ):
        super().__init__(block.attention.config, strategy, mask, None, cache, "tokens")
        self.attention, self.key_mask, self.offset = block.attention, key_mask, key_mask.shape[1] - mask.shape[1]
        # B and S; a traced loop takes a tuple from outside, and no other kind of shape
        self.shape = mask.shape[0], mask.shape[1]
        self.memory, self.statistics = memory, statistics
        self.frozen: KeyValue | None = None
        # tokens with new keys and their soft states, if those differ from the tokens present
        self.leaving: tuple[torch.Tensor | None, torch.Tensor] | None = None
        # columns serve as positions where all rows have the same, or no gaps, as in causal models
        if self.config.is_causal or (units is None and not in_graph() and bool(key_mask.all())):
            self.positions = torch.arange(key_mask.shape[1], device=mask.device)[None]
        else:
            self.positions = token_positions(key_mask)
        self.present = units
        self.pack(None)

    def pack(self, served: torch.Tensor | None) -> None:
        """Lay out the queries of the tokens at these indices (m,) among those present, of all if None."""
        self.served = served
        if served is not None and served.numel() == 0:
            self.context = self.context._replace(served=served)
            return
        config, units, device = self.config, self.served_units, self.mask.device
        rectangle, places, sequences = self.shape, None, None
        columns = torch.arange(self.offset, self.key_mask.shape[1], device=device)[None]
        if units is not None:
            length, number = self.shape[1], torch.arange(units.shape[0], device=device)
            sequences, row, counts = (units // length).unique_consecutive(return_inverse=True, return_counts=True)
            rectangle = len(counts), int(counts.max())
            # of each token after the first one of its row
            places = row * rectangle[1] + number - (counts.cumsum(0) - counts)[row]
            columns = torch.full((rectangle[0] * rectangle[1],), self.offset, device=device)
            columns = columns.scatter(0, places, units % length + self.offset).unflatten(0, rectangle)
            sequences = None if rectangle[0] == self.shape[0] else sequences

        def implemented(visible: torch.Tensor) -> Mask:
            if not is_flex(config):
                return visible
            # one for each expert
            per_token = config.attention_experts_per_token if visible.shape[2] > 1 else 1
            return FlexMask(visible.repeat_interleave(per_token, dim=2))

        context = SUTContext(self.shape, rectangle, places, sequences, None, statistics=self.statistics, served=served)
        visible = context.select(self.key_mask)[:, None, None]
        if config.is_causal:
            visible = visible & (torch.arange(self.key_mask.shape[1], device=device) <= columns[:, None, :, None])
        elif in_graph():
            # a loop in a graph may not have the same memory twice
            visible = visible.clone()
        self.context = context = context._replace(visible=implemented(visible))
        if self.attention.position_bias is not None:
            positions = context.select(self.positions)
            num_rows = max(positions.shape[0], columns.shape[0])
            queries = positions.expand(num_rows, -1).gather(1, columns.expand(num_rows, -1))
            index, entries = self.attention.position_bias.index(positions[:, None] - queries[..., None])
            self.context = context = context._replace(index=index, entries=entries)
        if self.memory is not None:
            memory, mask = self.memory
            visible = implemented(context.select(mask)[:, None, None])
            self.context = context._replace(memory=memory, memory_visible=visible)

    @property
    def units(self) -> torch.Tensor:
        """Flat places (n,) of the tokens present in (B, S)."""
        if self.present is None:
            return torch.arange(self.shape[0] * self.shape[1], device=self.mask.device)
        return self.present

    @property
    def served_units(self) -> torch.Tensor | None:
        """Numbers (m,) of the tokens that attend and have experts, None for all of the batch."""
        return self.present if self.served is None else self.units[self.served]

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        return self.strategy.initial_state(hidden, self.packs(self.mask))

    def lays_out(self, values: torch.Tensor) -> torch.Tensor:
        return place(values, self.present, self.shape[0] * self.shape[1]).unflatten(0, self.shape)

    def packs(self, rows: torch.Tensor) -> torch.Tensor:
        return packed(rows, self.present)

    def fresh(self, state: NamedTuple) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The tokens (M,) whose soft states have changed since the latest keys, None for all in order; those states."""
        if self.leaving is not None:
            return self.leaving
        source = self.strategy.attended(state)
        source = state.hidden if source is None else source
        return self.served_units, source if self.served is None else source.index_select(0, self.served)

    def advance(self, block: SUTBlock, state: NamedTuple, step: int) -> tuple[SUTBlockOutput, "SparseLayout"]:
        layout, (fresh, source) = copy.copy(self), self.fresh(state)
        count = None if self.live_count is None else self.live_count.poll(state.live)
        if count is not None and count < (state.live if self.served is None else self.served).numel():
            layout.pack(state.live.nonzero().squeeze(-1))
        past = None if self.cache is None else self.cache.past(step)
        context = layout.context._replace(fresh=fresh, frozen=self.frozen, past=past)
        output = block(state.hidden, token_weights(state), context, source)
        if self.cache is not None:
            self.cache.write(step, *output.extended)
        layout.frozen, layout.leaving = output.frozen, None
        return output, layout

    def keep(self, state: NamedTuple, index: torch.Tensor) -> tuple["SparseLayout", NamedTuple]:
        """The layout and the state of the tokens at `index` (n,) alone."""
        layout = copy.copy(self)
        layout.leaving, layout.present = self.fresh(state), self.units[index]
        layout.pack(None if index.numel() else index)
        return layout, select_units(state, index)

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["SparseLayout", NamedTuple, Finished]:
        drop = (~state.live).nonzero().squeeze(-1)
        finished = Finished(*self.strategy.output(select_units(state, drop)), self.units[drop], self.units[drop])
        return *self.keep(state, keep), finished

    def complete_cache(self, block: SUTBlock, state: NamedTuple) -> None:
        """Cache, for the skipped steps, the keys and values of the final soft states."""
        if self.cache is None or self.cache.num_written == self.cache.depth:
            return
        layout, state = self.keep(state, self.units[:0])
        while self.cache.num_written < self.cache.depth:
            _, layout = layout.advance(block, state, self.cache.num_written)

    def finish(self, state: NamedTuple) -> Finished:
        return Finished(*self.strategy.output(state), self.present, self.present)


class RoutingTrace(Trace):
    """`Trace` with the routers' choices and statistics, of which those that are not wanted are None."""

    def __init__(self, experts: bool, statistics: bool):
        self.experts: list[list[torch.Tensor]] | None = [] if experts else None
        self.statistics: list[tuple[RouterStatistics, ...]] | None = [] if statistics else None

    def step(self, layout: SparseLayout, state: NamedTuple, output: SUTBlockOutput) -> None:
        super().step(layout, state, output)
        if self.experts is not None and output.experts:
            live = state.live if layout.served is None else state.live[layout.served]
            units = layout.units if layout.served is None else layout.served_units
            chosen = (torch.where(live[:, None], experts, -1) for experts in output.experts)
            self.experts.append([assemble([experts], [units], self.num_units, -1) for experts in chosen])
        if self.statistics is not None and output.statistics:
            self.statistics.append(output.statistics)

    def attention_maps(self, name: str, layout: SparseLayout) -> tuple[torch.Tensor, ...] | None:
        """Attention of each step (B, k * H, S, K), zeros for padding, the heads of a token's first expert first."""
        maps = []
        # (R, H, Q, k, K) of each step
        for weights in self.recorded(name) or ():
            rows = layout.lays_out(layout.context.gather(weights.transpose(1, 2)))
            maps.append(rows.permute(0, 3, 2, 1, 4).flatten(1, 2))
        return tuple(maps) or None

    def extras(self, layout: SparseLayout, routers: tuple[str, ...]) -> dict:
        """Fields of the model's output that other models do not have."""
        found: dict = {"cross_attentions": self.attention_maps("cross_attentions", layout)}
        if self.experts is not None:
            missing = (0, 0, 0, self.options.max_depth - len(self.experts))
            for name, steps in zip(routers, zip(*self.experts, strict=True), strict=True):
                # (B, S, L, k), -1 where and when a token was not served
                taken = nn.functional.pad(torch.stack(steps, dim=1), missing, value=-1)
                found[f"{name}_experts"] = taken.unflatten(0, layout.shape)
        if self.statistics is not None:
            sums = (map(torch.stack, zip(*steps, strict=True)) for steps in zip(*self.statistics, strict=True))
            found["router_statistics"] = tuple(RouterStatistics(*(each.sum(0) for each in fields)) for fields in sums)
        return found


def computed_units(mask: torch.Tensor, compaction: bool) -> torch.Tensor | None:
    """Numbers (n,) of the tokens of a mask (B, S), None for all places: without padding, or if it has to stay."""
    # a traced graph must not depend on data, and a piece may be padding only
    if not compaction or in_graph():
        return None
    units = mask.flatten().nonzero().squeeze(-1)
    return units if 0 < units.shape[0] < mask.numel() else None


def packed(tensor: torch.Tensor, units: torch.Tensor | None) -> torch.Tensor:
    """(B, S, ...) of the tokens with these numbers (n,), or of all places -> (n, ...)."""
    flat = tensor.flatten(0, 1)
    return flat if units is None else flat.index_select(0, units)
