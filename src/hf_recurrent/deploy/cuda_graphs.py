"""CUDA graphs of forward passes, for models whose operators take the host longer to launch than the GPU to compute.

Shapes: U halting units.
"""

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from ..models.depth.loop import LateValues
from ..models.ops.graphs import capturing
from ..models.ops.masks import is_flash

# whose passes depend on nothing that the host reads or draws
ARCHITECTURES = ("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "albert_recurrent", "ouro_recurrent")


def kind_of(inputs: dict[str, torch.Tensor]) -> Hashable:
    """The facts on a batch, and on the precision around its pass, that graphs depend on."""
    shapes = tuple((name, value.shape, value.dtype) for name, value in sorted(inputs.items()))
    device = next(iter(inputs.values())).device.type
    return shapes, torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


class CaptureStream:
    """The stream of a device that graphs are captured of, and the memory that they share."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def current(self) -> AbstractContextManager:
        """Make the device the current one, whose stream graphs are replayed on."""
        return torch.cuda.device(self.device)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Launch on this stream, after all that was launched before and before all that comes after."""
        outer = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(outer)
        with torch.cuda.stream(self.stream), uncached_autocast():
            yield
        outer.wait_stream(self.stream)


@contextmanager
def uncached_autocast() -> Iterator[None]:
    """Without the weights that autocast has converted before: a graph must convert its own, as that memory is freed."""
    before = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


class Captured:
    """A call as CUDA graphs, to be run again on the same memory.

    Args:
        call: reads and writes memory that stays.
        place: where it is captured.
        by_step: whether there is a graph for each depth step, so that a run ends with its last live unit.
    """

    def __init__(self, call: Callable[[], Any], place: CaptureStream, by_step: bool = False):
        self.place = place
        # graphs, each with the loop over depth whose step it ends with, if it does, and the units (U,) that then live
        self.pieces: list[tuple[torch.cuda.CUDAGraph, object | None, torch.Tensor | None]] = []
        self.states: dict[object, NamedTuple] = {}
        # cycles hold on to what earlier calls made on other streams
        gc.collect()
        torch.cuda.synchronize(place.device)
        with place.used(), capturing(self if by_step else None):
            self.begin()
            try:
                self.outputs = call()
            except BaseException:
                with suppress(RuntimeError):
                    self.graph.capture_end()
                raise
            self.end(None, None)

    def begin(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # other threads may pin memory meanwhile
        self.graph.capture_begin(pool=self.place.pool, capture_error_mode="thread_local")

    def end(self, loop: object | None, live: torch.Tensor | None) -> None:
        self.graph.capture_end()
        self.pieces.append((self.graph, loop, live))

    def end_of_step(self, state: NamedTuple, loop: object) -> NamedTuple:
        kept = self.states.get(loop)
        if kept is None:
            kept = self.states[loop] = tree_map_only(torch.Tensor, torch.clone, state)
        else:
            for memory, value in zip(tree_leaves(kept), tree_leaves(state), strict=True):
                if isinstance(value, torch.Tensor) and value.data_ptr() != memory.data_ptr():
                    if (value.shape, value.dtype) != (memory.shape, memory.dtype):
                        raise ValueError(
                            f"a state changes from step to step: {memory.dtype} {tuple(memory.shape)}, then "
                            f"{value.dtype} {tuple(value.shape)}"
                        )
                    memory.copy_(value)
        self.end(loop, kept.live)
        self.begin()
        return kept

    def replay(self) -> Any:
        """Run the graphs; steps that are left when no unit lives are left out."""
        ended, latest, count = None, None, LateValues()
        for graph, loop, live in self.pieces:
            if loop is not None and loop is ended:
                continue
            if loop is not latest:
                latest, count = loop, LateValues()
            graph.replay()
            if loop is not None and count.poll(live.sum()) == 0:
                ended = loop
        return self.outputs


def repeated(
    call: Callable[[], None], device: torch.device, captured: bool, compiled: bool = False
) -> Callable[[], Any]:
    """A call that reads and writes memory that stays: as a CUDA graph, or computed as a graph does.

    A graph, or what torch compiles, is run once before.
    """

    def eager() -> None:
        with capturing():
            call()

    if compiled:
        eager()
        call = torch.compile(call, dynamic=False, fullgraph=True)
    if not captured:
        return eager
    place = CaptureStream(device)
    with place.used():
        eager()
    graph = Captured(call, place)

    # the graph reads what the call holds
    def replay(_held: Any = call) -> None:
        with place.current():
            graph.replay()

    return replay


class GraphedModel:
    """A model on a GPU whose forward passes are captured as CUDA graphs, and replayed for batches of the same shape.

    There is a graph for each depth step, so that a pass ends with its last live unit; results are those of the model.
    The first batch of a shape is captured, which takes as long as several passes. Graphs read the model's weights where
    they are: load or train others in place. Changes of its config reach new shapes alone. Do not use it from several
    threads.

    Args:
        model: in evaluation mode, on a GPU.
        max_shapes: shapes whose graphs are kept; the one that was not called for longest gives way to a new one.
        options: arguments of every call beside tensors, such as `max_depth` or `exit_criterion`.

    Raises:
        ValueError: the model is not on a GPU, in training mode, or of an architecture or attention whose passes the
            host takes part in; or `max_shapes` below 1; or a cache is asked for.
    """

    def __init__(self, model: PreTrainedModel, max_shapes: int = 32, **options: Any):
        if max_shapes < 1:
            raise ValueError(f"max_shapes is {max_shapes}: pass 1 or more")
        for name in ("use_cache", "past_key_values"):
            if options.get(name):
                raise ValueError(f"{name} is {options[name]!r}: graphs keep no cache, call the model itself")
        check_capturable(model)
        self.model, self.max_shapes, self.options = model, max_shapes, options
        self.place = CaptureStream(model.device)
        self.calls: dict[Hashable, tuple[dict[str, torch.Tensor], Captured]] = {}

    # tensors of inference mode could not be written to outside it
    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(self, **inputs: torch.Tensor) -> ModelOutput:
        """The model's output for a batch of tensors, by their names.

        Raises:
            ValueError: as the model, of the first batch of a shape; values of later ones are not looked at. An argument
                that is no tensor, a pass that cannot be captured, or a model in training mode.
        """
        if self.model.training:
            raise ValueError(f"the {type(self.model).__name__} is in training mode: call .eval() first")
        if not inputs:
            raise ValueError("no tensor was passed: name those of the model's call, such as input_ids")
        for name, value in inputs.items():
            if not isinstance(value, torch.Tensor):
                raise ValueError(f"`{name}` is {value!r}: pass tensors here, and options to GraphedModel")
        kind = kind_of(inputs)
        with self.place.current():
            memory, captured = self.calls.pop(kind, None) or self.captured(inputs)
            # in the order of their last calls
            self.calls[kind] = memory, captured
            if len(self.calls) > self.max_shapes:
                del self.calls[next(iter(self.calls))]
            for name, value in inputs.items():
                memory[name].copy_(value, non_blocking=True)
            return tree_map_only(torch.Tensor, torch.clone, captured.replay())

    def captured(self, inputs: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], Captured]:
        """Memory of inputs, and the pass over them."""
        memory = {name: value.clone() for name, value in inputs.items()}
        with self.place.used():
            # values are looked at, then kernels loaded, which a capture may not do
            self.model(**memory, **self.options)
            with capturing():
                self.model(**memory, **self.options)
        try:
            return memory, Captured(lambda: self.model(**memory, **self.options), self.place, by_step=True)
        except RuntimeError as error:
            raise ValueError(
                f"a pass of this {type(self.model).__name__} cannot be captured: {error}; start a new process, and "
                "call the model itself"
            ) from error


def check_capturable(model: PreTrainedModel) -> None:
    name, config = type(model).__name__, model.config
    if model.device.type != "cuda":
        raise ValueError(f"the {name} is on {model.device}: CUDA graphs need a GPU, move it by .to('cuda')")
    if model.training:
        raise ValueError(f"the {name} is in training mode: call .eval() first")
    reason = host_part(config)
    if reason is not None:
        raise ValueError(f"passes of this {name} cannot be captured: {reason}; or call the model itself")


def host_part(config: PreTrainedConfig) -> str | None:
    """Why passes of a model depend on values that the host reads, and what to take instead; None if they do not."""
    if config.model_type not in ARCHITECTURES or config.capabilities.two_stacks:
        known = ", ".join(ARCHITECTURES)
        return f"the host reads values in passes of {config.model_type}; take one of {known}, each with one stack"
    if is_flash(config):
        return f"the host counts tokens for attn_implementation {config._attn_implementation!r}; take 'sdpa'"
    return None
