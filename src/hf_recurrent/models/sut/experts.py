"""Linear maps and feed-forward networks of experts, of which every token uses a few.

Shapes: N tokens, k experts for each, E experts, M = N * k assignments; in and out are the widths of a map.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, ExpertsInterface, use_experts_implementation

from ..ops.graphs import in_graph
from ..ops.layers import Dropout

# grouped matrix products load rows in pieces of so many bytes
GROUPED_BYTES = 16


class Dispatch(NamedTuple):
    """Assignments sorted by expert."""

    order: torch.Tensor  # (M,) assignment number `n * k + slot` of each place
    inverse: torch.Tensor  # (M,) place of each assignment
    counts: torch.Tensor  # (E,) assignments of each expert
    expert: torch.Tensor  # (M,) expert of each place
    per_token: int

    @classmethod
    def from_index(cls, index: torch.Tensor, num_experts: int) -> "Dispatch":
        """The dispatch to the experts (N, k) of each token."""
        expert, order = index.flatten().sort(stable=True)
        inverse = torch.empty_like(order).scatter(0, order, torch.arange(order.numel(), device=order.device))
        counts = torch.zeros(num_experts, dtype=torch.long, device=order.device).scatter_add(
            0, expert, torch.ones_like(expert)
        )
        return cls(order, inverse, counts, expert, index.shape[1])

    def to_experts(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token states (N, in) -> (M, in), repeated and sorted by expert."""
        return tokens.index_select(0, self.order // self.per_token)

    def sort(self, assignments: torch.Tensor) -> torch.Tensor:
        """(N, k, in) -> (M, in), sorted by expert."""
        return assignments.flatten(0, 1).index_select(0, self.order)

    def to_tokens(self, results: torch.Tensor) -> torch.Tensor:
        """(M, out) back to (N, k, out)."""
        return results.index_select(0, self.inverse).unflatten(0, (-1, self.per_token))


def expert_products(
    states: torch.Tensor, weight: torch.Tensor, dispatch: Dispatch, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Each expert's map of its assignments, one expert after the other: (M, in), (E, in, out) -> (M, out)."""
    # unbound at once: a gradient of each expert's own would be as large as all weights
    pieces = zip(states.split(dispatch.counts.tolist()), weight.unbind(), strict=True)
    if bias is None:
        return torch.cat([piece @ matrix for piece, matrix in pieces])
    return torch.cat([torch.addmm(shift, *pair) for shift, pair in zip(bias.unbind(), pieces, strict=True)])


def fits_grouped_products(sizes: tuple[int, ...], dtype: torch.dtype) -> bool:
    return all(size * dtype.itemsize % GROUPED_BYTES == 0 for size in sizes)


def can_group(weight: torch.Tensor) -> bool:
    """Whether this torch has the kernel for the weight's device, type and sizes."""
    if not hasattr(nn.functional, "grouped_mm") or in_graph() or weight.dtype == torch.float64:
        return False
    if weight.device.type == "cuda" and torch.cuda.get_device_capability(weight.device) < (8, 0):
        return False
    return fits_grouped_products(tuple(weight.shape[1:]), weight.dtype)


class ExpertMap(nn.Module):
    """One linear map without bias for each of E experts."""

    def __init__(self, num_experts: int, in_features: int, out_features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))

    @staticmethod
    def initializer(module: "ExpertMap") -> None:
        init.uniform_(module.weight, *expert_bounds(module.weight.shape[1]))

    def forward(self, states: torch.Tensor, dispatch: Dispatch, implementation: str) -> torch.Tensor:
        """Sorted states (M, in) -> (M, out)."""
        if self.weight.shape[0] == 1:
            return states @ self.weight[0]
        if implementation == "grouped_mm" and can_group(self.weight):
            ends = dispatch.counts.cumsum(0, dtype=torch.int32)
            return nn.functional.grouped_mm(states.to(self.weight.dtype).contiguous(), self.weight, offs=ends)
        if implementation == "batched_mm" or in_graph():
            return torch.bmm(states[:, None], self.weight[dispatch.expert]).squeeze(1)
        return expert_products(states, self.weight, dispatch)


def expert_bounds(fan_in: int) -> tuple[float, float]:
    """Initial range of weights in the reference implementation, much narrower than usual."""
    return -1 / fan_in, 1 / fan_in


def grouped_if_possible(experts: "FeedForwardExperts", *inputs: torch.Tensor) -> torch.Tensor:
    """transformers' grouped products, or one expert after the other where there is no kernel for the weights."""
    # in a graph transformers' function supports all weights
    if in_graph() or (can_group(experts.up_proj) and can_group(experts.down_proj)):
        return ALL_EXPERTS_FUNCTIONS["grouped_mm"](experts, *inputs)
    return FeedForwardExperts.forward.__wrapped__(experts, *inputs)


def experts_functions() -> ExpertsInterface:
    """transformers' functions, those that users register for all models among them, with ours for grouped products."""
    functions = ExpertsInterface()
    functions["grouped_mm"] = grouped_if_possible
    return functions


@use_experts_implementation(experts_interface=experts_functions(), is_transposed=True, has_bias=True, has_gate=False)
class FeedForwardExperts(nn.Module):
    """Mixture of feed-forward networks, `sum_e g_e (GELU(x W_e + b_e) V_e + c_e)` (section 3.1 of the SUT paper).

    `config._experts_implementation` selects the implementation: transformers' functions for "grouped_mm" and
    "batched_mm", this method for "eager".
    """

    def __init__(self, config):
        super().__init__()
        self.num_experts = config.feed_forward_experts
        width, inner = config.hidden_size, config.intermediate_size
        self.up_proj = nn.Parameter(torch.empty(self.num_experts, width, inner))
        self.up_proj_bias = nn.Parameter(torch.empty(self.num_experts, inner))
        self.down_proj = nn.Parameter(torch.empty(self.num_experts, inner, width))
        self.down_proj_bias = nn.Parameter(torch.empty(self.num_experts, width))
        # transformers' functions apply it between the two maps
        self.act_fn = nn.Sequential(nn.GELU(), Dropout(config.activation_dropout))

    @staticmethod
    def initializer(module: "FeedForwardExperts") -> None:
        for weight, bias in (
            (module.up_proj, module.up_proj_bias),
            (module.down_proj, module.down_proj_bias),
        ):
            init.uniform_(weight, *expert_bounds(weight.shape[1]))
            bound = 1 / math.sqrt(weight.shape[2])
            init.uniform_(bias, -bound, bound)

    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor):
        """(N, d) tokens, the experts (N, k) of each and their gates (N, k) -> (N, d)."""
        if self.num_experts == 1:
            inner = self.act_fn(torch.addmm(self.up_proj_bias[0], hidden_states, self.up_proj[0]))
            return torch.addmm(self.down_proj_bias[0], inner, self.down_proj[0]) * top_k_weights
        if in_graph():
            return self.all_experts(hidden_states, top_k_index, top_k_weights)
        dispatch = Dispatch.from_index(top_k_index, self.num_experts)
        states = dispatch.to_experts(hidden_states)
        inner = self.act_fn(expert_products(states, self.up_proj, dispatch, self.up_proj_bias))
        results = dispatch.to_tokens(expert_products(inner, self.down_proj, dispatch, self.down_proj_bias))
        return (results * top_k_weights[..., None]).sum(1)

    def all_experts(self, hidden_states: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Every expert for every token, for graphs whose shapes cannot depend on the routing."""
        dense = torch.zeros(len(hidden_states), self.num_experts, dtype=weights.dtype, device=weights.device)
        dense = dense.scatter(-1, index, weights)
        inner = self.act_fn(torch.einsum("nd,edf->nef", hidden_states, self.up_proj) + self.up_proj_bias)
        results = torch.einsum("nef,efd->ned", inner, self.down_proj) + self.down_proj_bias
        return (results * dense[..., None]).sum(1)
