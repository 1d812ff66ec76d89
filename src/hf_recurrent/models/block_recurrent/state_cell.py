"""State vectors that are updated after each block: the horizontal direction of a recurrent layer.

Shapes: B sequences, S state vectors, K token keys, H heads, D head dim, E width, F inner width.
"""

from functools import partial

import torch
from torch import nn

from ..depth.cache import Tensors
from ..ops.attention import KeyValue
from ..ops.initialization import LearnedTensor, initialized_linear, truncated_normal
from ..ops.masks import as_implemented
from .scaled_attention import ScaledAttention, unbiased_linear

GATE_STD = 0.1
# added to the LSTM gates' biases, so that a state is mostly retained at first
FORGET_GATE_BIAS, INPUT_GATE_BIAS = 1.0, -1.0


class StateGate(nn.Module):
    """Weighs the update z, a map of (B, S, I), against the state c (Eq. 1 to 4 of the paper).

    "fixed": `c g + z (1 - g)` with a learned share g of each unit. "lstm": `c f + z i`, gates f and i computed from the
    inputs. As in the reference implementation z has no bias, and a tanh in the "single" update only, for both gates.
    """

    def __init__(self, config, in_features: int, use_tanh: bool = False):
        super().__init__()
        hidden_size = config.hidden_size
        self.use_tanh = use_tanh
        self.proj = unbiased_linear(in_features, hidden_size)
        self.bias = None
        if config.state_gate == "fixed":
            self.bias = LearnedTensor(hidden_size, std=GATE_STD, value=config.state_gate_bias_init)
        else:
            gate = partial(truncated_normal, scale=GATE_STD, bias_std=GATE_STD)
            self.forget_gate = initialized_linear(in_features, hidden_size, gate)
            self.input_gate = initialized_linear(in_features, hidden_size, gate)

    def forward(self, state: torch.Tensor, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The new state (B, S, E), and the share of the old one in it, which broadcasts to (B, S, E)."""
        update = self.proj(inputs)
        update = update.tanh() if self.use_tanh else update
        if self.bias is not None:
            retained = self.bias().sigmoid()
            # in half precision an average over many blocks would lose small updates
            dtype = torch.promote_types(state.dtype, update.dtype)
            return torch.lerp(update.to(dtype), state.to(dtype), retained.to(dtype)), retained
        retained = (self.forget_gate(inputs) + FORGET_GATE_BIAS).sigmoid()
        return state * retained + update * (self.input_gate(inputs) + INPUT_GATE_BIAS).sigmoid(), retained


class StateCell(ScaledAttention):
    """State vectors of one layer: initial states, their keys and values, and their update after a block.

    Learned IDs distinguish the states. They are added after the norm, for attention only. Tokens and states share the
    keys and values of the states, and those of the tokens (section 3.1).
    """

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        self.initial_state = LearnedTensor(config.num_state_vectors, size, std=config.state_initializer_range)
        self.ids = LearnedTensor(config.num_state_vectors, size, std=1.0)
        self.norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.k_proj = unbiased_linear(size, inner)
        self.v_proj = unbiased_linear(size, inner)
        self.q_proj = unbiased_linear(size, inner)
        self.token_q_proj = unbiased_linear(size, inner)
        self.scales = self.new_scales()
        self.token_scales = self.new_scales()
        self.update_kind = kind = config.state_update
        self.attention_gate = None if kind == "single" else StateGate(config, 2 * inner)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.layer_norm_eps) if kind == "dual" else None
        self.up_proj = self.feed_forward_gate = None
        if kind != "skip":
            self.up_proj = unbiased_linear(size if kind == "dual" else 2 * inner, config.intermediate_size)
            self.feed_forward_gate = StateGate(config, config.intermediate_size, use_tanh=kind == "single")

    def add_ids(self, state: torch.Tensor) -> torch.Tensor:
        return self.norm(state) + self.ids().to(state.dtype)

    def keys_values(self, past: Tensors, number: int | None = None) -> KeyValue:
        """Keys and values (b, S, H, D) of the states (B, S, E), of the first sequences or of all."""
        if "state_key" in past and not torch.is_grad_enabled():
            return KeyValue(past["state_key"][:number], past["state_value"][:number])
        states = self.add_ids(past["state"][:number])
        return KeyValue(self.unit(self.k_proj, states), self.heads(self.v_proj(states)))

    def update(
        self,
        state: torch.Tensor,
        own: KeyValue | list[torch.Tensor],
        tokens: list[torch.Tensor],
        token_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """State (B, S, E) after a block, and the share of the state before in it.

        Args:
            own: keys and values (B, S, H, D) of the states.
            tokens: keys and values (B, K, H, D) of the previous block and of this one; every state attends to all of
                them, without positions.
            token_mask: (B, K) bool, True at tokens.
        """
        states = self.add_ids(state)
        query = self.unit(self.q_proj, states, self.scales)
        token_query = self.unit(self.token_q_proj, states, self.token_scales)
        mask = None if token_mask is None else as_implemented(self.config, token_mask[:, None, None], query.dtype)
        attended = torch.cat((self.attend(query, *own)[0], self.attend(token_query, *tokens, mask)[0]), dim=2)
        attended = attended.flatten(-2)
        if self.update_kind == "single":
            return self.feed_forward_gate(state, self.up_proj(attended).relu())
        after, retained = self.attention_gate(state, attended)
        if self.update_kind == "skip":
            return after, retained
        after, still_retained = self.feed_forward_gate(after, self.up_proj(self.feed_forward_norm(after)).relu())
        return after, retained * still_retained
