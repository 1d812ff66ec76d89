"""Linear maps and feed-forward networks of experts, of which every token uses a few.

Shapes: N tokens, k experts for each, E experts, M = N * k assignments; in and out are the widths of a map.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init
from transformers.integrations.moe import ExpertsInterface, use_experts_implementation

from ..ops.graphs import in_graph
from ..ops.layers import Dropout

# grouped matrix products load rows in pieces of so many bytes
GROUPED_BYTES = 16
# up to so many products too many, all experts take all tokens: sorting the tokens would take longer
MAX_SPARE_PRODUCTS = 1 << 20


class Dispatch(NamedTuple):
    """The assignments of tokens to experts, in the order in which matrix products take them.

    Without an order all experts take all tokens, or weights are copied for each token.
    """

    expert: torch.Tensor  # (N, k)
    order: torch.Tensor | None = None  # (M,) number `n * k + slot` of each assignment, sorted by expert
    place: torch.Tensor | None = None  # (N, k) of each assignment in that order
    in_order: torch.Tensor | None = None  # (M,) expert of each in that order
    ends: torch.Tensor | None = None  # (E,) int32, where each expert's assignments end

    @classmethod
    def of_tokens(cls, expert: torch.Tensor, weight: torch.Tensor, implementation: str) -> "Dispatch":
        """The dispatch to the experts (N, k) with the weights (E, in, out), sorted if that saves time."""
        num_experts, (num_tokens, per_token) = weight.shape[0], expert.shape
        # the shapes of a graph cannot depend on the routing
        if num_experts == 1 or implementation == "batched_mm" or in_graph():
            return cls(expert)
        if num_tokens * weight.numel() * (1 - per_token / num_experts) <= MAX_SPARE_PRODUCTS:
            return cls(expert)
        in_order, order = expert.flatten().sort(stable=True)
        number = torch.arange(max(num_experts, len(order)), device=order.device)
        place = torch.empty_like(order).index_copy_(0, order, number[: len(order)]).view_as(expert)
        ends = torch.searchsorted(in_order, number[:num_experts], right=True, out_int32=True)
        return cls(expert, order, place, in_order, ends)

    def spread(self, states: torch.Tensor) -> torch.Tensor:
        """States of tokens (N, in), or of assignments (N, k, in) -> (M, in) in order."""
        per_token = self.expert.shape[1] if states.dim() == 2 else 1
        return states.flatten(0, -2).index_select(0, self.order if per_token == 1 else self.order // per_token)

    def collect(self, results: torch.Tensor, gates: torch.Tensor | None = None) -> torch.Tensor:
        """(M, out) in order -> (N, k, out), or with gates (N, k) the sums (N, out)."""
        if gates is None:
            return results.index_select(0, self.place.flatten()).unflatten(0, self.place.shape)
        # in one pass, without the products as a tensor
        gates = gates.to(results.dtype)
        return nn.functional.embedding_bag(self.place, results, per_sample_weights=gates, mode="sum")

    def products(
        self, states: torch.Tensor, weight: torch.Tensor, grouped: bool, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Each expert's map of its assignments, one expert after the other: (M, in), (E, in, out) -> (M, out)."""
        if grouped and can_group(weight):
            results = nn.functional.grouped_mm(states.to(weight.dtype), weight, offs=self.ends)
            return results if bias is None else results.add_(bias.index_select(0, self.in_order))
        shifts = [None] * weight.shape[0] if bias is None else bias.unbind()
        # unbound at once: the gradient of a single expert would be as large as all weights
        maps = zip(states.tensor_split(self.ends.tolist()[:-1]), weight.transpose(1, 2).unbind(), shifts, strict=True)
        return torch.cat([nn.functional.linear(*each) for each in maps])


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

    def forward(
        self, states: torch.Tensor, dispatch: Dispatch, implementation: str, gates: torch.Tensor | None = None
    ) -> torch.Tensor:
        """States of tokens (N, in), or of assignments (N, k, in) -> (N, k, out), or with gates (N, k) sums (N, out)."""
        weight, expert = self.weight, dispatch.expert[..., None]
        if dispatch.order is not None:
            grouped = implementation == "grouped_mm"
            return dispatch.collect(dispatch.products(dispatch.spread(states), weight, grouped), gates)
        if implementation == "batched_mm" and not in_graph():
            states = states[:, None] if states.dim() == 2 else states
            results = torch.matmul(states[:, :, None], weight[dispatch.expert]).squeeze(2)
            return results if gates is None else (results * gates[..., None]).sum(1)
        if gates is None:
            results = torch.bmm(states.expand(len(weight), -1, -1), weight).transpose(0, 1)
            return results if len(weight) == 1 else results.gather(1, expert.expand(-1, -1, weight.shape[2]))
        states = states * gates[..., None]
        if len(weight) > 1:
            zeros = states.new_zeros(states.shape[0], *weight.shape[:2])
            states = zeros.scatter(1, expert.expand_as(states), states)
        return states.flatten(1) @ weight.flatten(0, 1)


def experts_functions() -> ExpertsInterface:
    """transformers' functions, those that users register for all models among them, with ours for grouped products."""
    functions = ExpertsInterface()
    functions["grouped_mm"] = lambda experts, *inputs: FeedForwardExperts.forward.__wrapped__(experts, *inputs)
    return functions


@use_experts_implementation(experts_interface=experts_functions(), is_transposed=True, has_bias=True, has_gate=False)
class FeedForwardExperts(nn.Module):
    """Mixture of feed-forward networks, `sum_e g_e (GELU(x W_e + b_e) V_e + c_e)` (section 3.1 of the SUT paper).

    `config._experts_implementation` selects the implementation: transformers' function for "batched_mm", this method
    for "grouped_mm" and "eager".
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
        grouped = self.config._experts_implementation == "grouped_mm"
        dispatch = Dispatch.of_tokens(top_k_index, self.up_proj, self.config._experts_implementation)
        if dispatch.order is None:
            states = hidden_states.expand(self.num_experts, -1, -1)
            inner = self.act_fn(torch.baddbmm(self.up_proj_bias[:, None], states, self.up_proj))
            gates = top_k_weights.new_zeros(top_k_weights.shape[0], self.num_experts)
            gates = gates.scatter(1, top_k_index, top_k_weights)
            return torch.bmm(inner * gates.t()[..., None], self.down_proj).sum(0) + gates @ self.down_proj_bias
        inner = dispatch.products(dispatch.spread(hidden_states), self.up_proj, grouped, self.up_proj_bias)
        results = dispatch.products(self.act_fn(inner), self.down_proj, grouped, self.down_proj_bias)
        return dispatch.collect(results, top_k_weights)
