"""Base models of the encoder families: embed, run through depth, pool.

Shapes: B rows, S tokens, E width, H heads, D head dim, h = D // 2.
"""

import torch
from torch import nn
from transformers.utils.generic import can_return_tuple

from .attention import PaddedContext
from .configuration_common import check_halting_threshold
from .depth_recurrence import DepthOptions, DepthOutput, recur, repeat
from .layout import Rotations, key_mask, masked_mean
from .outputs import RecurrentModelOutput
from .position import token_positions, xpos_rotations
from .validation import check_inputs


def pool(states: torch.Tensor, mask: torch.Tensor, strategy: str) -> torch.Tensor:
    """One vector a row, wherever its padding is: (B, S, E), (B, S) bool -> (B, E)."""
    if strategy == "mean":
        return masked_mean(states, mask)
    column = torch.arange(mask.shape[1], device=mask.device)
    if strategy == "end":
        index = torch.where(mask, column, -1).amax(-1)
    else:
        index = torch.where(mask, column, mask.shape[1]).amin(-1)
    return states.gather(1, index[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)


def has_gaps(mask: torch.Tensor) -> bool:
    """Whether padding stands between the tokens of some row of (B, S)."""
    beginnings = (mask[:, 1:] & ~mask[:, :-1]).sum(-1) + mask[:, 0]
    return bool((beginnings > 1).any())


def batch_rotations(config, mask: torch.Tensor) -> Rotations:
    """xPos tables of a batch: (B, S) bool -> tables of (B, S, 1, h), or of (1, S, 1, h) that serve every row.

    Scores depend on position differences, so columns can stand for positions wherever a row's tokens are in one piece.
    """
    if torch.compiler.is_compiling() or has_gaps(mask):
        positions, center = token_positions(mask), mask.sum(-1, keepdim=True) // 2
    else:
        positions, center = torch.arange(mask.shape[1], device=mask.device)[None], mask.shape[1] // 2
    return Rotations(*xpos_rotations(positions, config.head_dim, config.xpos_scale_base, center))


def touch_all_parameters(states: torch.Tensor, module: nn.Module) -> torch.Tensor:
    """Give every parameter a zero gradient at least.

    Data-parallel ranks wait for each other's gradient of every parameter, and a rank whose batch halts at once uses
    none of the block's. Sharded parameters are left out: their ranks take the same steps, see `is_sharded`.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or not torch.is_grad_enabled():
        return states
    whole = [p for p in module.parameters() if p.requires_grad and not hasattr(p, "device_mesh")]
    return states + 0.0 * sum(parameter.sum() for parameter in whole)


class EncoderModel:
    """Forward pass of a base model, for families that define `encode`."""

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_halting: bool = False,
        output_gates: bool = False,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
    ) -> RecurrentModelOutput:
        """Encode a batch.

        Args:
            input_ids: (B, S), or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens; padding may be on either side.
            token_type_ids: (B, S), accepted because tokenizers return it; a base model reads a row as one sequence.
            output_hidden_states, output_attentions, output_halting, output_gates: what to return of each step. Asking
                for states, attentions or gates runs all steps, without compaction, to the same result.
            max_steps: most depth steps of this call, instead of `config.num_hidden_layers`.
            halting_threshold: in (0, 1], instead of `config.halting_threshold`.

        Raises:
            ValueError: mask of another shape, all-padding row, token id out of range, bad `max_steps` or threshold,
                attentions asked of an implementation that has none, NaN in a halting probability.
        """
        config = self.config
        mask = check_inputs(input_ids, inputs_embeds, attention_mask, config.vocab_size)
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        if output_attentions and config._attn_implementation != "eager":
            raise ValueError(
                f"output_attentions=True: the {config._attn_implementation!r} implementation keeps no attention "
                "weights; call model.set_attn_implementation('eager') first"
            )
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        record_states = output_hidden_states or output_attentions or output_gates
        depth = self.encode(
            self.dropout(inputs_embeds), mask, max_steps, halting_threshold, output_halting, record_states
        )
        return RecurrentModelOutput(
            last_hidden_state=depth.hidden_states,
            pooler_output=pool(depth.hidden_states, mask, config.pooling),
            ponder_cost=depth.ponder_cost,
            ponder_steps=depth.ponder_steps,
            hidden_states=depth.all_hidden_states if output_hidden_states else None,
            attentions=depth.attentions if output_attentions else None,
            halting_probabilities=depth.halting_probabilities,
            gates=depth.gates if output_gates else None,
        )


class FixedDepth:
    """`encode` through a fixed number of blocks, shared or not."""

    def run_fixed(self, blocks: list[nn.Module], hidden: torch.Tensor, mask: torch.Tensor, record_states: bool):
        rotations = batch_rotations(self.config, mask)
        context = PaddedContext(key_mask(self.config, hidden, mask), rotations.query, rotations.key)
        final, states, outputs = repeat(blocks, hidden, context, record_states)
        final = torch.where(mask[..., None], final, 0.0)
        if not torch.compiler.is_compiling() and final.isnan().any():
            raise ValueError("the states are NaN: the weights or the inputs hold NaN or infinite values, check them")
        attentions = tuple(output.attentions for output in outputs)
        gates = tuple(output.gate for output in outputs)
        return DepthOutput(
            hidden_states=final,
            ponder_cost=None,
            ponder_steps=None,
            halting_probabilities=None,
            all_hidden_states=tuple(states) if record_states else None,
            attentions=attentions if attentions and attentions[0] is not None else None,
            gates=gates if gates and gates[0] is not None else None,
        )


class DepthRecurrentModel(FixedDepth, EncoderModel):
    """`encode` through one shared block until every halting unit has stopped."""

    def encode(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        max_steps: int | None,
        halting_threshold: float | None,
        record_halting: bool,
        record_states: bool,
    ) -> DepthOutput:
        config = self.config
        max_steps = config.num_hidden_layers if max_steps is None else max_steps
        if not isinstance(max_steps, int) or max_steps < 1:
            raise ValueError(f"max_steps is {max_steps!r}: pass a whole number, at least 1")
        if config.halting == "none":
            if halting_threshold is not None:
                raise ValueError(f"halting_threshold is {halting_threshold!r}: this model never halts (halting='none')")
            depth = self.run_fixed([self.block] * max_steps, hidden, mask, record_states)
            return depth._replace(ponder_steps=torch.full_like(mask[:, 0], max_steps, dtype=torch.long))
        options = DepthOptions(
            max_steps=max_steps,
            halting_threshold=check_halting_threshold(
                config.halting_threshold if halting_threshold is None else halting_threshold
            ),
            compaction=config.compaction,
            hard_stop=config.hard_stop,
            record_halting=record_halting,
            record_states=record_states,
        )
        depth = recur(self.block, self.halting_head, config, hidden, mask, batch_rotations(config, mask), options)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))
