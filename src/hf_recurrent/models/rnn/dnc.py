"""A differentiable neural computer (DNC): an LSTM that writes and reads a memory at every token.

Shapes: B sequences, S tokens, I input width, E width of states, L layers of the controller, M memory cells, W width of
a cell, R read heads.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.initialization import initialized_linear, xavier
from .dnc_memory import DNCInterface, DNCMemory, access
from .lstm import where_sequences

# interface values are clipped to this range, as in the reference implementation
MAX_CONTROL = 20.0


class DNCState(NamedTuple):
    """State after a token: the controller's layers, and the fields of `DNCMemory`."""

    hidden: torch.Tensor  # (B, L, E)
    cell: torch.Tensor  # (B, L, E)
    slots: torch.Tensor
    usage: torch.Tensor
    write_weights: torch.Tensor
    precedence: torch.Tensor
    links: torch.Tensor
    read_weights: torch.Tensor
    read_vectors: torch.Tensor


class DNCOutput(NamedTuple):
    states: torch.Tensor  # (B, S, E)
    controller_states: tuple[torch.Tensor, ...]  # of each layer of the controller, (B, S, E)
    read_weights: torch.Tensor  # (B, R, S, M)
    final: DNCState


def oneplus(values: torch.Tensor) -> torch.Tensor:
    return 1 + softplus(values)


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


class DNCCell(GradientCheckpointingLayer):
    """One token: (B, I) and the state before it -> (B, E) and the state after it."""

    def __init__(self, config):
        super().__init__()
        width, slot, heads = config.hidden_size, config.memory_cell_size, config.num_read_heads
        self.slot_size, self.num_heads = slot, heads
        self.masking, self.deallocate = config.memory_masking, config.memory_deallocation
        self.sharpening = config.link_sharpening
        control_size = width * config.num_hidden_layers
        self.controller = Controller(config.embedding_size + heads * slot, width, config.num_hidden_layers)
        self.interface_proj = initialized_linear(control_size, sum(self.interface_sizes()), xavier)
        self.output_proj = initialized_linear(control_size, width, xavier)
        self.read_proj = initialized_linear(heads * slot, width, xavier)

    def interface_sizes(self) -> list[int]:
        """Widths in the order of `DNCInterface`, which is the reference implementation's."""
        slot, heads = self.slot_size, self.num_heads
        write = [slot * self.masking, slot, slot, slot, heads, 1, 1, 1]
        read = [heads * slot * self.masking, heads * slot, heads, 3 * heads]
        return [*write, *read, 2 * heads * self.sharpening]

    def interface(self, control: torch.Tensor) -> DNCInterface:
        """Controller states (B, L * E) -> operations on the memory."""
        controls = self.interface_proj(control).clamp(-MAX_CONTROL, MAX_CONTROL)
        # sums over the memory and its small guards need single precision
        controls = controls.to(torch.promote_types(controls.dtype, torch.float32))
        parts = DNCInterface(*controls.split(self.interface_sizes(), dim=-1))

        def heads(values: torch.Tensor) -> torch.Tensor:
            return values.unflatten(-1, (self.num_heads, -1))

        return DNCInterface(
            write_mask=parts.write_mask.sigmoid()[:, None] if self.masking else None,
            write_key=parts.write_key[:, None],
            erase=parts.erase.sigmoid(),
            write_vector=parts.write_vector,
            free_gates=parts.free_gates.sigmoid(),
            write_strength=oneplus(parts.write_strength),
            allocation_gate=parts.allocation_gate.sigmoid(),
            write_gate=parts.write_gate.sigmoid(),
            read_masks=heads(parts.read_masks).sigmoid() if self.masking else None,
            read_keys=heads(parts.read_keys),
            read_strengths=oneplus(parts.read_strengths),
            read_modes=heads(parts.read_modes).softmax(-1),
            sharpness=oneplus(parts.sharpness.unflatten(-1, (2, -1))) if self.sharpening else None,
        )

    def forward(self, token: torch.Tensor, state: DNCState) -> tuple[torch.Tensor, DNCState]:
        inputs = torch.cat((token, state.read_vectors.flatten(1).to(token.dtype)), dim=-1)
        hidden, cell = self.controller(inputs, state.hidden, state.cell)
        control = hidden.flatten(1)
        interface = self.interface(control)
        with torch.autocast(token.device.type, enabled=False):
            memory = access(DNCMemory(*state[2:]), interface, self.deallocate)
        read = memory.read_vectors.flatten(1).to(control.dtype)
        return self.output_proj(control) + self.read_proj(read), DNCState(hidden, cell, *memory)


class DNCLayer(nn.Module):
    """(B, S, I) -> `DNCOutput`, token by token; padding does not change the state."""

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
    ) -> DNCOutput:
        """`before` and `lengths` (B,) are those of `LSTMLayer`."""
        state = self.initial_state(states) if before is None else before
        return self.masked(states, mask, state) if lengths is None else self.packed(states, lengths, state)

    def masked(self, states: torch.Tensor, mask: torch.Tensor, state: DNCState) -> DNCOutput:
        """All columns of all sequences, which can be traced."""
        outputs, hidden, read_weights = [], [], []
        for column in range(mask.shape[1]):
            output, after = self.cell(states[:, column], state)
            taken = mask[:, column]
            state = DNCState(*(where_sequences(taken, new, old) for new, old in zip(after, state, strict=True)))
            outputs.append(output)
            hidden.append(state.hidden)
            read_weights.append(state.read_weights)
        controller_states = torch.stack(hidden, dim=1).unbind(2)
        return DNCOutput(torch.stack(outputs, dim=1), controller_states, torch.stack(read_weights, dim=2), state)

    def packed(self, states: torch.Tensor, lengths: torch.Tensor, state: DNCState) -> DNCOutput:
        """Tokens alone: sequences are sorted, the longest first, and leave at their ends."""
        rows = pack_padded_sequence(states, lengths.clamp_min(1), batch_first=True, enforce_sorted=False)
        state = DNCState(*(part[rows.sorted_indices] for part in state))
        outputs, hidden, read_weights, ended = [], [], [], []
        for tokens in rows.data.split(rows.batch_sizes.tolist()):
            if len(tokens) < len(state.hidden):
                ended.append([part[len(tokens) :] for part in state])
                state = DNCState(*(part[: len(tokens)] for part in state))
            output, state = self.cell(tokens, state)
            outputs.append(output)
            hidden.append(state.hidden)
            read_weights.append(state.read_weights)

        def padded(packed: list[torch.Tensor]) -> torch.Tensor:
            data = rows._replace(data=torch.cat(packed))
            return pad_packed_sequence(data, batch_first=True, total_length=states.shape[1])[0]

        final = (torch.cat(parts)[rows.unsorted_indices] for parts in zip(state, *reversed(ended), strict=True))
        reads = padded(read_weights).transpose(1, 2)
        return DNCOutput(padded(outputs), padded(hidden).unbind(2), reads, DNCState(*final))
