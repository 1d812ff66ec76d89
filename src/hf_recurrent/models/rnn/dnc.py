"""A differentiable neural computer (DNC): an LSTM that writes and reads a memory at every token.

Shapes: B sequences, S tokens, I input width, E width of states, L layers of the controller, M memory cells, W width of
a cell, R read heads.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from ..depth.cache import Tensors
from ..ops.initialization import initialized_linear, xavier
from ..ops.layers import at_least_float32, where_rows
from .dnc_memory import DNCState, access

# interface values are clipped to this range, as in the reference implementation
MAX_CONTROL = 20.0


class DNCLayer(nn.Module):
    """(B, S, I) -> (B, S, E), token by token; padding does not change the state."""

    def __init__(self, config):
        super().__init__()
        self.cell = DNCCell(config)
        self.config = config

    def initial_state(self, states: torch.Tensor) -> DNCState:
        """The state before the first token of (B, S, I)."""
        config, batch_size = self.config, states.shape[0]
        slots, width, heads = config.num_memory_cells, config.memory_cell_size, config.num_read_heads
        controller = states.new_zeros(batch_size, config.num_hidden_layers, config.hidden_size)
        sizes = ((slots, width), (slots,), (slots,), (slots,), (slots, slots), (heads, slots), (heads, width))
        memory = (at_least_float32(states.new_zeros(batch_size, *size)) for size in sizes)
        return DNCState(controller, controller, *memory)

    def forward(
        self, states: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor | None, before: Tensors
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor, Tensors]:
        """Arguments as for `LSTMLayer`; with `lengths` (B,), sequences leave the loop at their ends.

        Returns:
            Outputs (B, S, E), the states (B, S, E) of each layer of the controller, the read weights (B, R, S, M), and
            the fields of the `DNCState` after each sequence's last token.
        """
        state: Sequence[torch.Tensor] = DNCState(**before) if before else self.initial_state(states)
        columns, rows = states.unbind(1), None
        if lengths is not None:
            # the longest sequences first
            rows = pack_padded_sequence(states, lengths.clamp_min(1), batch_first=True, enforce_sorted=False)
            columns = rows.data.split(rows.batch_sizes.tolist())
            state = [part[rows.sorted_indices] for part in state]
        found, ended = [], []
        for column, tokens in enumerate(columns):
            number = tokens.shape[0]
            if rows is not None and number < state[0].shape[0]:
                ended.append([part[number:] for part in state])
                state = [part[:number] for part in state]
            output, after = self.cell(tokens, DNCState(*state))
            if rows is None:
                after = [where_rows(mask[:, column], *parts) for parts in zip(after, state, strict=True)]
            state = DNCState(*after)
            found.append((output, state.hidden, state.read_weights))

        def joined(columns: Sequence[torch.Tensor]) -> torch.Tensor:
            if rows is None:
                return torch.stack(columns, dim=1)
            packed = rows._replace(data=torch.cat(columns))
            return pad_packed_sequence(packed, batch_first=True, total_length=states.shape[1])[0]

        outputs, hidden, read_weights = map(joined, zip(*found, strict=True))
        if rows is not None:
            ends = zip(state, *reversed(ended), strict=True)
            state = DNCState(*(torch.cat(parts)[rows.unsorted_indices] for parts in ends))
        return outputs, hidden.unbind(2), read_weights.transpose(1, 2), state._asdict()


class DNCCell(GradientCheckpointingLayer):
    """One token: (B, I) and the state before it -> (B, E) and the state after it."""

    def __init__(self, config):
        super().__init__()
        width, slot, heads = config.hidden_size, config.memory_cell_size, config.num_read_heads
        self.deallocate = config.memory_deallocation
        control_size = width * config.num_hidden_layers
        # in the order of the reference implementation
        self.interface_sizes = {
            "write_mask": slot * config.memory_masking,
            "write_key": slot,
            "erase": slot,
            "write_vector": slot,
            "free_gates": heads,
            "write_strength": 1,
            "allocation_gate": 1,
            "write_gate": 1,
            "read_masks": heads * slot * config.memory_masking,
            "read_keys": heads * slot,
            "read_strengths": heads,
            # backward, content, forward
            "read_modes": 3 * heads,
            # forward, backward
            "sharpness": 2 * heads * config.link_sharpening,
        }
        input_size, layers = config.embedding_size + heads * slot, range(config.num_hidden_layers)

        def projections(size: int, layers: range, bias: bool) -> nn.ModuleList:
            """Maps to the gates of each of these layers."""
            fans = [input_size + width * (1 if layer == 0 else 2) for layer in layers]
            gates = [partial(controller_gates, fan_in=fan) for fan in fans]
            return nn.ModuleList(initialized_linear(size, 4 * width, gate, bias=bias) for gate in gates)

        self.controller = nn.ModuleDict(
            {
                "input_proj": projections(input_size, layers, bias=True),
                "state_proj": projections(width, layers, bias=False),
                "below_proj": projections(width, layers[1:], bias=False),
            }
        )
        self.interface_proj = initialized_linear(control_size, sum(self.interface_sizes.values()), xavier)
        self.output_proj = initialized_linear(control_size, width, xavier)
        self.read_proj = initialized_linear(heads * slot, width, xavier)

    def forward(self, token: torch.Tensor, state: DNCState) -> tuple[torch.Tensor, DNCState]:
        inputs = torch.cat((token, state.read_vectors.flatten(1).to(token.dtype)), dim=-1)
        hidden, cell = self.control(inputs, state)
        control = hidden.flatten(1)
        # sums over the memory and its small guards need single precision
        values = at_least_float32(self.interface_proj(control).clamp(-MAX_CONTROL, MAX_CONTROL))
        parts = values.split(list(self.interface_sizes.values()), dim=-1)
        with torch.autocast(token.device.type, enabled=False):
            controls = dict(zip(self.interface_sizes, parts, strict=True))
            state = DNCState(hidden, cell, *access(state, controls, self.deallocate))
        read = state.read_vectors.flatten(1).to(control.dtype)
        return self.output_proj(control) + self.read_proj(read), state

    def control(self, inputs: torch.Tensor, state: DNCState) -> tuple[torch.Tensor, torch.Tensor]:
        """The controller's hidden states and cells (B, L, E): stacked LSTM cells, all of which see the input.

        Gates stand in the order forget, input, output, candidate, as in the reference implementation.
        """
        hidden, cell = [], []
        for layer, input_proj in enumerate(self.controller["input_proj"]):
            gates = input_proj(inputs) + self.controller["state_proj"][layer](state.hidden[:, layer])
            if layer > 0:
                gates = gates + self.controller["below_proj"][layer - 1](hidden[-1])
            forget, admit, emit, candidate = gates.chunk(4, dim=-1)
            cell.append(forget.sigmoid() * state.cell[:, layer] + admit.sigmoid() * candidate.tanh())
            hidden.append(emit.sigmoid() * cell[-1].tanh())
        return torch.stack(hidden, dim=1), torch.stack(cell, dim=1)


def controller_gates(linear: nn.Linear, fan_in: int) -> None:
    """The reference's scheme: uniform, wider by tanh's gain for candidates; forget gates start open."""
    size = linear.out_features // 4
    bound = math.sqrt(6 / (size + fan_in))
    weight = torch.empty_like(linear.weight).uniform_(-bound, bound)
    weight[-size:] *= nn.init.calculate_gain("tanh")
    init.copy_(linear.weight, weight)
    if linear.bias is not None:
        bias = torch.zeros_like(linear.bias)
        bias[:size] = 1
        init.copy_(linear.bias, bias)
