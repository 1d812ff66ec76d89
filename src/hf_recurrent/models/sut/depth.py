"""The loop over the calls of a sparse universal block: halting, early exit, and packing of the tokens that go on.

Shapes: B rows, S new tokens a row, P tokens before them, K keys a row, n tokens present, k experts for each, d width, L
most calls.
"""

from typing import NamedTuple

import torch

from ..common.validation import has_gaps
from ..engine.depth_cache import DepthCache, DepthLayer, DepthSlots
from ..engine.depth_loop import DepthOptions, Pruner, assemble, recorded, refuse_nan
from ..ops.attention import KeyValue
from ..ops.positions import token_positions
from .block import SUTBlock, SUTContext
from .halting import LogHaltingHead, TokenState, commit, decide, initial_state, ponder_cost, remaining
from .routed_attention import Asking
from .routing import RouterStatistics


class MemoryLayer(DepthLayer):
    """Keys and values of another stack's states, which serve every call and every new token."""

    def kept(self) -> KeyValue | None:
        """(B, S', H, D) each, None before the first call."""
        if not self.is_initialized:
            return None
        return KeyValue(self.keys.transpose(1, 2), self.values.transpose(1, 2))

    def keep(self, key_value: KeyValue) -> None:
        self.append(key_value.key.transpose(1, 2), key_value.value.transpose(1, 2), None)

    def crop(self, tokens_to_remove: int) -> None:
        """The source stays whole when target tokens are forgotten."""


class StackCache(DepthCache):
    """A layer for each call and, of a decoder that reads an encoder, one behind them for the encoder's states."""

    def __init__(self, depth: int, made_for: str, reads_memory: bool):
        super().__init__(depth, made_for)
        self.reads_memory = reads_memory
        if reads_memory:
            self.layers.append(MemoryLayer())

    @property
    def depth(self) -> int:
        return len(self.layers) - self.reads_memory

    @property
    def memory(self) -> MemoryLayer:
        return self.layers[-1]


class Scene(NamedTuple):
    """What a stack's tokens see besides themselves."""

    mask: torch.Tensor  # (B, P + S) bool, True at tokens
    is_causal: bool
    memory: KeyValue | None = None  # (B, K', H, D) each
    memory_mask: torch.Tensor | None = None  # (B, K') bool


class SparseDepth(NamedTuple):
    """What came of all calls; the first names are those of `DepthOutput`."""

    hidden_states: torch.Tensor  # (B, S, d)
    ponder_cost: torch.Tensor | None  # (B,)
    ponder_steps: torch.Tensor  # (B, S), -1 at padding
    halting_probabilities: torch.Tensor | None  # (B, S, L), 0 where a token has halted, and before the first call
    all_hidden_states: tuple[torch.Tensor, ...] | None  # L + 1 of (B, S, d)
    attentions: tuple[torch.Tensor, ...] | None  # L of (B, k * H, S, P + S)
    gates: None
    read_attentions: None
    memory_states: None
    cross_attentions: tuple[torch.Tensor, ...] | None  # L of (B, k * H, S, K')
    experts: tuple[torch.Tensor, ...] | None  # (B, S, L, k) of each router
    statistics: tuple[RouterStatistics, ...]  # of each router, over all calls


def seating(units: torch.Tensor | None, shape: tuple[int, int], offset: int, device: torch.device) -> Asking:
    """Seat the tokens with these flat numbers (n,), ascending, in a rectangle as narrow as it can be; None: all."""
    batch, length = shape
    if units is None:
        columns = torch.arange(offset, offset + length, device=device)[None]
        return Asking(None, batch, length, columns, None)
    row = units // length
    counts = torch.bincount(row, minlength=batch)
    rows = counts.nonzero().squeeze(-1)
    width = int(counts.max())
    first = counts.cumsum(0) - counts
    new_row = (counts > 0).cumsum(0) - 1
    slots = new_row[row] * width + torch.arange(units.shape[0], device=device) - first[row]
    columns = torch.full((rows.shape[0] * width,), offset, device=device)
    columns = columns.scatter(0, slots, units % length + offset).unflatten(0, (-1, width))
    everyone = rows.shape[0] == batch
    return Asking(slots, rows.shape[0], width, columns, None if everyone else rows)


class Frame:
    """The tokens that are present, where they sit, and the keys that have been made so far."""

    def __init__(self, scene: Scene, shape: tuple[int, int], slots: DepthSlots | None):
        self.scene, self.shape, self.slots = scene, shape, slots
        self.offset = scene.mask.shape[1] - shape[1]
        self.device = scene.mask.device
        self.units: torch.Tensor | None = None  # (n,), None while all are present
        self.fresh: torch.Tensor | None = None
        self.frozen: KeyValue | None = None
        # columns stand for positions wherever a row's tokens are in one piece, as a causal model's are
        in_pieces = not scene.is_causal and (torch.compiler.is_compiling() or has_gaps(scene.mask))
        self.places = token_positions(scene.mask) if in_pieces else None
        self.seat()

    @property
    def numbers(self) -> torch.Tensor:
        """Flat numbers (n,) of the tokens present."""
        everyone = self.shape[0] * self.shape[1]
        return torch.arange(everyone, device=self.device) if self.units is None else self.units

    def seat(self, units: torch.Tensor | None = None) -> None:
        self.units = units
        self.asking = seating(units, self.shape, self.offset, self.device)
        if self.places is not None:
            self.asking = self.asking._replace(places=self.asking.of_rows(self.places))
        scene, asking = self.scene, self.asking
        visible = asking.of_rows(scene.mask)[:, None, None]
        if scene.is_causal:
            key = torch.arange(scene.mask.shape[1], device=self.device)
            visible = visible & (key <= asking.columns[:, None, :, None])
        self.visible = visible
        self.memory_visible = None if scene.memory is None else asking.of_rows(scene.memory_mask)[:, None, None]

    def let_go(self, state: TokenState, kept: torch.Tensor) -> tuple[TokenState, tuple[torch.Tensor, TokenState]]:
        """Keep the tokens at `kept` -> their state, and the numbers and state of those that have halted."""
        numbers = self.numbers
        gone = (~state.live).nonzero().squeeze(-1)
        self.seat(numbers[kept])
        return state.select(kept), (numbers[gone], state.select(gone))

    def context(self, step: int) -> SUTContext:
        past = None if self.slots is None else self.slots.past(step)
        return SUTContext(
            self.asking,
            self.visible,
            self.shape,
            self.fresh,
            self.frozen,
            past,
            self.scene.memory,
            self.memory_visible,
        )

    def keep(self, step: int, frozen: KeyValue, seen: KeyValue) -> None:
        self.frozen = frozen
        if self.slots is not None:
            self.slots.keep(step, *(states.transpose(1, 2) for states in seen))


class Record:
    """What a caller asked to see of each call."""

    def __init__(self, options: DepthOptions, experts: bool, num_units: int):
        self.options, self.with_experts, self.num_units = options, experts, num_units
        self.probabilities: list[torch.Tensor] = []
        self.hidden_states: list[torch.Tensor] = []
        self.outputs: list = []
        self.experts: list[tuple[torch.Tensor, ...]] = []
        self.statistics: tuple[RouterStatistics, ...] | None = None

    def whole(self, values: torch.Tensor, units: torch.Tensor, fill: float = 0) -> torch.Tensor:
        return assemble([values], units, self.num_units, fill)

    def halting(self, probability: torch.Tensor, live: torch.Tensor, units: torch.Tensor) -> None:
        if self.options.record_halting:
            self.probabilities.append(self.whole(torch.where(live, probability, 0.0), units))

    def call(self, output, hidden: torch.Tensor, live: torch.Tensor, units: torch.Tensor) -> None:
        if self.options.record_states:
            self.hidden_states.append(hidden)
            self.outputs.append(output)
        if self.with_experts:
            routed = (torch.where(live[:, None], index, -1) for index in output.experts)
            self.experts.append(tuple(self.whole(index, units, -1) for index in routed))
        if self.statistics is None:
            self.statistics = output.statistics
        else:
            pairs = zip(self.statistics, output.statistics, strict=True)
            self.statistics = tuple(before.plus(new) for before, new in pairs)

    def stacked(self, values: list[torch.Tensor], fill: float, shape: tuple[int, int]) -> torch.Tensor:
        """Of each call (B * S, ...) -> (B, S, L, ...), calls never made filled."""
        missing = self.options.max_steps - len(values)
        values = [*values, *[torch.full_like(values[0], fill)] * missing]
        return torch.stack(values, dim=1).unflatten(0, shape)


def recur_sparse(
    block: SUTBlock,
    head: LogHaltingHead | None,
    config,
    hidden: torch.Tensor,
    scene: Scene,
    options: DepthOptions,
    slots: DepthSlots | None = None,
    record_experts: bool = False,
) -> SparseDepth:
    """Apply one shared block until every token has halted (Algorithm 1 of the SUT paper).

    Args:
        head: judges the states behind each call but the last; None: all calls are made.
        hidden: (B, S, d) input states.
        slots: what earlier tokens left for each call, see `cache`; the new tokens' share is added to it.

    Raises:
        ValueError: a halting probability is NaN.
    """
    mask, frozen = scene.mask[:, -hidden.shape[1] :], config.halted_tokens == "frozen"
    pruner = Pruner(options, block, every_step=not frozen)
    frame, record = Frame(scene, hidden.shape[:2], slots), Record(options, record_experts, mask.numel())
    state, finished = begin(hidden, mask, frame, pruner), []
    any_nan = torch.zeros((), dtype=torch.bool, device=hidden.device)
    if options.record_states:
        record.hidden_states.append(state.hidden)

    for step in range(options.max_steps):
        source = state.soft
        if head is not None and step > 0:
            log_go, log_halt = head(state.hidden)
            any_nan = any_nan | (log_halt.isnan() & state.live).any()
            record.halting(log_halt.exp(), state.live, frame.numbers)
            state = decide(state, log_go, log_halt, step, options.halting_threshold, frozen)
            going_on, kept = pruner.survivors(state.live)
            if not going_on:
                break
            # keys are made of all that were present, so also of those that leave now
            frame.fresh = frame.units
            if kept is not None:
                state, left = frame.let_go(state, kept)
                finished.append(left)
        elif head is not None:
            record.halting(torch.zeros_like(state.log_remaining), state.live, frame.numbers)
        output = block(state.hidden, remaining(state), frame.context(step), source)
        frame.keep(step, output.frozen, output.seen)
        state = commit(state, output.hidden_states, frozen)
        record.call(output, state.hidden, state.live, frame.numbers)

    refuse_nan(any_nan)
    if slots is not None:
        frame.fresh = frame.units
        fill(block, frame, state.soft)
    return summarise([*finished, (frame.numbers, state)], mask, head is not None, record)


def begin(hidden: torch.Tensor, mask: torch.Tensor, frame: Frame, pruner: Pruner) -> TokenState:
    """All tokens of (B, S, d), or without padding where that may be left out."""
    state = initial_state(hidden.flatten(0, 1), mask.flatten())
    # a piece of padding only has nobody to gather
    if not pruner.may_gather or bool(mask.all()) or not bool(mask.any()):
        return state
    frame.fresh = mask.flatten().nonzero().squeeze(-1)
    frame.seat(frame.fresh)
    return state.select(frame.fresh)


def fill(block: SUTBlock, frame: Frame, source: torch.Tensor) -> None:
    """Give the calls that were not made the keys of the final soft states (n, d), which tokens to come will read."""
    while frame.slots.kept < frame.slots.depth:
        step = frame.slots.kept
        frame.keep(step, *block.keys_values(source, frame.context(step)))


def summarise(
    finished: list[tuple[torch.Tensor, TokenState]], mask: torch.Tensor, halts: bool, record: Record
) -> SparseDepth:
    shape, options = mask.shape, record.options
    units = torch.cat([numbers for numbers, _ in finished])

    def whole(values: list[torch.Tensor], fill: float = 0) -> torch.Tensor:
        return assemble(values, units, mask.numel(), fill).unflatten(0, shape)

    soft = whole([state.soft for _, state in finished])
    steps = whole([state.steps for _, state in finished], fill=-1)
    cost = None
    if halts:
        costs = whole([ponder_cost(state, options.max_steps) for _, state in finished])
        cost = (costs * mask).sum(-1) / mask.sum(-1).clamp_min(1)
    states = None
    if options.record_states:
        states = tuple(hidden.unflatten(0, shape) for hidden in record.hidden_states)
    experts = None
    if record.with_experts:
        experts = tuple(record.stacked(list(each), -1, shape) for each in zip(*record.experts, strict=True))
    return SparseDepth(
        hidden_states=torch.where(mask[..., None], soft, 0.0),
        ponder_cost=cost,
        ponder_steps=torch.where(mask, steps, -1),
        halting_probabilities=record.stacked(record.probabilities, 0.0, shape) if record.probabilities else None,
        all_hidden_states=states,
        attentions=maps(record, "attentions"),
        gates=None,
        read_attentions=None,
        memory_states=None,
        cross_attentions=maps(record, "cross_attentions"),
        experts=experts,
        statistics=record.statistics,
    )


def maps(record: Record, name: str) -> tuple[torch.Tensor, ...] | None:
    """Attention of each call, (B, H, S, k, K) -> (B, k * H, S, K): the heads of a token's first expert come first."""
    values = recorded(record.outputs, name) if record.outputs else None
    return None if values is None else tuple(each.permute(0, 3, 1, 2, 4).flatten(1, 2) for each in values)
