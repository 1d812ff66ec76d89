"""Classification of many sequences in a pool of rows, which others take as soon as their own have halted.

Shapes: N sequences of at most S tokens, B rows of W columns, E width, L maximum of steps, C labels.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ..models.base.outputs import RecurrentOutput
from ..models.depth.layouts import PaddedLayout
from ..models.depth.loop import DepthOutput, LateValues
from ..models.heads.classification import ForSequenceClassification
from ..models.ops.attention import NO_ROTATIONS, PaddedContext
from ..models.ops.graphs import capturing
from ..models.ops.masks import as_implemented
from ..models.ops.positions import tokens_first
from .cuda_graphs import repeated
from .slots import Slots, check_slots

# those whose sequences begin with an embedding and end with a pooling
POOLED = ("ut", "gut", "ndr", "albert_recurrent")
SMALLEST_WIDTH = 8
# sequences that wait on the device
WAITING = 4096


class Rows(Slots):
    """Rows of one width, and the sequences that wait for them on the device.

    Args:
        repeats: depth steps of a replay.
        graph, compiled: see `repeated`.
        options: those of `Slots`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        number: int,
        width: int,
        repeats: int,
        graph: bool,
        compiled: bool,
        **options: Any,
    ):
        super().__init__(model, number, **options)
        zeros = partial(torch.zeros, dtype=torch.long, device=model.device)
        self.columns, self.repeats = torch.arange(width, device=model.device), repeats
        # waiting sequences; how many there are, the first that waits, and how many rows and sequences are left
        self.ids, self.types, self.lengths = zeros(WAITING, width), zeros(WAITING, width), zeros(WAITING) + 1
        self.count, self.head, self.left = zeros(()), zeros(()), zeros(1)
        # that of each row
        self.example = zeros(number)
        # results, and a place for those of no sequence
        self.logits = zeros(WAITING + 1, model.config.num_labels, dtype=model.dtype)
        self.steps = zeros(WAITING + 1)
        with capturing():
            self.context = self.shared_context()
        self.run = repeated(self.iterate, model.device, graph, compiled)

    def embedded(self, example: torch.Tensor) -> torch.Tensor:
        """States (n, W, E) of sequences (n,) before the first step."""
        return self.embed(self.ids[example], self.types[example], self.columns)

    def shared_context(self) -> Any:
        """Inputs of attention that all rows share."""
        if self.model.config.model_type == "albert_recurrent":
            return PaddedContext(None, NO_ROTATIONS)
        tokens = torch.ones_like(self.columns, dtype=torch.bool)[None]
        return self.model.model.context(self.embedded(self.example[:1]), tokens, self.call)

    def iterate(self) -> None:
        for _ in range(self.repeats):
            self.step_all()

    def step_all(self) -> None:
        """Fill the rows that are free, take a depth step of all, and write what those that are done answer."""
        config, context, waiting = self.model.config, self.context, self.head + self.done.cumsum(0) - 1
        admitted = self.done & (waiting < self.count)
        busy = admitted | ~self.done
        example = torch.where(admitted, waiting, self.example)
        mask = self.columns < self.lengths[example, None]
        if getattr(config, "attention", None) == "geometric":
            context = context._replace(attention_mask=mask)
        elif not config.is_causal:
            context = context._replace(attention_mask=as_implemented(config, mask[:, None, None], torch.float32))
        layout = PaddedLayout(config, self.strategy, mask, context)
        state, step, done = self.take(layout, *self.start(layout, self.embedded(example), admitted))
        self.answer(mask, state, torch.where(done & busy, example, WAITING))
        self.head += admitted.sum()
        self.example.copy_(example)
        self.keep(state, step, done | ~busy)
        self.left.copy_(self.count - self.head + (~self.done).sum())

    def answer(self, mask: torch.Tensor, state: Any, places: torch.Tensor) -> None:
        """Write logits and steps of all rows at these places (B,) of the results."""
        hidden, _, steps = self.strategy.output(state)
        depth = DepthOutput(torch.where(mask[..., None], hidden, 0.0))
        steps = self.step.new_full(mask.shape, self.max_depth) if steps is None else steps
        steps = torch.where(mask, steps, 0).amax(-1) if steps.dim() > 1 else steps
        self.logits.index_copy_(
            0, places, self.model.predict(self.model.model.pooled(depth, mask), steps).to(self.logits)
        )
        self.steps.index_copy_(0, places, steps)


class ClassifierPool:
    """Classifies any number of sequences with a model that iterates one block, in the steps that each one takes.

    A row of the pool whose sequence has halted takes the next one at once, so that time follows the mean of the steps
    rather than the largest number in a batch. Answers are those of the model, as rows do not depend on each other.
    Sequences are sorted into rows of 8, 16, 32 ... columns. Iterations do not wait for the host: on a GPU several are
    one CUDA graph. Do not use it from several threads, and make a new one after changes of the config.

    Args:
        model: a sequence classifier in evaluation mode: `ut`, `gut`, `ndr` or `albert_recurrent`.
        rows: sequences that are computed together.
        repeats: depth steps between two looks at whether any row is left.
        graph: whether to capture CUDA graphs; by default on a GPU.
        compiled: whether torch compiles them.
        options: of the model's calls, such as `max_depth`, `halting_threshold` or `exit_criterion`.

    Attributes:
        iterations: depth steps of all rows that were taken so far.

    Raises:
        ValueError: a model or an option that is not supported.

    Example:
        >>> pool = ClassifierPool(model, rows=64)
        >>> pool(input_ids, attention_mask).logits
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        model: PreTrainedModel,
        rows: int = 64,
        repeats: int = 4,
        graph: bool | None = None,
        compiled: bool = False,
        **options: Any,
    ):
        check_slots(model, POOLED, "call the model itself")
        if not isinstance(model, ForSequenceClassification) or model.config.pair_encoding == "siamese":
            raise ValueError(
                f"the {type(model).__name__} does not answer for each sequence by itself: load it by "
                "AutoModelForSequenceClassification, with pair_encoding='joint'; or call the model itself"
            )
        graph = model.device.type == "cuda" if graph is None else graph
        self.model, self.iterations, self.repeats = model, 0, repeats
        self.rows = partial(Rows, model, rows, repeats=repeats, graph=graph, compiled=compiled, **options)
        self.pools: dict[int, Rows] = {}
        # what options are wrong is said here, and rows are made when they are needed
        Slots(model, rows, **options)

    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> RecurrentOutput:
        """`logits` (N, C) and `ponder_steps` (N,) of N sequences (N, S).

        Steps of a sequence whose tokens halt one by one are the most that one of them took.

        Raises:
            ValueError: as the model, of ids, a mask or types that do not fit.
        """
        mask, _ = self.model.model.check_call(input_ids, None, attention_mask, token_type_ids, None, None)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        columns, lengths = tokens_first(mask)[0], mask.sum(-1)
        widths = 2 ** lengths.clamp_min(SMALLEST_WIDTH).log2().ceil().long()
        # columns of the widest rows
        further = (0, max(0, int(widths.max()) - mask.shape[1]))
        ids, types = (nn.functional.pad(each.gather(1, columns), further) for each in (input_ids, types))
        logits = torch.zeros(len(mask), self.model.config.num_labels, dtype=self.model.dtype, device=mask.device)
        steps = torch.zeros_like(lengths)
        for width in widths.unique().tolist():
            if width not in self.pools:
                self.pools[width] = self.rows(width)
            pool = self.pools[width]
            for which in (widths == width).nonzero().squeeze(-1).split(WAITING):
                number, late, left = len(which), LateValues(), None
                for memory, values in ((pool.ids, ids), (pool.types, types)):
                    memory[:number] = values[which, :width]
                pool.lengths[:number] = lengths[which]
                pool.count.fill_(number)
                pool.head.zero_()
                while left != [0]:
                    pool.run()
                    self.iterations += self.repeats
                    left = late.poll(pool.left)
                logits[which], steps[which] = pool.logits[:number], pool.steps[:number]
        return RecurrentOutput(logits=logits, ponder_steps=steps)
