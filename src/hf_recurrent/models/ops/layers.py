"""Building blocks below all others: dropout that is fast on a CPU, reproducible linear maps, dtypes of rounding."""

from collections.abc import Callable

import torch
from torch import nn

from .graphs import in_graph

# torch draws 24 random bits or more for each unit; dropout needs only 16, so one draw of 64 serves four units
LEVELS = 1 << 16
LOWEST = torch.iinfo(torch.int16).min


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Convert half precision to float32; float32 and float64 stay as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def computing_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype that kernels compute in: within autocast its own, but for float64."""
    device = tensor.device.type
    is_cast = torch.is_autocast_enabled(device) and tensor.dtype is not torch.float64
    return torch.get_autocast_dtype(device) if is_cast else tensor.dtype


def where_rows(condition: torch.Tensor, new: torch.Tensor, old: torch.Tensor | float) -> torch.Tensor:
    """`new` (B, ...) in rows whose `condition` (B,) is True, else `old`."""
    return torch.where(condition.reshape(-1, *[1] * (new.dim() - 1)), new, old)


def of_tokens(
    function: Callable[[torch.Tensor], torch.Tensor], states: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """`function` of the states (B, S, E) at tokens, and of a zero state at padding -> (B, S, ...).

    It is computed for the tokens and one zero state alone.

    Args:
        mask: (B, at least S), of which the last columns count; None without padding.
    """
    # a traced graph must not depend on data
    if mask is None or in_graph():
        return function(states)
    shape = states.shape[:2]
    places = mask[:, -shape[1] :].flatten().nonzero().squeeze(-1)
    if places.shape[0] in (0, shape.numel()):
        return function(states)
    tokens = states.flatten(0, 1).index_select(0, places)
    found = function(torch.cat((tokens.new_zeros(1, tokens.shape[1]), tokens)))
    at_padding = found[:1].expand(shape.numel(), *found.shape[1:])
    return at_padding.index_copy(0, places, found[1:]).unflatten(0, shape)


def noise_like(states: torch.Tensor, p: float) -> torch.Tensor:
    """Dropout mask: 0 with probability `p`, to within 1 / 131072 and less than one, elsewhere scaled to mean one."""
    dropped = round(p * LEVELS)
    draws = torch.empty((states.numel() + 3) // 4, dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    levels = draws.view(torch.int16)[: states.numel()].view(states.shape)
    noise = torch.empty(states.shape, dtype=states.dtype)
    return torch.ge(levels, LOWEST + dropped, out=noise).mul_(LEVELS / (LEVELS - dropped))


def dropout(states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """`torch.nn.functional.dropout`, faster on the processor."""
    if not training or p == 0.0:
        return states
    # the threshold that drops all units does not fit into int16
    if states.device.type != "cpu" or in_graph() or round(p * LEVELS) == LEVELS:
        return nn.functional.dropout(states, p)
    return states * noise_like(states, p)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, faster on the processor, and in evaluation mode no call of a module."""

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        return super().__call__(states) if self.training else states

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return dropout(states, self.p, self.training)


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm`, in the dtype of its weights where states are in half precision, as layer norms are."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states.to(torch.promote_types(states.dtype, self.weight.dtype)))


def embedding_width(table: nn.Module) -> int:
    """Width of an embedding table, which an adapter of peft may have wrapped."""
    while hasattr(table, "base_layer") or hasattr(table, "original_module"):
        # the weights of the second kind of wrapper would be merged to be looked at
        table = table.base_layer if hasattr(table, "base_layer") else table.original_module
    return table.embedding_dim


# the widest vector instructions load so many bytes at once
ALIGNMENT_BYTES = 64


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if it does not begin at a multiple of `ALIGNMENT_BYTES`, as torch's own allocations do.

    Checkpoints are mapped from files, where a weight may begin anywhere, and libraries of linear algebra choose the
    order of their sums by where it begins.
    """
    if tensor.device.type != "cpu" or in_graph() or tensor.data_ptr() % ALIGNMENT_BYTES == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


# packages whose tensors of weights look like numbers in floating point
QUANTIZERS = ("torchao", "bitsandbytes", "optimum", "hqq")


def deciding_dtype(*layers: nn.Module) -> torch.dtype:
    """The dtype that the linear layers of a head compute in, which decides on halting or exits.

    Raises:
        ValueError: a layer was quantised.
    """
    # a graph is traced of a model that has been called
    if in_graph():
        return layers[0].weight.dtype
    weights = [layer.weight for layer in layers if isinstance(getattr(layer, "weight", None), torch.Tensor)]
    if len(weights) == len(layers) and all(type(each) is nn.Parameter and each.is_floating_point() for each in weights):
        return weights[0].dtype
    whole = [weight for weight in weights if weight.is_floating_point() and not weight.is_quantized]
    plain = [weight for weight in whole if type(weight).__module__.partition(".")[0] not in QUANTIZERS]
    if len(plain) < len(layers):
        raise ValueError(
            "a halting head or exit probe has quantised weights, which would change where the model stops: load the "
            "checkpoint again, and leave the modules `halting_head` and `exit_probe` out of the quantisation"
        )
    return plain[0].dtype


class ReproducibleLinear(nn.modules.linear.NonDynamicallyQuantizableLinear):
    """A linear map whose results do not depend on the memory address of its weight.

    For halting heads: a decision at a threshold must not flip between two loads of one checkpoint. One or two outputs
    are elementwise products and sums, because a matrix-vector product may sum in another order at another address. By
    torch's mark in its base class, torchao leaves it in float32.
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """(..., in_features) -> (..., out_features)."""
        if self.out_features > 2:
            return nn.functional.linear(states, aligned(self.weight), self.bias)
        if self.out_features == 1:
            outputs = (states * self.weight.squeeze(0)).sum(-1, keepdim=True)
        else:
            outputs = torch.stack([(states * weight).sum(-1) for weight in self.weight.unbind()], dim=-1)
        return outputs if self.bias is None else outputs + self.bias
