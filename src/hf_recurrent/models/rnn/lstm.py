"""One layer of an LSTM or BiLSTM over sequences of different lengths.

Shapes: B sequences, S tokens, I input width, H width of a direction, D directions.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from ..depth.cache import Tensors
from ..ops.layers import computing_dtype, where_rows

# on a processor torch's kernel prepares the weights anew in each call, which takes longer than a step so wide
MIN_WIDTH_OF_SINGLE_STEPS = 256


def torch_lstm_default(lstm: nn.RNNBase) -> None:
    """torch's own scheme, which transformers would replace by Xavier's."""
    bound = 1 / math.sqrt(lstm.hidden_size)
    for parameter in lstm.parameters():
        init.uniform_(parameter, -bound, bound)


def packed_lstm(
    states: torch.Tensor,
    lengths: torch.Tensor,
    weights: list[list[torch.Tensor]],
    state: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """torch's fused kernel over the first `lengths` (B,) columns, one at least: (B, S, I) -> (B, S, D * H).

    `weights` are of one or two directions, each as of `unrolled_lstm`; the state, hidden and cell (B, H), is the
    forward direction's.
    """
    rows = pack_padded_sequence(states, lengths.clamp_min(1), batch_first=True, enforce_sorted=False)
    inputs = [
        rows.data,
        *(part.to(states.dtype)[rows.sorted_indices].expand(len(weights), -1, -1).contiguous() for part in state),
        *(parameter for direction in weights for parameter in direction),
    ]
    dtype = computing_dtype(states)
    # torch chooses kernels of half precision on processors that have none
    in_float32 = states.device.type == "cpu" and dtype.itemsize < 4
    if in_float32:
        inputs = [each.float() for each in inputs]
    data, hidden, cell, *parameters = inputs
    # without dropout, training differs in what is kept for gradients, which cuDNN has for no other mode
    options = (True, 1, 0.0, torch.is_grad_enabled(), len(weights) > 1)
    with torch.autocast("cpu", enabled=False) if in_float32 else nullcontext():
        results = torch.lstm(data, rows.batch_sizes, [hidden, cell], parameters, *options)
    outputs, hidden, cell = (each.to(dtype) for each in results) if in_float32 else results
    outputs, _ = pad_packed_sequence(rows._replace(data=outputs), batch_first=True, total_length=states.shape[1])
    return outputs, [part[0][rows.unsorted_indices] for part in (hidden, cell)]


def unrolled_lstm(
    states: torch.Tensor,
    mask: torch.Tensor,
    weights: list[torch.Tensor],
    state: Sequence[torch.Tensor],
    reverse: bool = False,
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """An LSTM step by step, skipping padding wherever it is: (B, S, I), (B, S) -> (B, S, H), zero at padding.

    `weights` are (4H, I), (4H, H), (4H,), (4H,) in torch's order: input, forget, cell, output.
    """
    input_weight, state_weight, input_bias, state_bias = weights
    projected = states @ input_weight.T + (input_bias + state_bias)
    columns = range(states.shape[1])
    outputs = {}
    for column in reversed(columns) if reverse else columns:
        admit, forget, candidate, emit = (projected[:, column] + state[0] @ state_weight.T).chunk(4, dim=-1)
        cell = forget.sigmoid() * state[1] + admit.sigmoid() * candidate.tanh()
        hidden = emit.sigmoid() * cell.tanh()
        taken = mask[:, column]
        outputs[column] = where_rows(taken, hidden, torch.zeros_like(hidden))
        state = [where_rows(taken, *parts) for parts in zip((hidden, cell), state, strict=True)]
    return torch.stack([outputs[column] for column in columns], dim=1), state


class LSTMLayer(GradientCheckpointingLayer, nn.RNNBase):
    """(B, S, I) -> (B, S, D * H), directions side by side.

    It has the weights of torch's LSTM and their names; torch.compile cannot trace nn.LSTM itself.
    """

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool):
        super().__init__("LSTM", input_size, hidden_size, batch_first=True, bidirectional=bidirectional)
        self.initializer = torch_lstm_default

    def forward(
        self, states: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor | None, before: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Outputs and, of the forward direction, the state `hidden` and `cell` (B, H) after each sequence's last token.

        Args:
            states: (B, S, I).
            mask: (B, S) bool, True at tokens.
            lengths: (B,) of the sequences, on the CPU, if tokens are their first columns (an empty sequence is treated
                as if it had one), or None if padding may be anywhere: the layer is then unrolled, which can be traced.
            before: the state to continue from, if the layer has one direction; empty for zeros.
        """
        weights = self.all_weights
        empty = [states.new_zeros(states.shape[0], self.hidden_size)] * 2
        state = [before["hidden"], before["cell"]] if before else empty
        on_cpu, dtype = states.device.type == "cpu", computing_dtype(states)
        # autocast asks for a kernel of float16 that few CPUs have
        unsupported = on_cpu and states.dtype != dtype == torch.float16
        single = states.shape[1] == 1 and self.hidden_size >= MIN_WIDTH_OF_SINGLE_STEPS
        if lengths is not None and not (unsupported or (single and on_cpu and dtype == torch.float32)):
            outputs, state = packed_lstm(states, lengths, weights, state)
        else:
            outputs, state = unrolled_lstm(states, mask, weights[0], state)
            if self.bidirectional:
                reversed_outputs, _ = unrolled_lstm(states, mask, weights[1], empty, reverse=True)
                outputs = torch.cat((outputs, reversed_outputs), dim=-1)
        return outputs, dict(zip(("hidden", "cell"), state, strict=True))
