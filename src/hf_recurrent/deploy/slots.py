"""Depth steps of a pool of fixed shape, in whose slots units at different depths are computed together.

All steps share one block, so that one application of it is a step of every slot, whatever its depth. Slots whose units
have all halted take others at once, and no operator depends on values: a step can be captured as a CUDA graph.
Shapes: B slots, S tokens of each, E width, L maximum of steps.
"""

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import PreTrainedModel

from ..models.base.base_model import ForwardCall
from ..models.base.pretrained import RecurrentPreTrainedModel
from ..models.config.exit_criteria import EXIT_ARGUMENTS
from ..models.depth.exit_criteria import ExitOptions
from ..models.depth.layouts import PaddedLayout
from ..models.ops.flex_attention import is_flex
from ..models.ops.layers import where_rows
from ..models.ops.masks import is_flash
from ..models.ops.positions import sinusoids


def merged(rows: torch.Tensor, new: Any, old: Any) -> Any:
    """A state of slots with that of some `rows` (B,) replaced; tensors that have no size yet in the new one stay."""
    if isinstance(old, tuple):
        return type(old)(*(merged(rows, *pair) for pair in zip(new, old, strict=True)))
    return old if old is None or new.shape != old.shape else where_rows(rows, new, old)


class Slots:
    """Slots with a state and a depth step each, for calls of a model with the same options.

    Args:
        model: with a head, whose base model iterates one block.
        number: of slots.
        cache: of all of them; None without.
        options: of a call, such as `max_depth` or `exit_criterion`.
    """

    def __init__(self, model: PreTrainedModel, number: int, cache: Any = None, **options: Any):
        base, head = model.model, model.answer_head()
        max_depth, threshold, *exits = (
            options.pop(name, None) for name in ("max_depth", "halting_threshold", *EXIT_ARGUMENTS)
        )
        for name in options:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
        rule = base.resolve_exit(ExitOptions(*exits), max_depth, threshold, head)
        call = ForwardCall(
            max_depth, threshold, False, False, False, None, None, {}, rule, head, base.features, full=True
        )
        self.model, self.call, self.max_depth = model, call, base.resolve_max_depth(call)
        self.strategy = strategy = base.strategy(call, self.max_depth, cache)
        self.capped = base.depth_options(call, self.max_depth).cap_depth_by_length
        self.ends_early = (strategy.halts or strategy.exits) and not strategy.needs_every_step
        # what halts skips the step under decision: it is decided on before slots are refilled
        self.decides_ahead = strategy.halts and strategy.skips_step
        self.block, *others = base.depth_blocks(self.max_depth)
        if others:
            raise ValueError(
                "depth steps of this model are those of several blocks, but slots at different depths share one: call "
                "the model itself"
            )
        self.step = torch.zeros(number, dtype=torch.long, device=model.device)
        self.done = torch.ones_like(self.step, dtype=torch.bool)
        self.state: NamedTuple | None = None

    def embed(self, ids: torch.Tensor, types: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
        """Embedded tokens (B, S, E) of ids and types (B, S), at positions that broadcast against them."""
        base, config = self.model.model, self.model.config
        hidden = base.embedded(ids, None, types)
        if config.model_type == "albert_recurrent":
            return base.embedding_proj(base.embedding_norm(hidden + base.embed_positions(positions)))
        if getattr(config, "attention", None) == "absolute":
            return hidden + sinusoids(positions, hidden.shape[-1]).to(hidden.dtype)
        return hidden

    def decide(self, layout: PaddedLayout, state: Any, candidate: torch.Tensor | None, step: torch.Tensor) -> Any:
        strategy, of_units = self.strategy, step[:, None] if self.strategy.token_units else step
        decided = strategy.decide(state, layout.features(state, candidate, step), of_units)
        if self.capped:
            decided = decided._replace(live=decided.live & (of_units <= layout.lengths))
        return merged(step >= strategy.first_decision, decided, state)

    def start(self, layout: PaddedLayout, hidden: torch.Tensor, rows: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """The state and the steps taken (B,), where some `rows` (B,) begin with these states (B, S, E)."""
        state, step = layout.initial_state(hidden), torch.where(rows, 0, self.step)
        if self.decides_ahead and self.strategy.first_decision == 0:
            state = self.decide(layout, state, None, torch.zeros_like(step))
        return state if self.state is None else merged(rows, state, self.state), step

    def take(self, layout: PaddedLayout, state: Any, step: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Take a step, numbered (B,) from 0 -> the state, the steps taken (B,), and which slots are done (B,)."""
        strategy, output, candidate = self.strategy, None, None
        if strategy.needs_candidate:
            output, _ = layout.advance(self.block, state, step)
            candidate = output.hidden_states
        if strategy.halts and not self.decides_ahead:
            state = self.decide(layout, state, candidate, step)
        if output is None:
            output, _ = layout.advance(self.block, state, step)
        before, of_units = state, step[:, None] if strategy.token_units else step
        state, step = strategy.commit(state, output.hidden_states, of_units), step + 1
        if strategy.exits:
            state = strategy.judge(before, state, layout, of_units)
        if self.decides_ahead:
            state = self.decide(layout, state, None, step)
        done = step >= self.max_depth
        halted = ~state.live.reshape(len(step), -1).any(-1)
        return state, step, done | halted if self.ends_early else done

    def keep(self, state: Any, step: torch.Tensor, done: torch.Tensor) -> None:
        """Write them into memory that stays."""
        if self.state is None:
            # of tensors that are not used elsewhere, too
            self.state = tree_map_only(torch.Tensor, torch.clone, state)
        for old, new in zip(
            tree_leaves((self.state, self.step, self.done)), tree_leaves((state, step, done)), strict=True
        ):
            if old is not None:
                old.copy_(new)


def check_slots(model: PreTrainedModel, number: int, architectures: tuple[str, ...], instead: str) -> None:
    """Raise a ValueError unless units of the model can be computed in so many slots.

    Args:
        architectures: supported ones.
        instead: what to call for others.
    """
    config, name = model.config, type(model).__name__
    if number < 1:
        raise ValueError(f"there are {number} slots: pass at least 1")
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
