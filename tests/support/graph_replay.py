"""CUDA graphs without a GPU: operators are recorded, and called again on the same memory."""

import contextlib
import gc
from collections.abc import Iterator
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.utils import import_utils

from hf_recurrent.deploy import cuda_graphs as deploy_graphs
from hf_recurrent.models.depth.loop import LateValues
from hf_recurrent.training import cuda_graphs as training_graphs
from perf.work import WAITS, has_mask


class AlwaysLate(LateValues):
    """Values of a device, on one that does all at once."""

    def poll(self, values: torch.Tensor) -> int | list | None:
        arrived, self.pending = self.pending, values.tolist()
        return arrived


class Tape(TorchDispatchMode):
    """Stands in for `torch.cuda.CUDAGraph`."""

    made: list["Tape"]

    def __init__(self):
        super().__init__()
        self.calls, self.replays = [], 0
        self.made.append(self)

    def capture_begin(self, pool, capture_error_mode: str) -> None:
        # masks of transformers ask for it themselves
        self.patch = mock.patch.object(import_utils, "is_cuda_stream_capturing", return_value=True)
        self.patch.start()
        self.__enter__()

    def capture_end(self) -> None:
        self.__exit__(None, None, None)
        self.patch.stop()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in WAITS or has_mask(name, args):
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        found = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, found))
        return found

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, found in self.calls:
            again = function(*args, **kwargs)
            for memory, value in zip(tree_leaves(found), tree_leaves(again), strict=True):
                # views and results in place are there already
                if isinstance(value, torch.Tensor) and value.data_ptr() != memory.data_ptr():
                    memory.copy_(value)


class NoStream:
    """Stands in for `CaptureStream`."""

    pool = None
    used = current = staticmethod(contextlib.nullcontext)

    def __init__(self, device: torch.device):
        self.device = device


@contextlib.contextmanager
def without_gpu(count: type | None = None) -> Iterator[list[Tape]]:
    """Replace graphs by tapes, for models on the CPU -> those that are made.

    Args:
        count: stands in for `LateValues`, if given.
    """
    with contextlib.ExitStack() as stack:
        for module in (deploy_graphs, training_graphs):
            stack.enter_context(mock.patch.object(module, "CaptureStream", NoStream))
        stack.enter_context(mock.patch.object(deploy_graphs, "check_capturable"))
        if count is not None:
            stack.enter_context(mock.patch.object(deploy_graphs, "LateValues", count))
        stack.enter_context(mock.patch.object(torch.cuda, "CUDAGraph", Tape))
        stack.enter_context(mock.patch.object(torch.cuda, "synchronize"))
        # takes longer than the rest, and nothing is on another stream
        stack.enter_context(mock.patch.object(gc, "collect"))
        yield stack.enter_context(mock.patch.object(Tape, "made", [], create=True))
