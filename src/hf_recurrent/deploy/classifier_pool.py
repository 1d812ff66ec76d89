"""Classification of many sequences in a pool of rows, which others take as soon as their own have halted.

Shapes: N sequences of at most S tokens, B rows of W columns, E width, L maximum of steps, C labels.
"""

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from ..models.base.outputs import RecurrentOutput
from ..models.depth.layouts import PaddedLayout
from ..models.depth.loop import DepthOutput
from ..models.heads.classification import ForSequenceClassification
from ..models.ops.attention import NO_ROTATIONS, PaddedContext
from ..models.ops.graphs import capturing
from ..models.ops.masks import as_implemented
from ..models.ops.positions import sinusoids, tokens_first
from .cuda_graphs import repeated
from .slots import DepthSteps, Late, check_slots, merged, overwrite

# those whose sequences begin with an embedding and end with a pooling
POOLED = ("ut", "gut", "ndr", "albert_recurrent")
SMALLEST_WIDTH = 8


class Rows:
    """Rows of one width, and the sequences that wait for them.

    Args:
        capacity: sequences that may wait.
        repeats: depth steps of a replay.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        depth: DepthSteps,
        number: int,
        width: int,
        capacity: int,
        repeats: int,
        graph: bool,
    ):
        self.model, self.depth, device = model, depth, model.device
        self.capacity, self.repeats, self.columns = capacity, repeats, torch.arange(width, device=device)

        def counts(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        # waiting sequences; how many there are, the first one that waits, and rows and sequences left
        self.ids, self.types, self.lengths = counts(capacity, width), counts(capacity, width), counts(capacity)
        self.count, self.head, self.left = counts(), counts(), counts(1)
        # of each row the sequence, its tokens and steps, and whether another may take it
        self.example, self.step, self.length = counts(number), counts(number), counts(number) + 1
        self.done = torch.ones(number, dtype=torch.bool, device=device)
        # results, and a place for those of no sequence
        by_token = (width,) if depth.strategy.token_units or model.config.is_causal else ()
        self.steps = counts(capacity + 1, *by_token)
        self.logits: torch.Tensor | None = None
        self.state: NamedTuple | None = None
        with torch.no_grad(), capturing():
            self.context = self.shared_context(self.embedded(self.ids[:1], self.types[:1]))
        repeated(self.iterate, device, False)()
        self.run = repeated(self.iterate_all, device, graph)

    def shared_context(self, hidden: torch.Tensor) -> Any:
        """Inputs of attention that all rows share, by one of these states (1, W, E)."""
        if self.model.config.model_type == "albert_recurrent":
            return PaddedContext(None, NO_ROTATIONS)
        return self.model.model.context(hidden, torch.ones_like(self.ids[:1], dtype=torch.bool), self.depth.call)

    def embedded(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        """States (n, W, E) before the first step."""
        base, config = self.model.model, self.model.config
        hidden = base.embedded(ids, None, types)
        if config.model_type == "albert_recurrent":
            return base.embedding_proj(base.embedding_norm(hidden + base.embed_positions(self.columns)))
        if getattr(config, "attention", None) == "absolute":
            return hidden + sinusoids(self.columns, hidden.shape[-1]).to(hidden.dtype)
        return hidden

    def iterate_all(self) -> None:
        for _ in range(self.repeats):
            self.iterate()

    def iterate(self) -> None:
        """Fill the rows that are free, take a depth step of all, and write what those that are done answer."""
        depth, strategy, config = self.depth, self.depth.strategy, self.model.config
        waiting = self.head + self.done.cumsum(0) - 1
        admitted = self.done & (waiting < self.count)
        busy, chosen = admitted | ~self.done, waiting.clamp(0, self.capacity - 1)
        length = torch.where(admitted, self.lengths[chosen], self.length)
        mask, context = self.columns < length[:, None], self.context
        if not config.is_causal:
            seen = mask if getattr(config, "attention", None) == "geometric" else mask[:, None, None]
            seen = seen if seen is mask else as_implemented(config, seen, torch.float32)
            context = context._replace(attention_mask=seen)
        layout = PaddedLayout(config, strategy, mask, context)
        state = depth.start(layout, self.embedded(self.ids[chosen], self.types[chosen]))
        state = state if self.state is None else merged(admitted, state, self.state)
        state, step, done = depth.take(layout, state, torch.where(admitted, 0, self.step))
        example, done = torch.where(admitted, chosen, self.example), done | ~busy
        self.answer(layout, state, torch.where(done & busy, example, self.capacity))
        self.head += admitted.sum()
        overwrite((self.example, self.step, self.length, self.done), (example, step, length, done))
        self.left.copy_(self.count - self.head + (~done).sum())
        if self.state is None:
            # of tensors that are not used elsewhere, too
            self.state = tree_map_only(torch.Tensor, torch.clone, state)
        overwrite(self.state, state)

    def answer(self, layout: PaddedLayout, state: NamedTuple, places: torch.Tensor) -> None:
        """Write logits and steps of all rows at these places (B,) of the results."""
        hidden, _, steps = self.depth.strategy.output(state)
        hidden = torch.where(layout.mask[..., None], hidden, 0.0)
        if steps is None:
            steps = torch.full_like(places, self.depth.max_depth)
        steps = steps if steps.dim() == self.steps.dim() else steps[:, None].expand(-1, len(self.columns))
        logits = self.model.predict(self.model.model.pooled(DepthOutput(hidden), layout.mask), steps)
        if self.logits is None:
            self.logits = logits.new_zeros(self.capacity + 1, logits.shape[1])
        self.logits.index_copy_(0, places, logits)
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
        compiled: whether torch compiles the block.
        options: of the model's calls, such as `max_depth`, `halting_threshold` or `exit_criterion`.

    Attributes:
        iterations: depth steps of all rows that were taken so far.

    Raises:
        ValueError: a model or an option that is not supported.

    Example:
        >>> pool = ClassifierPool(model, rows=64)
        >>> pool(input_ids, attention_mask).logits
    """

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
        if rows < 1 or repeats < 1:
            raise ValueError(f"rows is {rows} and repeats {repeats}: pass at least 1 of each")
        self.model, self.rows, self.repeats = model, rows, repeats
        self.depth = DepthSteps(model, None, compiled, **options)
        self.late = model.device.type == "cuda"
        self.graph = self.late if graph is None else graph
        self.iterations, self.pools = 0, {}

    @torch.inference_mode(False)
    @torch.no_grad()
    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> RecurrentOutput:
        """`logits` (N, C) and `ponder_steps`, as the model has them, of N sequences (N, S).

        Raises:
            ValueError: as the model, of ids, a mask or types that do not fit.
        """
        mask, _ = self.model.model.check_call(input_ids, None, attention_mask, token_type_ids, None, None)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        columns, _ = tokens_first(mask)
        ids, types, lengths = input_ids.gather(1, columns), types.gather(1, columns), mask.sum(-1)
        number, longest = mask.shape
        logits: torch.Tensor | None = None
        steps = torch.zeros_like(ids)
        widths = 2 ** lengths.clamp_min(SMALLEST_WIDTH).log2().ceil().long()
        for width in widths.unique().tolist():
            which = (widths == width).nonzero().squeeze(-1)
            part = slice(min(width, longest))
            pool, found = self.pool(width, len(which)), slice(len(which))
            pool.ids[found, part], pool.types[found, part] = ids[which, part], types[which, part]
            pool.lengths[found] = lengths[which]
            pool.count.fill_(len(which))
            pool.head.fill_(0)
            late, left = Late(self.late), None
            while left != [0]:
                pool.run()
                self.iterations += self.repeats
                left = late.poll(pool.left)
            logits = pool.logits.new_zeros(number, pool.logits.shape[1]) if logits is None else logits
            logits[which] = pool.logits[found]
            by_token = pool.steps.dim() == 2
            steps[which, part] = pool.steps[found, part] if by_token else pool.steps[found, None]
        if not by_token:
            return RecurrentOutput(logits=logits, ponder_steps=steps[:, 0])
        by_column = torch.full_like(steps, -1)
        by_column[mask] = steps[torch.arange(longest, device=mask.device) < lengths[:, None]]
        return RecurrentOutput(logits=logits, ponder_steps=by_column)

    def pool(self, width: int, number: int) -> Rows:
        """Rows of a width, with room for so many sequences that wait."""
        pool = self.pools.get(width)
        if pool is None or pool.capacity < number:
            capacity = 1 << (number - 1).bit_length()
            pool = Rows(self.model, self.depth, self.rows, width, capacity, self.repeats, self.graph)
            self.pools[width] = pool
        return pool
