"""A differentiable neural computer (DNC): an LSTM that writes and reads a memory at every token.

Shapes: B sequences, S tokens, I input width, E width of states, L layers of the controller, M memory cells, W width of
a cell, R read heads.
"""

import math
from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.initialization import initialized_linear, xavier
from .dnc_memory import DNCState, access
from .lstm import where_sequences

# interface values are clipped to this range, as in the reference implementation
MAX_CONTROL = 20.0


class DNCLayer(nn.Module):
    """(B, S, I) -> (B, S, E), token by token; padding does not change the state."""

    def __init__(self, config):
        super().__init__()
        self.cell = DNCCell(config)
        self.size = (config.num_hidden_layers, config.hidden_size)
        self.memory_size = (config.num_memory_cells, config.memory_cell_size, config.num_read_heads)

    def initial_state(self, states: torch.Tensor) -> DNCState:
        """The state before the first token of (B, S, I)."""
        batch_size = states.shape[0]
        slots, width, heads = self.memory_size
        controller = states.new_zeros(batch_size, *self.size)
        sizes = ((slots, width), (slots,), (slots,), (slots,), (slots, slots), (heads, slots), (heads, width))
        dtype = torch.promote_types(states.dtype, torch.float32)
        return DNCState(controller, controller, *(states.new_zeros(batch_size, *size, dtype=dtype) for size in sizes))

    def forward(
        self,
        states: torch.Tensor,
        mask: torch.Tensor,
        before: DNCState | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor, DNCState]:
        """Arguments as for `LSTMLayer`; with `lengths` (B,), sequences leave the loop at their ends.

        Returns:
            Outputs (B, S, E), the states (B, S, E) of each layer of the controller, the read weights (B, R, S, M), and
            the state after each sequence's last token.
        """
        state = self.initial_state(states) if before is None else before
        columns, order = states.unbind(1), None
        if lengths is not None:
            # the longest sequences first
            lengths, order = lengths.clamp_min(1).sort(descending=True)
            order = order.to(states.device)
            states, state = states[order], [part[order] for part in state]
            numbers = (lengths > torch.arange(states.shape[1])[:, None]).sum(-1).tolist()
            columns = [states[:number, column] for column, number in enumerate(numbers) if number]
        found, ended = [], []
        for column, tokens in enumerate(columns):
            number = tokens.shape[0]
            if order is not None and number < state[0].shape[0]:
                ended.append([part[number:] for part in state])
                state = [part[:number] for part in state]
            output, after = self.cell(tokens, DNCState(*state))
            if order is None:
                after = [where_sequences(mask[:, column], *parts) for parts in zip(after, state, strict=True)]
            state = DNCState(*after)
            found.append((output, state.hidden, state.read_weights))
        # columns (n, ...) of what is left of the batch
        missing = states.shape[1] - len(found)
        results = [pad_sequence([*parts, *[parts[0][:0]] * missing]) for parts in zip(*found, strict=True)]
        if order is not None:
            back = order.argsort()
            results = [each[back] for each in results]
            state = DNCState(*(torch.cat(parts)[back] for parts in zip(state, *reversed(ended), strict=True)))
        outputs, hidden, read_weights = results
        return outputs, hidden.unbind(2), read_weights.transpose(1, 2), state


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
        self.controller = Controller(config.embedding_size + heads * slot, width, config.num_hidden_layers)
        self.interface_proj = initialized_linear(control_size, sum(self.interface_sizes.values()), xavier)
        self.output_proj = initialized_linear(control_size, width, xavier)
        self.read_proj = initialized_linear(heads * slot, width, xavier)

    def forward(self, token: torch.Tensor, state: DNCState) -> tuple[torch.Tensor, DNCState]:
        inputs = torch.cat((token, state.read_vectors.flatten(1).to(token.dtype)), dim=-1)
        hidden, cell = self.controller(inputs, state.hidden, state.cell)
        control = hidden.flatten(1)
        values = self.interface_proj(control).clamp(-MAX_CONTROL, MAX_CONTROL)
        # sums over the memory and its small guards need single precision
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        parts = values.split(list(self.interface_sizes.values()), dim=-1)
        with torch.autocast(token.device.type, enabled=False):
            controls = dict(zip(self.interface_sizes, parts, strict=True))
            state = DNCState(hidden, cell, *access(state, controls, self.deallocate))
        read = state.read_vectors.flatten(1).to(control.dtype)
        return self.output_proj(control) + self.read_proj(read), state


class Controller(nn.Module):
    """Stacked LSTM cells, all of which see the input: (B, I), (B, L, E), (B, L, E) -> (B, L, E), (B, L, E).

    Gates stand in the order forget, input, output, candidate, as in the reference implementation.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int):
        super().__init__()
        fans = [input_size + hidden_size * (1 if layer == 0 else 2) for layer in range(num_layers)]

        def gates(size: int, layer: int, bias: bool) -> nn.Linear:
            return initialized_linear(size, 4 * hidden_size, partial(controller_gates, fan_in=fans[layer]), bias=bias)

        layers = range(num_layers)
        self.input_proj = nn.ModuleList(gates(input_size, layer, bias=True) for layer in layers)
        self.state_proj = nn.ModuleList(gates(hidden_size, layer, bias=False) for layer in layers)
        self.below_proj = nn.ModuleList(gates(hidden_size, layer, bias=False) for layer in layers[1:])

    def forward(
        self, inputs: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        new_hidden, new_cell = [], []
        for layer, (input_proj, state_proj) in enumerate(zip(self.input_proj, self.state_proj, strict=True)):
            gates = input_proj(inputs) + state_proj(hidden[:, layer])
            if layer > 0:
                gates = gates + self.below_proj[layer - 1](new_hidden[-1])
            forget, admit, emit, candidate = gates.chunk(4, dim=-1)
            new_cell.append(forget.sigmoid() * cell[:, layer] + admit.sigmoid() * candidate.tanh())
            new_hidden.append(emit.sigmoid() * new_cell[-1].tanh())
        return torch.stack(new_hidden, dim=1), torch.stack(new_cell, dim=1)


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
