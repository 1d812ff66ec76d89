"""Classification of many sequences in a pool of rows, which others take as soon as their own have halted.

Shapes: N sequences of at most S tokens, B rows of W columns, E width, L maximum of steps, C labels.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
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
# below which a GPU computes fewer rows no faster
FEWEST_ROWS = 8


class Queue:
    """Sequences of at most `width` tokens that wait on the device, and what they answer."""

    def __init__(self, model: PreTrainedModel, width: int):
        zeros = partial(torch.zeros, dtype=torch.long, device=model.device)
        self.ids, self.types, self.lengths = zeros(WAITING, width), zeros(WAITING, width), zeros(WAITING) + 1
        # how many there are, the first that waits, and how many have no answer yet
        self.count, self.head, self.left = zeros(()), zeros(()), zeros(1)
        # results, and a place for those of no sequence
        self.logits = zeros(WAITING + 1, model.config.num_labels, dtype=model.dtype)
        self.steps = zeros(WAITING + 1)

    def fill(self, *sequences: torch.Tensor) -> None:
        """Let sequences wait, by their ids (n, W), types (n, W) and lengths (n,)."""
        for memory, values in zip((self.ids, self.types, self.lengths), sequences, strict=True):
            memory[: len(values)] = values
        self.count.fill_(len(values))
        self.head.zero_()


class Rows(Slots):
    """Rows of one width, which take sequences from a queue.

    Args:
        repeats: depth steps of a replay.
        graph, compiled: see `repeated`.
        options: those of `Slots`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        number: int,
        queue: Queue,
        repeats: int,
        graph: bool,
        compiled: bool,
        **options: Any,
    ):
        super().__init__(model, number, **options)
        self.queue, self.repeats = queue, repeats
        self.columns = torch.arange(queue.ids.shape[1], device=model.device)
        # the sequence of each row
        self.example = torch.zeros_like(self.step)
        with capturing():
            self.context = self.shared_context()
        # which takes steps, but none of what waits
        count = queue.count.clone()
        queue.count.zero_()
        self.run = repeated(self.iterate, model.device, graph, compiled)
        queue.count.copy_(count)

    def take_over(self, rows: "Rows") -> None:
        """Continue with the sequences of more rows, of which no more than there are here have one."""
        order = rows.done.long().argsort(stable=True)[: len(self.done)]
        moved = (rows.state, rows.step, rows.done, rows.example)
        *kept, example = tree_map_only(torch.Tensor, lambda values: values.index_select(0, order), moved)
        self.keep(*kept)
        self.example.copy_(example)
        rows.done.fill_(True)

    def embedded(self, example: torch.Tensor) -> torch.Tensor:
        """States (n, W, E) of sequences (n,) before the first step."""
        return self.embed(self.queue.ids[example], self.queue.types[example], self.columns)

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
        config, context, queue = self.model.config, self.context, self.queue
        waiting = queue.head + self.done.cumsum(0) - 1
        admitted = self.done & (waiting < queue.count)
        busy = admitted | ~self.done
        example = torch.where(admitted, waiting, self.example)
        mask = self.columns < queue.lengths[example, None]
        if getattr(config, "attention", None) == "geometric":
            context = context._replace(attention_mask=mask)
        elif not config.is_causal:
            context = context._replace(attention_mask=as_implemented(config, mask[:, None, None], torch.float32))
        layout = PaddedLayout(config, self.strategy, mask, context)
        state, step, done = self.take(layout, *self.start(layout, self.embedded(example), admitted))
        self.answer(mask, state, torch.where(done & busy, example, WAITING))
        queue.head += admitted.sum()
        self.example.copy_(example)
        self.keep(state, step, done | ~busy)
        queue.left.copy_(queue.count - queue.head + (~self.done).sum())

    def answer(self, mask: torch.Tensor, state: Any, places: torch.Tensor) -> None:
        """Write logits and steps of all rows at these places (B,) of the results."""
        hidden, _, steps = self.strategy.output(state)
        depth = DepthOutput(torch.where(mask[..., None], hidden, 0.0))
        steps = self.step.new_full(mask.shape, self.max_depth) if steps is None else steps
        steps = torch.where(mask, steps, 0).amax(-1) if steps.dim() > 1 else steps
        logits = self.model.predict(self.model.model.pooled(depth, mask), steps)
        self.queue.logits.index_copy_(0, places, logits.to(self.queue.logits))
        self.queue.steps.index_copy_(0, places, steps)


class ClassifierPool:
    """Classifies any number of sequences with a model that iterates one block, in the steps that each one takes.

    A row of the pool whose sequence has halted takes the next one at once, so that time follows the mean of the steps
    rather than the largest number in a batch; the last ones continue in half as many rows, and so on. Answers are those
    of the model, as rows do not depend on each other. Sequences are sorted into rows of 8, 16, 32 ... columns.
    Iterations do not wait for the host: on a GPU several are one CUDA graph. Do not use it from several threads, and
    make a new one after changes of the config.

    Args:
        model: a sequence classifier in evaluation mode: `ut`, `gut`, `ndr` or `albert_recurrent`.
        rows: sequences that are computed together, at most.
        repeats: depth steps between two looks at whether any row is left.
        graph: whether to capture CUDA graphs; by default on a GPU.
        compiled: whether torch compiles them.
        options: of the model's calls, such as `max_depth`, `halting_threshold` or `exit_criterion`.

    Attributes:
        row_steps: depth steps that were taken so far, each of as many rows as were computed together.

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
        check_slots(model, rows, POOLED, "call the model itself")
        if not isinstance(model, ForSequenceClassification) or model.config.pair_encoding == "siamese":
            raise ValueError(
                f"the {type(model).__name__} does not answer for each sequence by itself: load it by "
                "AutoModelForSequenceClassification, with pair_encoding='joint'; or call the model itself"
            )
        graph = model.device.type == "cuda" if graph is None else graph
        self.model, self.most, self.repeats, self.row_steps = model, rows, repeats, 0
        self.make = partial(Rows, model, repeats=repeats, graph=graph, compiled=compiled, **options)
        self.queues: dict[int, Queue] = {}
        self.rows: dict[tuple[int, int], Rows] = {}
        # what options are wrong is said here, and rows are made when they are needed
        Slots(model, rows, **options)

    def rows_for(self, width: int, number: int) -> Rows:
        """The fewest rows, at most all, that hold so many sequences."""
        rows = self.most
        while number <= rows // 2 >= FEWEST_ROWS:
            rows //= 2
        if (width, rows) not in self.rows:
            self.rows[width, rows] = self.make(rows, self.queues[width])
        return self.rows[width, rows]

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
            queue = self.queues.setdefault(width, Queue(self.model, width))
            for which in (widths == width).nonzero().squeeze(-1).split(WAITING):
                queue.fill(ids[which, :width], types[which, :width], lengths[which])
                rows, late, left = None, LateValues(), [len(which)]
                while left != [0]:
                    before, rows = rows, self.rows_for(width, *left)
                    if before not in (rows, None):
                        rows.take_over(before)
                    rows.run()
                    self.row_steps += self.repeats * len(rows.step)
                    # known late, and then too large
                    left = late.poll(queue.left) or left
                logits[which], steps[which] = queue.logits[: len(which)], queue.steps[: len(which)]
        return RecurrentOutput(logits=logits, ponder_steps=steps)
