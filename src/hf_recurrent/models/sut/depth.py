"""Layout of the tokens of a sparse universal block, with what its attention reads and what its routers chose.

Shapes: B sequences, S new tokens and K keys of a sequence, n tokens present, m of them that experts serve, packed into
R rows of Q places, k experts for each, H heads, D head dim, d width, L maximum of depth steps.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from ..depth.depth_cache import MIN_SHARE_TO_SPREAD
from ..depth.halting import HaltingStrategy, select_units
from ..depth.layouts import Finished, Layout, packing_pays
from ..depth.loop import DepthOptions, LateValues
from ..ops.attention import KeyValue
from ..ops.flex_attention import FlexMask, is_flex
from ..ops.graphs import in_graph
from ..ops.layers import computing_dtype
from ..ops.masks import Mask, rows_of
from ..ops.positions import token_positions
from ..ops.row_groups import place
from ..ops.transformer_block import BlockOutput
from .halting import token_weights
from .routing import RouterStatistics


class SparseLayout(Layout):
    """Live tokens packed (n, d), and the keys and values of all tokens.

    New keys come from all tokens that were live before the latest decision, those that it halted included. Where every
    token must take every step, those that have halted are still present, but neither attend nor have experts.
    Attention takes its queries in the narrowest rectangle (R, Q) that holds them.

    Args:
        block: the one that is iterated.
        mask: (B, S) bool, True at tokens.
        key_mask: (B, K) bool, likewise, with those of earlier tokens.
        memory: keys and values (B, H, K', D) of another stack's states, and their mask (B, K'), if it is attended to.
        records: whether to record the experts of tokens, and the statistics of routers.

    Attributes:
        shape: B and S.
        present: (n,) numbers of the tokens that are computed, None for all.
        served: (m,) indices of those that attend and have experts, None for all.
        rectangle: R and Q.
        places, sequences: (m,) flat places of the queries in the rectangle, None if they fill it in order; and (R,)
            sequence of each of its rows, None for all of the batch.
        visible: (R, 1, Q or 1, K) biases of scores, which hide keys that are not visible; in flex attention a mask of
            the queries of all experts.
        read: keys and values (R, H, K', D) of the other stack, and their mask (R, 1, 1, K'), likewise.
        index, entries: (R or 1, Q, K) entry of each key among those of the table of position biases that are needed.
        fresh: (M,) flat places in (B, S) of the tokens with new keys, None for all in order.
        frozen: (B * S, H, D) keys and values of the step before.
        past: keys and values of earlier tokens.
    """

    fresh: torch.Tensor | None = None
    frozen: KeyValue | None = None
    past: tuple | None = None
    # tokens with new keys and their soft states, if those differ from the tokens present
    leaving: tuple[torch.Tensor | None, torch.Tensor] | None = None
    # set where only live tokens attend and have experts, among those that are present
    live_count: LateValues | None = None

    def __init__(
        self,
        block: nn.Module,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        key_mask: torch.Tensor,
        cache,
        options: DepthOptions,
        memory: tuple[KeyValue, torch.Tensor] | None,
        records: Sequence[bool],
    ):
        super().__init__(block.attention.config, strategy, mask, None, cache, "tokens", options.full)
        self.position_bias, self.key_mask, self.memory = block.attention.position_bias, key_mask, memory
        # a traced loop takes a tuple from outside, and no other kind of shape
        self.shape, self.offset = (mask.shape[0], mask.shape[1]), key_mask.shape[1] - mask.shape[1]
        # (S,) of the new tokens
        columns = torch.arange(key_mask.shape[1], device=mask.device)
        self.own_columns = columns if cache is None else cache.new(columns, 0)
        # of each router, of all steps
        self.experts: dict[str, torch.Tensor] | None = {} if records[0] else None
        self.statistics: dict[str, list[RouterStatistics]] | None = {} if records[1] else None
        self.max_depth = options.max_depth
        self.dtype = computing_dtype(block.attention.query_map.weight)
        self.present = computed_units(mask, options.compaction and not options.full)
        # columns serve as positions where all rows have the same, or no gaps, as in causal models
        if self.config.is_causal or (self.present is None and not in_graph() and bool(key_mask.all())):
            self.positions = torch.arange(key_mask.shape[1], device=mask.device)[None]
        else:
            self.positions = token_positions(key_mask)
        # tokens that cannot leave can do without experts, unless attention is recorded; a piece may be padding only
        may_spare = options.compaction and not (options.record_states or in_graph() or options.may_compact(strategy))
        if may_spare and (strategy.halts or strategy.exits) and bool(mask.any()):
            self.live_count = LateValues()
        self.lay_out_queries(None)

    def lay_out_queries(self, served: torch.Tensor | None) -> None:
        """Lay out the queries of the tokens at these indices (m,) among those present, of all if None."""
        self.served, self.rectangle, self.places, self.sequences = served, self.shape, None, None
        if served is not None and served.numel() == 0:
            return
        units, length, num_keys, device = self.served_units, self.shape[1], self.key_mask.shape[1], self.mask.device
        columns = self.own_columns[None]
        if units is not None:
            sequences, row, counts = (units // length).unique_consecutive(return_inverse=True, return_counts=True)
            column = torch.arange(units.shape[0], device=device) - (counts.cumsum(0) - counts)[row]
            num_rows = self.shape[0]
            if len(counts) <= MIN_SHARE_TO_SPREAD * num_rows:
                self.sequences, num_rows = sequences, len(counts)
            else:
                row = sequences[row]
            self.rectangle = num_rows, int(counts.max())
            self.places = row * self.rectangle[1] + column
            columns = torch.full(self.rectangle, self.offset, device=device)
            columns[row, column] = units % length + self.offset
        visible = self.select(self.key_mask)[:, None, None]
        if self.config.is_causal:
            visible = visible & (torch.arange(num_keys, device=device) <= columns[:, None, :, None])
        self.visible = self.as_implemented(visible)
        if self.position_bias is not None:
            positions = self.select(self.positions)
            # `take_along_dim` would bind a traced graph to its number of tokens
            num_rows = max(positions.shape[0], columns.shape[0])
            queries = positions.expand(num_rows, -1).gather(1, columns.expand(num_rows, -1))
            self.index, self.entries = self.position_bias.index(positions[:, None] - queries[..., None])
        if self.memory is not None:
            key_value, mask = self.memory
            self.read = self.select(key_value), self.as_implemented(self.select(mask)[:, None, None])

    def as_implemented(self, visible: torch.Tensor) -> Mask:
        """A mask (R, 1, Q or 1, K) in the form that the attention implementation takes."""
        flex = is_flex(self.config)
        if visible.shape[2] > 1 and (flex or self.position_bias is None):
            # one for each expert
            visible = visible.repeat_interleave(self.config.attention_experts_per_token, dim=2)
        if flex:
            return FlexMask(visible)
        # half of the lowest finite number, so that its sum with a score is not infinite
        biases = torch.zeros_like(visible, dtype=self.dtype)
        return biases.masked_fill_(~visible, torch.finfo(self.dtype).min / 2)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """Of queries: (m, ...) -> (R, Q, ...), zeros where there is none."""
        rows, width = self.rectangle
        packed = packed if self.places is None else place(packed, self.places, rows * width)
        # a traced loop takes no tuple from outside
        return packed.unflatten(0, (-1, width))

    def select(self, tensors: Any) -> Any:
        """One or several (B, ...) -> (R, ...)."""
        return tensors if self.sequences is None else rows_of(tensors, self.sequences)

    @property
    def units(self) -> torch.Tensor:
        """Flat places (n,) of the tokens present in (B, S)."""
        return torch.arange(self.mask.numel(), device=self.mask.device) if self.present is None else self.present

    @property
    def served_units(self) -> torch.Tensor | None:
        """Numbers (m,) of the tokens that attend and have experts, None for all of the batch."""
        return self.present if self.served is None else self.units[self.served]

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        return self.strategy.initial_state(hidden, self.packs(self.mask))

    def lays_out(self, values: torch.Tensor) -> torch.Tensor:
        return place(values, self.present, self.mask.numel()).unflatten(0, self.shape)

    def packs(self, rows: torch.Tensor) -> torch.Tensor:
        return packed(rows, self.present)

    def new_keys(self, state: NamedTuple) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The tokens (M,) whose soft states have changed since the latest keys, None for all in order; those states."""
        if self.leaving is not None:
            return self.leaving
        source = self.strategy.attended(state)
        source = state.hidden if source is None else source
        return self.served_units, source if self.served is None else source.index_select(0, self.served)

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "SparseLayout"]:
        layout = copy.copy(self)
        layout.fresh, source = self.new_keys(state)
        count = None if self.live_count is None else self.live_count.poll(state.live.sum())
        served = (state.live if self.served is None else self.served).numel()
        spares = count is not None and count < served
        if spares and (count == 0 or packing_pays(served, count, source.shape[-1])):
            layout.lay_out_queries(state.live.nonzero().squeeze(-1))
        if self.cache is not None:
            layout.past = self.cache.past(step)
        output, frozen, routed = block(state.hidden, token_weights(state), layout, source)
        if self.cache is not None:
            self.cache.write(step, output.key, output.value)
        # none if no token is served
        for router, chosen in zip(block.routers, routed, strict=False):
            layout.record(router, state.live, step, *chosen)
        # checkpointing of activations reads the one before once more
        after = copy.copy(layout)
        after.frozen, after.leaving = frozen, None
        return output, after

    def record(
        self, router: str, live: torch.Tensor, step: int, experts: torch.Tensor, statistics: RouterStatistics | None
    ) -> None:
        """Record what a router chose in a step, for tokens of which those that are `live` (n,) use it, if wanted."""
        if self.experts is not None:
            units, live = self.served_units, live if self.served is None else live[self.served]
            if router not in self.experts:
                self.experts[router] = experts.new_full((self.mask.numel(), self.max_depth, experts.shape[1]), -1)
            rows = slice(None) if units is None else units
            self.experts[router][rows, step] = torch.where(live[:, None], experts, -1)
        if self.statistics is not None:
            self.statistics.setdefault(router, []).append(statistics)

    def recorded(self) -> dict:
        """Fields of the model's output that other models do not have."""
        taken = self.experts or {}
        # (B, S, L, k), -1 where and when a token was not served
        found: dict = {f"{router}_experts": each.unflatten(0, self.shape) for router, each in taken.items()}
        if self.statistics is not None:
            found["router_statistics"] = tuple(
                RouterStatistics(*(torch.stack(sums).sum(0) for sums in zip(*steps, strict=True)))
                for steps in self.statistics.values()
            )
        return found

    def attention_maps(self, steps: Sequence[torch.Tensor] | None) -> tuple[torch.Tensor, ...] | None:
        """Attention (B, k * H, S, K) of each step, zeros for padding, the heads of a token's first expert first.

        Args:
            steps: (R, H, Q, k, K) of each.
        """
        if steps is None:
            return None
        rows = (self.lays_out(packed(weights.transpose(1, 2), self.places)) for weights in steps)
        return tuple(each.permute(0, 3, 2, 1, 4).flatten(1, 2) for each in rows)

    def keep(self, state: NamedTuple, index: torch.Tensor) -> tuple["SparseLayout", NamedTuple]:
        """The layout and the state of the tokens at `index` (n,) alone."""
        layout = copy.copy(self)
        layout.leaving, layout.present = self.new_keys(state), self.units.index_select(0, index)
        layout.lay_out_queries(None if index.numel() else index)
        return layout, select_units(state, index)

    def compact(self, state: NamedTuple, keep: torch.Tensor, drop: torch.Tensor) -> tuple["SparseLayout", NamedTuple]:
        # all that stay live until the next decision; an accelerator does not say which do after that
        self.strategy.freezes = self.mask.device.type != "cpu"
        return self.keep(state, keep)

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Cache, for the skipped steps, the keys and values of the final soft states."""
        if self.cache is None or self.cache.num_written == self.cache.depth:
            return
        layout, state = self.keep(state, self.units[:0])
        while self.cache.num_written < self.cache.depth:
            _, layout = layout.advance(block, state, self.cache.num_written)

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        values, units = self.strategy.output(state), self.present
        if index is not None:
            *values, units = (each.index_select(0, index) for each in (*values, self.units))
        return Finished(*values, units, units)


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
