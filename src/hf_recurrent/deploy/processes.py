"""Batches dealt out to the processes that a launcher has started for one command, and the results of all of them.

Each process runs the model on its share; afterwards every one has all results in the order of the batches, so that what
follows from them needs no further exchange. Outside `shared_work` and `shared_after_training` a process does everything
by itself.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from itertools import islice, zip_longest
from typing import Any, TypeVar

import torch

from ..models.ops.sharding import largest_over_ranks

Item = TypeVar("Item")
# waiting for one process, which times or writes alone, is no fault
TIMEOUT = timedelta(days=1)
MISSING = object()


# this process's number among those that share work, and how many there are
_GROUP: ContextVar[tuple[int, int]] = ContextVar("processes that share work", default=(0, 1))


@contextmanager
def shared_work() -> Iterator[None]:
    """Let the processes of the launcher that has started this one share work."""
    # it knows how each launcher names the processes, and which device is whose
    from accelerate import PartialState

    state = PartialState(cpu=not torch.accelerator.is_available(), timeout=TIMEOUT)
    with shared_by(state.process_index, state.num_processes):
        yield
    state.destroy_process_group()


@contextmanager
def shared_after_training() -> Iterator[None]:
    """Let the processes that have trained together share what comes after; one that has trained alone goes on so.

    None may wait for another for longer than for gradients.
    """
    distributed = torch.distributed
    together = distributed.is_available() and distributed.is_initialized()
    with shared_by(distributed.get_rank(), distributed.get_world_size()) if together else nullcontext():
        yield


@contextmanager
def shared_by(rank: int, size: int) -> Iterator[None]:
    """Let this process, number `rank` of `size`, share work with the others; 0 of 1 works by itself."""
    token = _GROUP.set((rank, size))
    try:
        yield
    finally:
        _GROUP.reset(token)


def share() -> tuple[int, int]:
    """This process's number, and how many share the work."""
    return _GROUP.get()


def is_first() -> bool:
    """Whether this process writes and speaks for all."""
    return share()[0] == 0


def dealt(items: Iterable[Item]) -> Iterable[Item]:
    """This process's share of the items: every n-th of n processes."""
    rank, size = share()
    return items if size == 1 else islice(items, rank, None, size)


def of_all(own: Item) -> list[Item]:
    """What each process has, such as parts of a sum."""
    _, size = share()
    if size == 1:
        return [own]
    found: list[Any] = [None] * size
    torch.distributed.all_gather_object(found, own)
    return found


def in_step(own: Iterable[Item], filler: Item, device: torch.device) -> Iterator[Item]:
    """This process's items, and fillers until no process has any left: all of them take equally many."""
    items = iter(own)
    while True:
        item = next(items, None)
        if not largest_over_ranks(int(item is not None), device):
            return
        yield filler if item is None else item


def collected(own: list[Item]) -> list[Item]:
    """The results for all items in their order, from those of each process for its `dealt` share."""
    rounds = zip_longest(*of_all(own), fillvalue=MISSING)
    return [result for each in rounds for result in each if result is not MISSING]


def from_first(compute: Callable[[], Item]) -> Item:
    """What the first process computes, while the others wait."""
    _, size = share()
    if size == 1:
        return compute()
    found = [compute() if is_first() else None]
    torch.distributed.broadcast_object_list(found, src=0)
    return found[0]
