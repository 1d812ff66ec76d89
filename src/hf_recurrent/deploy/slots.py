"""Depth steps of a pool of fixed shape, in whose slots units at different depths are computed together.

All steps share one block, so that one application of it is a step of every slot, whatever its depth. Slots whose units
have all halted take others at once, and no operator depends on values: a step can be captured as a CUDA graph.
Shapes: B slots, S tokens of each, E width, L maximum of steps.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from ..models.base.base_model import ForwardCall
from ..models.base.pretrained import RecurrentPreTrainedModel
from ..models.config.exit_criteria import EXIT_ARGUMENTS
from ..models.depth.exit_criteria import ExitOptions
from ..models.depth.halting import HaltingStrategy
from ..models.depth.layouts import PaddedLayout
from ..models.ops.flex_attention import is_flex
from ..models.ops.layers import where_rows
from ..models.ops.masks import is_flash


def merged(rows: torch.Tensor, new: NamedTuple, old: NamedTuple) -> NamedTuple:
    """The state of slots with that of some `rows` (B,) replaced; tensors that have no size in the new one stay."""

    def of(new: Any, old: Any) -> Any:
        if isinstance(old, tuple):
            return merged(rows, new, old)
        return old if old is None or new.shape != old.shape else where_rows(rows, new, old)

    return type(old)(*map(of, new, old))


def overwrite(memory: Any, values: Any) -> None:
    """Copy the tensors of nested tuples into those that stay."""
    for old, new in zip(tree_leaves(memory), tree_leaves(values), strict=True):
        if old is not None:
            old.copy_(new)


class DepthSteps:
    """The depth steps of a model's calls, with the same options for all slots.

    Args:
        model: with a head, whose base model iterates one block.
        cache: of all slots; None without.
        compiled: whether torch compiles the block.
        options: of a call, such as `max_depth` or `exit_criterion`.
    """

    def __init__(self, model: PreTrainedModel, cache: Any = None, compiled: bool = False, **options: Any):
        base, head = model.model, model.answer_head()
        max_depth, threshold = (options.pop(name, None) for name in ("max_depth", "halting_threshold"))
        exits = ExitOptions(*(options.pop(name, None) for name in EXIT_ARGUMENTS))
        if options:
            raise TypeError(f"got an unexpected keyword argument {next(iter(options))!r}")
        self.call = ForwardCall(
            max_depth=max_depth,
            halting_threshold=threshold,
            record_halting=False,
            record_states=False,
            pool=False,
            cache=None,
            model_kwargs={},
            exit=base.resolve_exit(exits, max_depth, threshold, head),
            head=head,
            features=base.features,
            full=True,
        )
        self.max_depth = base.resolve_max_depth(self.call)
        self.strategy: HaltingStrategy = base.strategy(self.call, self.max_depth, cache)
        self.capped = base.depth_options(self.call, self.max_depth).cap_depth_by_length
        blocks = base.depth_blocks(self.max_depth)
        if len(blocks) > 1:
            raise ValueError(
                "depth steps of this model are those of several blocks, but slots at different depths share "
                "one: call the model itself"
            )
        self.block: nn.Module = torch.compile(blocks[0], dynamic=False) if compiled else blocks[0]

    @property
    def ends_early(self) -> bool:
        strategy = self.strategy
        return (strategy.halts or strategy.exits) and not strategy.needs_every_step

    @property
    def decides_ahead(self) -> bool:
        """Whether what halts skips the step under decision, so that decisions are made before slots are refilled."""
        return self.strategy.halts and self.strategy.skips_step

    def of_units(self, step: torch.Tensor) -> torch.Tensor:
        """Numbers (B,) of steps, as they broadcast against units."""
        return step[:, None] if self.strategy.token_units else step

    def start(self, layout: PaddedLayout, hidden: torch.Tensor) -> NamedTuple:
        """The state of units that begin with these states (B, S, E)."""
        state = layout.initial_state(hidden)
        if self.decides_ahead and self.strategy.first_decision == 0:
            return self.decide(layout, state, None, torch.zeros_like(layout.mask[:, 0], dtype=torch.long))
        return state

    def decide(
        self, layout: PaddedLayout, state: NamedTuple, candidate: torch.Tensor | None, step: torch.Tensor
    ) -> NamedTuple:
        strategy, of_units = self.strategy, self.of_units(step)
        decided = strategy.decide(state, layout.features(state, candidate, step), of_units)
        if self.capped:
            decided = decided._replace(live=decided.live & (of_units <= layout.lengths))
        return merged(step >= strategy.first_decision, decided, state) if strategy.first_decision else decided

    def take(
        self, layout: PaddedLayout, state: NamedTuple, step: torch.Tensor
    ) -> tuple[NamedTuple, torch.Tensor, torch.Tensor]:
        """Take the steps numbered (B,), from 0 -> the state, the steps taken (B,), and which slots are done (B,)."""
        strategy, output = self.strategy, None
        if strategy.needs_candidate:
            output, _ = layout.advance(self.block, state, step)
        if strategy.halts and not self.decides_ahead:
            state = self.decide(layout, state, None if output is None else output.hidden_states, step)
        if output is None:
            output, _ = layout.advance(self.block, state, step)
        before, state = state, strategy.commit(state, output.hidden_states, self.of_units(step))
        if strategy.exits:
            state = strategy.judge(before, state, layout, self.of_units(step))
        taken = step + 1
        if self.decides_ahead:
            state = self.decide(layout, state, None, taken)
        done = taken >= self.max_depth
        if self.ends_early:
            live = state.live
            done = done | ~(live.any(-1) if strategy.token_units else live)
        return state, taken, done


class Late:
    """Values of each replay, read one replay late where reading the newest would keep a device waiting."""

    def __init__(self, is_late: bool):
        self.is_late = is_late
        self.pending: tuple[torch.Tensor, torch.cuda.Event | None] | None = None

    def poll(self, values: torch.Tensor) -> list | None:
        """The newest values that are known, None while there are none yet."""
        if not self.is_late:
            return values.tolist()
        copied = values.to("cpu", non_blocking=True, copy=True)
        event = torch.cuda.Event() if values.device.type == "cuda" else None
        if event is not None:
            event.record(torch.cuda.current_stream(values.device))
        arrived, self.pending = self.pending, (copied, event)
        if arrived is None:
            return None
        if arrived[1] is not None:
            arrived[1].synchronize()
        return arrived[0].tolist()


def check_slots(model: PreTrainedModel, architectures: tuple[str, ...], instead: str) -> None:
    """Raise a ValueError unless the model's units can be computed in slots.

    Args:
        architectures: supported ones.
        instead: what to call for another.
    """
    config, name = model.config, type(model).__name__
    if model.training:
        raise ValueError(f"the {name} is in training mode: call .eval() first")
    if not isinstance(model, RecurrentPreTrainedModel):
        raise ValueError(f"the {name} is not a class of hf_recurrent: load it without trust_remote_code, or {instead}")
    if config.model_type not in architectures or config.is_encoder_decoder:
        known = ", ".join(architectures)
        raise ValueError(f"model_type {config.model_type!r} is not supported: take one of {known}; or {instead}")
    if is_flash(config) or is_flex(config):
        raise ValueError(
            f"attn_implementation is {config._attn_implementation!r}, whose masks hold one batch: call "
            "model.set_attn_implementation('sdpa') first"
        )
