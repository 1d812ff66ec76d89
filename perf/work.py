"""Work as it is executed, counted: the same on every machine."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch.autograd import DeviceType
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from hf_recurrent.models.depth import halting, loop
from hf_recurrent.models.ops import checks

# parts of models by the class of a module, else by its name, if it is in no part that is known by its own
CLASSES = {"ExpertMap": "experts", "FeedForwardExperts": "experts", "Router": "routers"}
NAMES = {
    "attention": "attention",
    "cross_attention": "attention",
    "memory_read": "memory",
    "memory_layers": "memory",
    "state_cell": "memory",
    "feed_forward": "feed-forward",
    "gate": "gate",
    "halting_head": "halting",
    "exit_probe": "halting",
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "attention"),
    **dict.fromkeys(("up_proj", "down_proj"), "feed-forward"),
    "classifier": "head",
    "lm_head": "head",
}
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "_grouped_mm", "mv", "addmv", "dot")
OTHER = "other"
ATTENTION = "_scaled_dot_product"
LSTMS = ("mkldnn_rnn_layer", "_cudnn_rnn")
# operators that wait for the device to tell a number or a shape
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive")


class Work(NamedTuple):
    """Counted work of a call.

    Attributes:
        parts: multiply-accumulates of matrix products, convolutions and attention, by part of the model; those of
            queries with keys and of weights with values are "scores" where the two are one operator.
        calls: operators called, views excepted: as many kernels as a GPU would launch, about.
        waits: times that the program waits for a GPU to know a number or a shape.
        token_steps: tokens that depth steps or layers are applied to, padding and the halted included where they are.
    """

    parts: Counter
    calls: int
    waits: int
    token_steps: int

    @property
    def products(self) -> int:
        return self.parts.total()


def multiply_accumulates(name: str, args: tuple, output) -> int:
    """Of an operator of aten; attention counts whole rectangles, causal or not."""
    if name in PRODUCTS:
        left, right = args[-2:] if name in ("addmm", "baddbmm", "addmv") else args[:2]
        columns = right.shape[-1] if right.dim() > 1 else 1
        if name == "_grouped_mm" and left.dim() == 3 and right.dim() == 2:
            return left[0].numel() * columns
        return left.numel() * columns
    if name.startswith(ATTENTION):
        # the backward pass makes the scores again, and the gradients of weights, queries, keys and values
        products, (query, key) = (5, args[1:3]) if name.endswith("backward") else (2, args[:2])
        return products * query.numel() * key.shape[-2]
    if name in ("convolution", "convolution_backward"):
        weight = args[2] if name.endswith("backward") else args[1]
        positions = args[0] if name.endswith("backward") else output
        return (2 if name.endswith("backward") else 1) * positions.numel() * weight[0].numel()
    if name.removesuffix("_backward") in LSTMS:
        # cuDNN is given those of all layers, with their biases
        weights = args[1] if isinstance(args[1], list | tuple) else args[1:3]
        products = args[0].shape[:-1].numel() * sum(weight.numel() for weight in weights if weight.dim() > 1)
        return (2 if name.endswith("backward") else 1) * products
    return 0


class OperatorCounter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.products, self.calls, self.waits = Counter(), 0, 0
        self.parts = [OTHER]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        count = multiply_accumulates(name, args, output)
        if count:
            backward = torch._C._current_autograd_node() is not None
            part = "scores" if name.startswith(ATTENTION) else self.parts[-1]
            self.products["backward" if backward else part] += count
        self.calls += not function.is_view
        self.waits += name in WAITS or has_mask(name, args)
        return output


def has_mask(name: str, args: tuple) -> bool:
    """Whether a tensor is indexed by a mask, whose ones must be counted."""
    return name in ("index", "index_put", "index_put_") and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )


class ListCounter(TorchFunctionMode):
    """Counts `tolist`, which reads memory of the processor without an operator."""

    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.Tensor.tolist
        return function(*args, **(kwargs or {}))


def is_step(name: str) -> bool:
    """Whether a module is a shared block or one of the layers."""
    *_, owner, last = f"..{name}".split(".")
    return last in ("block", "lstm") or (last.isdecimal() and owner == "layers")


@contextmanager
def watched(model: torch.nn.Module, operators: OperatorCounter, tokens: list[int]) -> Iterator[None]:
    def enter(part: str, is_own: bool) -> Callable:
        parts = operators.parts
        return lambda *_: parts.append(part if is_own or parts[-1] == OTHER else parts[-1])

    def record(module: torch.nn.Module, args: tuple) -> None:
        states = args[0]
        tokens.append(states.numel() // states.shape[-1])

    with ExitStack() as stack:
        for name, module in model.named_modules():
            own = CLASSES.get(type(module).__name__)
            if (part := own or NAMES.get(name.rpartition(".")[2])) is not None:
                stack.callback(module.register_forward_pre_hook(enter(part, own is not None)).remove)
                stack.callback(module.register_forward_hook(lambda *_: operators.parts.pop() and None).remove)
            if is_step(name):
                stack.callback(module.register_forward_pre_hook(record).remove)
        yield


def counted(model: torch.nn.Module, call: Callable[[], object]) -> Work:
    """The work of a call of the model, backward passes in it included, as on a GPU, which is not asked who lives."""
    operators, lists, tokens = OperatorCounter(), ListCounter(), []
    with ExitStack() as stack:
        for module in (halting, loop):
            stack.enter_context(mock.patch.object(module, "at_hand", return_value=False))
        stack.enter_context(
            mock.patch.object(
                checks, "values_of", lambda *tensors: torch.stack([each.double() for each in tensors]).tolist()
            )
        )
        for each in (watched(model, operators, tokens), lists, operators):
            stack.enter_context(each)
        call()
    return Work(operators.products, operators.calls, operators.waits + lists.count, sum(tokens))


def device_waits(call: Callable[[], object]) -> int:
    """Times that a call waits for a CUDA device, as torch itself reports them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(each.message) for each in caught)


def device_work(call: Callable[[], object]) -> tuple[int, float]:
    """Kernels that a call launches on a GPU, and milliseconds for which the GPU computes."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    events = found.key_averages()
    launches = sum(event.count for event in events if event.key.startswith(("cudaLaunch", "cuLaunch")))
    # an operator has the time of its kernels, too
    kernels = [event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation]
    return launches, sum(event.self_device_time_total for event in kernels) / 1e3
