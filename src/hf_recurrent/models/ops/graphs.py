"""Whether operators go into a graph that is run again later, whose course must not depend on values.

Such a graph is traced by torch's compiler or exporter, or captured of a CUDA stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

# captures in progress, whatever the thread: what records operators in pieces that end with depth steps, whose
# `end_of_step(state, loop)` is the state after a step in memory that all steps of the loop share; None for one piece
recorders: list[Any] = []


def in_graph() -> bool:
    """Whether a graph is being made, so that nothing may depend on the values of tensors."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or bool(recorders)


def is_captured() -> bool:
    """Whether that graph is captured of a stream, so that states must have the same shapes after every step."""
    return bool(recorders) and not torch.compiler.is_compiling()


@contextmanager
def capturing(recorder: Any = None) -> Iterator[None]:
    """Compute as a graph does, which is captured meanwhile or rehearsed."""
    recorders.append(recorder)
    try:
        yield
    finally:
        recorders.pop()


def end_of_step(state: NamedTuple, loop: object) -> NamedTuple:
    """The state after a depth step, after which its loop may end; a capture may make it the end of a piece."""
    recorder = recorders[-1] if is_captured() else None
    return state if recorder is None else recorder.end_of_step(state, loop)
