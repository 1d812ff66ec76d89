"""Base models that run all tokens of a row through depth at once.

Shapes: B rows, S tokens, P tokens read before, E width, D head dim, h = D // 2.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from transformers.masking_utils import create_causal_mask

from .attention import PaddedContext, Rotations
from .cache import DepthCache, DepthSlots
from .configuration_common import check_halting_threshold
from .depth_recurrence import DepthOptions, DepthOutput, recur, repeat
from .encoder import Call, EncoderModel, touch_all_parameters
from .halting import HaltingHead
from .layout import key_mask
from .position import rotation_angles, rotation_table, token_positions, xpos_rotations, xpos_scales
from .validation import has_gaps


def batch_rotations(config, mask: torch.Tensor) -> Rotations:
    """xPos tables of a batch: (B, S) bool -> tables of (B, S, 1, h), or of (1, S, 1, h) that serve every row.

    Scores depend on position differences, so columns can stand for positions wherever a row's tokens are in one piece.
    """
    if torch.compiler.is_compiling() or has_gaps(mask):
        positions, center = token_positions(mask), mask.sum(-1, keepdim=True) // 2
    else:
        positions, center = torch.arange(mask.shape[1], device=mask.device)[None], mask.shape[1] // 2
    return Rotations(*xpos_rotations(positions, config.head_dim, config.xpos_scale_base, center))


def cached_rotations(config, past_length: int, length: int, device: torch.device) -> tuple[Rotations, torch.Tensor]:
    """Tables (1, S, 1, h) of new tokens, and the decay (P + S, D) of all keys, measured from the new tokens' middle.

    Cached keys are rotated but not scaled, because scales measured from a fixed point leave the range of half
    precision within a few thousand tokens.
    """
    column = torch.arange(past_length + length, device=device)
    center = past_length + length // 2
    angles = rotation_angles(column[None, past_length:], config.head_dim)
    scales = xpos_scales(column[past_length:] - center, config.head_dim, config.xpos_scale_base)
    rotations = Rotations(rotation_table(angles, scales[None]), rotation_table(angles))
    decay = xpos_scales(center - column, config.head_dim, config.xpos_scale_base).float()
    return rotations, decay.repeat_interleave(2, dim=-1)


def refuse_too_long(config, hidden: torch.Tensor) -> None:
    """Raise a ValueError where float16 cannot hold the scales of xPos at both ends of (B, S, E)."""
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if dtype is not torch.float16:
        return
    # queries and keys of size 16 must fit; the fastest decay is that of the first plane, 0.4 / 1.4
    most = int(2 * config.xpos_scale_base * math.log(torch.finfo(dtype).max / 16) / math.log(1.4 / 0.4))
    if hidden.shape[1] > most:
        raise ValueError(
            f"the inputs have {hidden.shape[1]} tokens in float16, which holds the scales of xPos over {most} at most: "
            "use bfloat16 or float32, or read a causal model's row in pieces with past_key_values"
        )


def fixed_depth(depth: DepthOutput, mask: torch.Tensor) -> DepthOutput:
    """Zeros at padding.

    Raises:
        ValueError: the states are NaN.
    """
    final = torch.where(mask[..., None], depth.hidden_states, 0.0)
    if not torch.compiler.is_compiling() and final.isnan().any():
        raise ValueError("the states are NaN: the weights or the inputs hold NaN or infinite values, check them")
    return depth._replace(hidden_states=final)


def refuse_depth_choices(call: Call) -> None:
    for name, value in (("max_steps", call.max_steps), ("halting_threshold", call.halting_threshold)):
        if value is not None:
            raise ValueError(f"{name} is {value!r}: layers of this model are not shared, its depth is fixed")


def steps_of(config, call: Call) -> int:
    max_steps = config.num_hidden_layers if call.max_steps is None else call.max_steps
    if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
        raise ValueError(f"max_steps is {max_steps!r}: pass a whole number, at least 1")
    return max_steps


def depth_options(config, call: Call) -> DepthOptions:
    threshold = config.halting_threshold if call.halting_threshold is None else call.halting_threshold
    return DepthOptions(
        max_steps=steps_of(config, call),
        halting_threshold=check_halting_threshold(threshold),
        compaction=config.compaction,
        hard_stop=config.hard_stop,
        record_halting=call.record_halting,
        record_states=call.record_states,
    )


class SharedBlock:
    """Runs states through one shared block until every halting unit has stopped, or for a fixed number of steps."""

    def build_halting(self, config) -> None:
        if config.halting != "none":
            self.halting_head = HaltingHead(config.hidden_size, config.transition_aware, config.halting_bias_init)

    def run_shared(
        self, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext, call: Call, slots
    ) -> DepthOutput:
        config = self.config
        if config.halting != "none":
            return recur(
                self.block, self.halting_head, config, hidden, mask, context, depth_options(config, call), slots
            )
        return self.run_fixed(hidden, mask, context, call, slots)

    def run_fixed(
        self, hidden: torch.Tensor, mask: torch.Tensor, context: NamedTuple, call: Call, slots
    ) -> DepthOutput:
        config = self.config
        if call.halting_threshold is not None:
            threshold = call.halting_threshold
            raise ValueError(f"halting_threshold is {threshold!r}: this model never halts (halting='none')")
        max_steps = steps_of(config, call)
        if slots is not None and slots.depth != max_steps:
            raise ValueError(
                f"this call takes {max_steps} steps but `past_key_values` was made for {slots.depth}: a model that "
                f"never halts takes the same number for all tokens of a row, pass max_steps={slots.depth}"
            )
        depth = fixed_depth(repeat([self.block] * max_steps, hidden, context, call.record_states, slots), mask)
        units = (
            torch.where(mask, max_steps, -1)
            if config.is_causal
            else torch.full_like(mask[:, 0], max_steps, dtype=torch.long)
        )
        return depth._replace(ponder_steps=units)


class DepthModel(EncoderModel):
    """`encode` all tokens at once, for families that define `run_depth`."""

    cache_remembers_padding = True

    def run_depth(
        self, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext, call: Call, slots: DepthSlots | None
    ) -> DepthOutput:
        raise NotImplementedError

    def new_cache(self, max_steps: int | None = None) -> DepthCache:
        return DepthCache(self.config.num_hidden_layers if max_steps is None else max_steps, self.made_for())

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: Call) -> DepthOutput:
        slots = None if call.cache is None else DepthSlots(call.cache, mask)
        context = self.context(hidden, mask, call.cache)
        depth = self.run_depth(hidden, mask[:, -hidden.shape[1] :], context, call, slots)
        if slots is not None:
            slots.commit()
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def context(self, hidden: torch.Tensor, mask: torch.Tensor, cache: DepthCache | None) -> PaddedContext:
        config = self.config
        refuse_too_long(config, hidden)
        if not config.is_causal:
            return PaddedContext(key_mask(config, hidden, mask), batch_rotations(config, mask))
        attention_mask = create_causal_mask(
            config=config, inputs_embeds=hidden, attention_mask=mask, past_key_values=cache
        )
        if cache is None:
            return PaddedContext(attention_mask, batch_rotations(config, mask))
        rotations, key_scale = cached_rotations(config, cache.get_seq_length(), hidden.shape[1], hidden.device)
        return PaddedContext(attention_mask, rotations, key_scale=key_scale)


class DepthRecurrentModel(SharedBlock, DepthModel):
    """One shared block over all tokens of a row."""

    def build(self, config, block: nn.Module) -> None:
        self.build_embedding(config)
        self.block = block
        self.build_halting(config)
        self.post_init()

    def run_depth(self, hidden, mask, context, call, slots) -> DepthOutput:
        return self.run_shared(hidden, mask, context, call, slots)
