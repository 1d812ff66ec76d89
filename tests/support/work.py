"""Counting of the work of a model as it is executed."""

from collections import Counter
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


class Work(TorchDispatchMode):
    """Counts multiply-accumulates of matrix products by the part of the model that runs, without fused attention."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()
        self.parts = ["other"]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in PRODUCTS:
            left, right = args[-2:]
            self.counts[self.parts[-1]] += left.numel() * right.shape[-1]
        return function(*args, **(kwargs or {}))


@contextmanager
def counted_work(model: torch.nn.Module, parts: dict[str, str]):
    """Multiply-accumulates by part: `parts` has the names of modules, wherever they are, and those of their parts."""
    work, handles = Work(), []
    for name, module in model.named_modules():
        part = parts.get(name.rpartition(".")[2])
        if part is not None:
            handles.append(module.register_forward_pre_hook(lambda *_, part=part: work.parts.append(part)))
            handles.append(module.register_forward_hook(lambda *_: work.parts.pop() and None))
    try:
        with work:
            yield work.counts
    finally:
        for handle in handles:
            handle.remove()
