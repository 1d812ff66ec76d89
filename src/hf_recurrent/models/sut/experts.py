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
from ..ops.row_groups import place

# grouped matrix products load rows in pieces of so many bytes
GROUPED_BYTES = 16


class Dispatch(NamedTuple):
    """The assignments of tokens to experts, in the order in which matrix products take them."""

    expert: torch.Tensor  # (N, k)
    order: torch.Tensor | None  # (M,) number `n * k + slot` of each assignment, sorted by expert; None if not sorted
    ends: torch.Tensor | None  # (E,) int32, where each expert's assignments end; None likewise

    @classmethod
    def of_tokens(cls, expert: torch.Tensor, num_experts: int, implementation: str = "eager") -> "Dispatch":
        """The dispatch to the experts (N, k), sorted if the implementation needs it."""
        if num_experts == 1 or implementation == "batched_mm" or in_graph():
            return cls(expert, None, None)
        in_order, order = expert.flatten().sort(stable=True)
        number = torch.arange(num_experts, device=order.device)
        return cls(expert, order, torch.searchsorted(in_order, number, right=True, out_int32=True))

    def spread(self, states: torch.Tensor) -> torch.Tensor:
        """States of tokens (N, in), or of assignments (N, k, in) -> (M, in) in the order of the dispatch."""
        per_token = self.expert.shape[1] if states.dim() == 2 else 1
        states = states.flatten(0, -2)
        if self.order is not None:
            return states.index_select(0, self.order // per_token)
        return states[:, None].expand(-1, per_token, -1).flatten(0, 1)

    def collect(self, results: torch.Tensor) -> torch.Tensor:
        """(M, out) in the order of the dispatch -> (N, k, out)."""
        return place(results, self.order, results.shape[0]).unflatten(0, (-1, self.expert.shape[1]))


def expert_products(
    states: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor | None, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Each expert's map of its assignments, one expert after the other: (M, in), (E, in, out) -> (M, out)."""
    pieces = (states,) if ends is None else states.tensor_split(ends.tolist()[:-1])
    shifts = [None] * len(pieces) if bias is None else bias.unbind()
    # unbound at once: the gradient of a single expert would be as large as all weights
    maps = zip(pieces, weight.transpose(1, 2).unbind(), shifts, strict=True)
    results = [nn.functional.linear(*each) for each in maps]
    return results[0] if len(results) == 1 else torch.cat(results)


def fits_grouped_products(sizes: tuple[int, ...], dtype: torch.dtype) -> bool:
    return all(size * dtype.itemsize % GROUPED_BYTES == 0 for size in sizes)


def can_group(weight: torch.Tensor) -> bool:
    """Whether this torch has the kernel for the weight's device, type and sizes."""
    if not hasattr(nn.functional, "grouped_mm") or in_graph() or weight.dtype == torch.float64:
        return False
    if weight.device.type == "cuda" and torch.cuda.get_device_capability(weight.device) < (8, 0):
        return False
    return fits_grouped_products(tuple(weight.shape[1:]), weight.dtype)


def narrow_uniform(module: nn.Module) -> None:
    """Initialise maps (E, in, out) as the reference implementation does, with much smaller weights than usual.

    The bounds of biases (E, out) are those of torch's square maps.
    """
    for parameter in module.parameters():
        bound = 1 / parameter.shape[1] if parameter.dim() == 3 else 1 / math.sqrt(parameter.shape[1])
        init.uniform_(parameter, -bound, bound)


class ExpertMap(nn.Module):
    """One linear map without bias for each of E experts."""

    initializer = staticmethod(narrow_uniform)

    def __init__(self, num_experts: int, in_features: int, out_features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))

    def forward(self, states: torch.Tensor, dispatch: Dispatch, implementation: str) -> torch.Tensor:
        """States of tokens (N, in), or of their assignments (N, k, in) -> (N, k, out)."""
        states, weight = dispatch.spread(states), self.weight
        if weight.shape[0] > 1 and dispatch.order is None:
            results = torch.bmm(states[:, None], weight[dispatch.expert.flatten()]).squeeze(1)
        elif weight.shape[0] > 1 and implementation == "grouped_mm" and can_group(weight):
            results = nn.functional.grouped_mm(states.to(weight.dtype), weight, offs=dispatch.ends)
        else:
            results = expert_products(states, weight, dispatch.ends)
        return dispatch.collect(results)


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

    initializer = staticmethod(narrow_uniform)

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

    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor):
        """(N, d) tokens, the experts (N, k) of each and their gates (N, k) -> (N, d)."""
        if self.num_experts > 1 and in_graph():
            # every expert for every token: the shapes of a graph cannot depend on the routing
            gates = top_k_weights.new_zeros(len(hidden_states), self.num_experts)
            gates = gates.scatter(-1, top_k_index, top_k_weights)
            inner = self.act_fn(torch.einsum("nd,edf->nef", hidden_states, self.up_proj) + self.up_proj_bias)
            results = torch.einsum("nef,efd->ned", inner, self.down_proj) + self.down_proj_bias
            return (results * gates[..., None]).sum(1)
        dispatch = Dispatch.of_tokens(top_k_index, self.num_experts)
        states = dispatch.spread(hidden_states)
        inner = self.act_fn(expert_products(states, self.up_proj, dispatch.ends, self.up_proj_bias))
        results = expert_products(inner, self.down_proj, dispatch.ends, self.down_proj_bias)
        return (dispatch.collect(results) * top_k_weights[..., None]).sum(1)
