"""A GPU imitated on a CPU: tensors that say they are on it, and refuse to be mixed with those of the CPU.

Computation is that of the CPU. Code that asks a tensor or a module for its device is answered `cuda:0`, so that it goes
the way of a GPU, and an operator that is given tensors of both devices fails as it does with CUDA, as do reading a
tensor by numpy and indices that must lie on the CPU. Kernels, streams and asynchrony are not imitated: Triton, compiled
graphs and FlashAttention see no such device.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

Tensor = torch.Tensor
DEVICE, CPU = torch.device("cuda", 0), torch.device("cpu")
# functions that take tensors of any device; indices may be on the CPU
MIXING = {
    *(Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.copy_, Tensor.type, Tensor.item, Tensor.tolist),
    *(Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put),
    *(Tensor.backward, torch.autograd.backward, torch.autograd.grad),
}
# those that take or give numbers of tokens on the CPU
PACKING = {"_pack_padded_sequence", "_pad_packed_sequence", "lstm", "gru"}
ACCESSORS = ("__get__", "__set__", "__delete__")


class OnDevice(Tensor):
    """A tensor of the imitated device, whose memory is that of the CPU."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnDevice":
        if id(self) not in memo:
            values = put(plainly(lambda: self.detach().clone(), (), {}))
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(values, self.requires_grad) if is_parameter else values
        return memo[id(self)]


def plainly(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


def put(value: Any) -> Any:
    """A tensor on the imitated device, sharing its memory; anything else as it is."""
    if not isinstance(value, Tensor) or isinstance(value, OnDevice):
        return value
    return plainly(Tensor.as_subclass, (value, OnDevice), {})


def taken(value: Any) -> Any:
    """A tensor on the CPU, sharing its memory."""
    return plainly(Tensor.as_subclass, (value, Tensor), {}) if isinstance(value, OnDevice) else value


def is_imitated(device: Any) -> bool:
    return isinstance(device, (str, torch.device)) and str(device).partition(":")[0] == "cuda"


def target_of(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The device that a call names, None if it names none."""
    if function is Tensor.cuda:
        return DEVICE
    if function is Tensor.cpu:
        return CPU
    if function is not Tensor.to:
        return kwargs.get("device")
    for value in (*args[1:], kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, torch.device) or (isinstance(value, str) and value not in ("", None)):
            return value
        if isinstance(value, Tensor):
            return DEVICE if isinstance(value, OnDevice) else CPU
    return None


def call(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of torch as it would be with tensors of a GPU."""
    if function is torch.device:
        return plainly(function, args, kwargs)
    own = args[0] if args else None
    if isinstance(own, OnDevice):
        if function == Tensor.device.__get__:
            return DEVICE
        if function == Tensor.is_cuda.__get__:
            return True
        if function == Tensor.is_cpu.__get__:
            return False
        if function in (Tensor.numpy, Tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")
    leaves = tree_leaves((args, kwargs))
    here = any(isinstance(leaf, OnDevice) for leaf in leaves)
    name = getattr(function, "__name__", "")
    if here and function not in MIXING and name not in (*ACCESSORS, *PACKING):
        refuse_mixtures(name, leaves)
    target = target_of(function, args, kwargs)
    there = here if target is None else is_imitated(target)
    if function is Tensor.cuda:
        function, args, kwargs = Tensor.detach if not own.requires_grad else Tensor.clone, args[:1], {}
    args = tuple(CPU if is_imitated(value) else value for value in args)
    kwargs = {key: CPU if is_imitated(value) else value for key, value in kwargs.items()}
    if name == "histc" and there:
        # of whole numbers, which CUDA counts, too
        args = (plainly(Tensor.float, args[:1], {}), *args[1:])
    output = plainly(function, args, kwargs)
    if function in (Tensor.to, Tensor.cpu) and here and not there and output is own:
        # moving copies: later writes on the device do not reach it
        output = plainly(Tensor.clone, (output,), {})
    if name == "_pack_padded_sequence" and there:
        return put(output[0]), output[1]
    if isinstance(output, torch.Size) or not (there or target is not None):
        return output
    return tree_map(put if there else taken, output)


def refuse_mixtures(name: str, leaves: list[Any]) -> None:
    strangers = [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and not isinstance(leaf, OnDevice) and plainly(Tensor.dim, (leaf,), {}) > 0
    ]
    if strangers:
        raise RuntimeError(
            f"{name}: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        )


class Imitation(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})


def move(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """`Module.to`: parameters become others on the imitated device, what was tied stays so."""
    device = target_of(Tensor.to, (None, *args), kwargs)
    if device is None:
        return plain_move(module, *args, **kwargs)
    change = put if is_imitated(device) else taken
    moved: dict[int, Tensor] = {}

    def of(tensor: Tensor) -> Tensor:
        if id(tensor) not in moved:
            values = change(plainly(Tensor.detach, (tensor,), {}))
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            same = isinstance(tensor, OnDevice) == isinstance(values, OnDevice)
            made = torch.nn.Parameter(values, requires_grad=tensor.requires_grad) if is_parameter else values
            moved[id(tensor)] = tensor if same else made
        return moved[id(tensor)]

    for part in module.modules():
        for held in (part._parameters, part._buffers):
            held.update({name: of(tensor) for name, tensor in held.items() if tensor is not None})
    others = [value for value in args if isinstance(value, torch.dtype)]
    dtype = kwargs.get("dtype", *others[:1]) if "dtype" in kwargs or not others else others[0]
    return module if dtype is None else plain_move(module, dtype)


plain_move = torch.nn.Module.to


class Event:
    """Of a stream on which everything has happened already."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def record(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """`cuda` is the imitated device inside."""
    with (
        mock.patch.object(torch.nn.Module, "to", move),
        mock.patch.object(torch.nn.Module, "cuda", lambda module, *_: move(module, DEVICE)),
        mock.patch.object(torch.cuda, "Event", Event),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
        mock.patch.object(torch.cuda, "synchronize", return_value=None),
        mock.patch.object(torch.cuda, "current_stream", return_value=None),
        Imitation(),
    ):
        yield
