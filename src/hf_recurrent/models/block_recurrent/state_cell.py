"""State vectors that are updated after each block: the horizontal direction of a recurrent layer.

Shapes: B rows, S state vectors, K token keys, H heads, D head dim, E width, F inner width.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from ..common.initialization import LearnedTensor, initialized_linear, truncated_normal
from ..ops.attention import KeyValue
from .scaled_attention import HeadScales, ScaledAttention, unit

GATE_STD = 0.1
# added to the LSTM gates' biases, so that a state is kept and little is taken at first
KEEP_BIAS, TAKE_BIAS = 1.0, -1.0


class Gated(NamedTuple):
    """A state after a gate."""

    state: torch.Tensor  # (B, S, E)
    kept: torch.Tensor  # share of the state before that is in it, broadcasts to (B, S, E)


class StateGate(nn.Module):
    """Weighs what is new, a map of (B, S, I), against the state (Eq. 1 to 4 of the paper).

    "fixed": `c g + z (1 - g)` with a learned share g of each unit. "lstm": `c f + z i` with gates that see the inputs.
    Where the paper's equation has a tanh, the reference implementation has one in the "single" update only, for both
    gates, and no bias on z: so has this.
    """

    def __init__(self, config, in_features: int, squashed: bool = False):
        super().__init__()
        hidden_size = config.hidden_size
        self.squashed = squashed
        self.proj = initialized_linear(in_features, hidden_size, truncated_normal, bias=False)
        self.bias = None
        if config.state_gate == "fixed":
            self.bias = LearnedTensor(hidden_size, std=GATE_STD, value=config.state_gate_bias_init)
        else:
            gate = partial(truncated_normal, share=GATE_STD, bias_std=GATE_STD)
            self.forget_gate = initialized_linear(in_features, hidden_size, gate)
            self.input_gate = initialized_linear(in_features, hidden_size, gate)

    def forward(self, state: torch.Tensor, inputs: torch.Tensor) -> Gated:
        new = self.proj(inputs)
        new = new.tanh() if self.squashed else new
        if self.bias is not None:
            kept = self.bias().sigmoid()
            # an average over many blocks would lose what is small against it in half precision
            dtype = torch.promote_types(state.dtype, new.dtype)
            return Gated(torch.lerp(new.to(dtype), state.to(dtype), kept.to(dtype)), kept)
        kept = (self.forget_gate(inputs) + KEEP_BIAS).sigmoid()
        return Gated(state * kept + new * (self.input_gate(inputs) + TAKE_BIAS).sigmoid(), kept)


class StateCell(ScaledAttention):
    """State vectors of one layer: their start, how tokens read them, and their update from a block.

    States are told apart by learned IDs, which are added after the norm, for attention only. Keys and values of states
    serve tokens and states alike, as the tokens' do (section 3.1).
    """

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        self.initial_state = LearnedTensor(config.num_state_vectors, size, std=config.state_initializer_range)
        self.ids = LearnedTensor(config.num_state_vectors, size, std=1.0)
        self.norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.k_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.v_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.token_q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.scales = HeadScales(config)
        self.token_scales = HeadScales(config)
        self.update_kind = kind = config.state_update
        self.attention_gate = None if kind == "single" else StateGate(config, 2 * inner)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.layer_norm_eps) if kind == "dual" else None
        self.up_proj = self.feed_forward_gate = None
        if kind != "skip":
            inputs = size if kind == "dual" else 2 * inner
            self.up_proj = initialized_linear(inputs, config.intermediate_size, truncated_normal, bias=False)
            self.feed_forward_gate = StateGate(config, config.intermediate_size, squashed=kind == "single")

    def begin(self, batch_size: int, dtype: torch.dtype) -> torch.Tensor:
        """-> (B, S, E), before the first block."""
        return self.initial_state().to(dtype).expand(batch_size, -1, -1)

    def identified(self, state: torch.Tensor) -> torch.Tensor:
        return self.norm(state) + self.ids().to(state.dtype)

    def keys_values(self, state: torch.Tensor) -> KeyValue:
        """What is read of states (B, S, E): (B, S, H, D) each."""
        states = self.identified(state)
        return KeyValue(unit(self.heads(self.k_proj(states))), self.heads(self.v_proj(states)))

    def update(
        self, state: torch.Tensor, own: KeyValue, tokens: KeyValue, token_mask: torch.Tensor | None = None
    ) -> Gated:
        """State (B, S, E) after a block.

        Args:
            own: `keys_values(state)`.
            tokens: keys and values (B, K, H, D) of the block before and of this one, all of which are seen, from any
                state and without positions.
            token_mask: (B, K) bool, those that exist.
        """
        states = self.identified(state)
        query = self.scales.scaled(unit(self.heads(self.q_proj(states))))
        token_query = self.token_scales.scaled(unit(self.heads(self.token_q_proj(states))))
        bias = None
        if token_mask is not None:
            bias = torch.zeros_like(token_mask, dtype=query.dtype).masked_fill(~token_mask, -torch.inf)[:, None, None]
        attended = torch.cat((self.attend(query, *own)[0], self.attend(token_query, *tokens, bias)[0]), dim=2)
        attended = attended.flatten(-2)
        if self.update_kind == "single":
            return self.feed_forward_gate(state, self.up_proj(attended).relu())
        after = self.attention_gate(state, attended)
        if self.update_kind == "skip":
            return after
        inner = self.up_proj(self.feed_forward_norm(after.state)).relu()
        last = self.feed_forward_gate(after.state, inner)
        return Gated(last.state, after.kept * last.kept)
