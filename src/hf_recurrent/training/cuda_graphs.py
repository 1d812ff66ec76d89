"""Training steps as CUDA graphs: those of small models take the host longer to launch than the GPU to compute.

A graph holds the forward and the backward pass of one shape of batch, at one depth where depths are drawn. The first
batch of a kind runs as ever; from the second on its graph is replayed. Columns are padded, so that shapes come again.
Halted units are masked to the last step, as in all graphs, so that results are the same and no step is left out.
"""

import gc
from collections.abc import Callable, Hashable, Mapping

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..deploy.cuda_graphs import Captured, CaptureStream, kind_of
from ..models.ops.graphs import capturing
from ..models.ops.losses import NO_TARGET

Tensors = dict[str, torch.Tensor]
# columns are padded to multiples of an eighth of the next power of two, and of this
SMALLEST_MULTIPLE = 16
# kinds of batches that have graphs; steps of others are launched
MAX_GRAPHS = 256


def padded(inputs: Mapping[str, torch.Tensor], config: PreTrainedConfig) -> Tensors:
    """A batch with padding on the right, up to a length that comes again; as it is if the model depends on that."""
    ids = inputs["input_ids"]
    values = {"attention_mask": torch.ones_like(ids), **inputs}
    # it computes something else if its batch has more padding
    if getattr(config, "chunking", None) == "balanced" or getattr(config, "padding_in_ponder_cost", False):
        return values
    length = ids.shape[1]
    multiple = max(SMALLEST_MULTIPLE, (1 << (length - 1).bit_length()) // 8)
    whole, fills = -(-length // multiple) * multiple, {"input_ids": config.pad_token_id or 0, "labels": NO_TARGET}
    for name, value in values.items():
        if name in ("start_positions", "end_positions"):
            # columns after the last one are those of answers to be ignored
            values[name] = torch.where(value < length, value, whole)
        elif value.shape[:2] == ids.shape and not value.is_floating_point():
            values[name] = nn.functional.pad(value, (0, whole - length), value=fills.get(name, 0))
    return values


class TrainingGraphs:
    """Steps of training by their graphs.

    Args:
        step: forward and backward pass of a batch at a depth, None for the model's own -> its loss and statistics;
            gradients are added to parameters.
        model: with the parameters, on its device.
    """

    def __init__(self, step: Callable[[Tensors, int | None], Tensors], model: nn.Module):
        self.step, self.model = step, model
        self.place = CaptureStream(next(model.parameters()).device)
        self.seen: set[Hashable] = set()
        self.graphs: dict[Hashable, tuple[Tensors, list[nn.Parameter], Captured]] = {}
        # all graphs leave their gradients here
        self.gradients: dict[nn.Parameter, torch.Tensor] = {}

    def run(self, inputs: Tensors, depth: int | None = None) -> Tensors:
        """The step of a batch at a depth; gradients of parameters must be None before.

        Raises:
            ValueError: the step cannot be captured; the process is of no use afterwards.
        """
        kind = depth, kind_of(inputs)
        if kind not in self.graphs and (kind not in self.seen or len(self.graphs) == MAX_GRAPHS):
            self.seen.add(kind)
            # what a step keeps of a parameter must be of the stream that is captured
            with self.place.used():
                return self.step(inputs, depth)
        if kind not in self.graphs:
            self.graphs[kind] = self.captured(inputs, depth)
        memory, learning, graph = self.graphs[kind]
        for name, value in inputs.items():
            memory[name].copy_(value, non_blocking=True)
        outputs = graph.replay()
        for parameter in learning:
            parameter.grad = self.gradients[parameter]
        return {name: value.clone() for name, value in outputs.items()}

    def captured(self, inputs: Tensors, depth: int | None) -> tuple[Tensors, list[nn.Parameter], Captured]:
        """Memory of inputs, the parameters that get gradients, and the graph that computes them."""
        memory = {name: value.clone() for name, value in inputs.items()}
        gc.collect()
        try:
            # to load kernels, which a capture may not do, and to know which parameters learn
            with capturing(), self.place.used():
                self.step(memory, depth)
            learning = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
            for parameter in learning:
                if parameter not in self.gradients:
                    self.gradients[parameter] = torch.empty_like(parameter.grad)
            self.model.zero_grad()

            def step_in_place() -> Tensors:
                outputs = self.step(memory, depth)
                torch._foreach_copy_([self.gradients[each] for each in learning], [each.grad for each in learning])
                # their memory serves other graphs
                self.model.zero_grad()
                return outputs

            return memory, learning, Captured(step_in_place, self.place)
        except RuntimeError as error:
            raise ValueError(
                f"cuda_graphs is True, but a step of this model cannot be captured: {error}; leave cuda_graphs out"
            ) from error
