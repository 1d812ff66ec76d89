"""Many examples through a model whose examples halt at different depths, with the batch of every step full.

Shapes: N examples of a window, S tokens of one, T of all; n examples of a batch, W tokens of the longest; E width.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ..models.common.exit_criteria import EXIT_ARGUMENTS, ExitOptions, check_whole
from ..models.common.fields import shown
from ..models.common.head_options import DEPTH_ARGUMENTS
from ..models.common.validation import check_halting_threshold, is_nan, refuse
from ..models.engine.base_model import ForwardCall
from ..models.engine.early_exit import exit_indicator
from .depth_pool import DepthPool
from .examples import Window, groups, sent, windows
from .modes import inference_mode

# admitting examples costs about a tenth of a step: it pays from this share of a batch on
MIN_SHARE_TO_ADMIT = 1 / 16
# halted tokens keep their places in attention's rectangle: so many for each token of a batch
PLACES_PER_TOKEN = 4
# a window's final states are kept until it is done
BATCHES_PER_WINDOW = 32


class ExampleOutput(NamedTuple):
    """A model's output for one example; None where it has none.

    Attributes:
        logits: (C,) of a classifier, (S, V) of a causal language model.
        pooler_output: (F,) of a base model.
        last_hidden_state: (S, E) of a base model.
        ponder_cost: () expected depth.
        ponder_steps: executed depth steps, () of the example, (S,) of its tokens, or of its chunks or sentences.
        halting_probabilities: with `output_halting` (L,) of the example or (S, L) of its tokens, as in model outputs.
    """

    logits: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    ponder_cost: torch.Tensor | None = None
    ponder_steps: torch.Tensor | None = None
    halting_probabilities: torch.Tensor | None = None


class FinalStates(NamedTuple):
    """Results of a window: states (T, E) of all tokens; the others of U units, its N examples or T tokens."""

    hidden: torch.Tensor
    cost: torch.Tensor  # (U,)
    steps: torch.Tensor  # (U,)
    probabilities: torch.Tensor | None  # (U, L)
    by_token: bool  # whether the units are tokens


def is_recurrent(model: Any) -> bool:
    """Whether a model is of this package, or of the code that its checkpoints carry."""
    return hasattr(getattr(model, "base_model", None), "can_refill")


def answers_in_batches(model: Any) -> bool:
    """Whether a model chooses a span or one of several sequences, for which a `DepthBatcher` has no outputs."""
    return model is not model.base_model and model.answer_head().answers in ("span", "choice")


class DepthBatcher:
    """Runs a model over examples, and refills the batch at every depth step.

    A plain batch waits for its deepest example. Here examples that have halted leave, and waiting ones take their
    places, so that every step is taken by a full batch. Results equal those of the plain forward pass, in the order of
    the examples. Models that cannot be refilled (of fixed depth, that read in chunks, of pairs that are encoded apart,
    or whose halted tokens go on) run in plain batches of similar lengths.

        batcher = DepthBatcher(model)
        for output in batcher({"input_ids": ids} for ids in tokenizer(texts)["input_ids"]):
            print(output.logits.argmax(), output.ponder_steps)

    Args:
        model: a base model, sequence classifier or causal language model of this package.
        batch_tokens: the most tokens whose steps are computed together, but for an example that is longer. Attention
            is over at most four times as many places, with those of padding and of tokens that have halted.
        output_halting: whether outputs have halting probabilities.
        options: `max_steps`, `halting_threshold`, `exit_criterion`, `exit_threshold`, `exit_patience`, `min_steps` of
            the forward pass.

    Raises:
        ValueError: `batch_tokens` below 1, a model of two stacks, that chooses spans or sequences, or of another
            package, or an option that the model cannot take.
        TypeError: an unknown option.
    """

    def __init__(self, model: Any, batch_tokens: int = 8192, output_halting: bool = False, **options: Any):
        if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int) or batch_tokens < 1:
            raise ValueError(f"batch_tokens is {shown(batch_tokens)}: pass a whole number of tokens, 1 or more")
        for name in options.keys() - {*DEPTH_ARGUMENTS, *EXIT_ARGUMENTS}:
            raise TypeError(f"DepthBatcher() got an unexpected option {name!r}")
        if not is_recurrent(model):
            raise ValueError(f"model is a {type(model).__name__}: pass a model of this package")
        if model.config.is_encoder_decoder:
            raise ValueError(f"model is a {type(model).__name__}, which has two stacks: call it on batches")
        if answers_in_batches(model):
            raise ValueError(f"model is a {type(model).__name__}, which chooses a span or sequence: call it on batches")
        self.model, self.base = model, model.base_model
        self.batch_tokens, self.output_halting, self.options = batch_tokens, output_halting, options
        self.is_language_model = hasattr(model, "predict")
        with inference_mode(model):
            self.call()

    def call(self) -> ForwardCall:
        """The choices of a forward pass."""
        head = self.model.answer_head() if self.model is not self.base else None
        max_steps, threshold = (self.options.get(name) for name in DEPTH_ARGUMENTS)
        check_whole(max_steps, "max_steps")
        if threshold is not None:
            check_halting_threshold(threshold)
        exits = ExitOptions(*(self.options.get(name) for name in EXIT_ARGUMENTS))
        rule = self.base.resolve_exit(exits, max_steps, threshold, head)
        return ForwardCall(
            max_steps=max_steps,
            halting_threshold=threshold,
            record_halting=self.output_halting,
            record_states=False,
            pool=True,
            cache=None,
            exit=rule,
            head=head,
            features=self.base.features,
        )

    def can_refill(self, call: ForwardCall) -> bool:
        """Whether examples or their tokens may leave early in such a forward pass, so that others take their places."""
        encodes_apart = call.head is not None and call.head.joined is not None
        return not encodes_apart and self.base.can_refill(call)

    def __call__(self, examples: Iterable[Mapping[str, Any]]) -> Iterator[ExampleOutput]:
        """The output of each example.

        Args:
            examples: mappings with `input_ids` (S,) and perhaps `attention_mask`, whose tokens alone are read, and
                `token_type_ids`.

        Raises:
            ValueError: an example without tokens, or with fields of different lengths; or as the model.
        """
        with inference_mode(self.model):
            call = self.call()
            refills = self.can_refill(call)
        # logits of all tokens are too many to keep
        num_batches = 1 if self.is_language_model and not refills else BATCHES_PER_WINDOW
        for window in windows(examples, num_batches * self.batch_tokens, self.base.device):
            if not refills:
                yield from self.plain(window)
                continue
            with inference_mode(self.model):
                final = self.final_states(window, call)
            given = np.argsort(window.order)
            for rows in groups(window.lengths, given, self.batch_tokens):
                with inference_mode(self.model):
                    outputs = self.outputs(window, rows, final)
                yield from outputs

    def final_states(self, window: Window, call: ForwardCall) -> FinalStates:
        """Final states of a window's tokens, by refilled depth steps."""
        base, types = self.base, window.token_type_ids
        ids = window.input_ids
        base.check_call(
            ids[None], None, None, None, call.max_steps, token_type_ids=None if types is None else types[None]
        )
        length, number = int(window.lengths[0]), len(window.lengths)
        pool = DepthPool(base, call, length)
        starts = sent(torch.from_numpy(window.starts), ids.device)
        by_token = pool.strategy.token_units
        cost = torch.empty(len(ids) if by_token else number, device=ids.device)
        steps = torch.empty_like(cost, dtype=torch.long)
        hidden: torch.Tensor | None = None
        ends, first = window.starts + window.lengths, 0
        while first < number or pool.num_tokens:
            stop = self.next_row(window, ends, first, pool)
            if stop > first:
                rows, tokens = np.arange(first, stop), slice(int(window.starts[first]), int(ends[stop - 1]))
                mask = window.mask(rows)
                own_types = None if types is None else types[tokens]
                pool.admit(ids[tokens], own_types, mask, torch.arange(first, stop, device=ids.device))
                first = stop
            for piece in pool.step():
                tokens = piece.units if piece.tokens is None else piece.tokens
                places = starts[tokens // length] + tokens % length
                if hidden is None:
                    hidden = piece.hidden_states.new_empty(len(ids), piece.hidden_states.shape[-1])
                hidden.index_copy_(0, places, piece.hidden_states)
                units = places if by_token else piece.units
                cost.index_copy_(0, units, piece.ponder_cost)
                steps.index_copy_(0, units, piece.steps)
        probabilities = None
        if self.output_halting and call.exit is not None:
            probabilities = exit_indicator(steps, pool.max_steps)
        elif self.output_halting:
            probabilities = cost.new_zeros(len(cost), pool.max_steps)
            for units, taken, values in pool.decisions:
                units = starts[units // length] + units % length if by_token else units
                probabilities.index_put_((units, taken), values)
        return FinalStates(hidden, cost, steps, probabilities, by_token)

    def next_row(self, window: Window, ends: np.ndarray, first: int, pool: DepthPool) -> int:
        """The end of the examples from `first` on that there is room for."""
        room = self.batch_tokens - pool.num_tokens
        if first == len(ends) or (pool.num_tokens and room < self.batch_tokens * MIN_SHARE_TO_ADMIT):
            return first
        stop = int(np.searchsorted(ends, window.starts[first] + room, side="right"))
        width = pool.width or window.lengths[first]
        most = (PLACES_PER_TOKEN * self.batch_tokens - pool.num_places) // width
        return max(min(stop, first + int(most)), first + (pool.num_tokens == 0))

    def outputs(self, window: Window, rows: np.ndarray, final: FinalStates) -> list[ExampleOutput]:
        """Outputs of the examples `rows` (n,) of a window."""
        mask = window.mask(rows)
        places = window.places(rows, mask)
        hidden = torch.where(mask[..., None], final.hidden[places], 0.0)
        by_token = final.by_token
        units = places if by_token else sent(torch.from_numpy(rows), mask.device)
        cost, steps = final.cost[units], final.steps[units]
        of_examples: dict[str, torch.Tensor] = {
            "ponder_cost": (cost * mask).sum(-1) / mask.sum(-1) if by_token else cost
        }
        of_tokens: dict[str, torch.Tensor] = {}
        of_units = of_tokens if by_token else of_examples
        of_units["ponder_steps"] = steps
        if final.probabilities is not None:
            of_units["halting_probabilities"] = final.probabilities[units]
        if self.is_language_model:
            of_tokens["logits"] = self.model.predict(self.base.row_states(hidden, mask))
        elif self.model is not self.base:
            of_examples["logits"] = self.model.classify(self.base.features(hidden, mask), steps)
        else:
            of_examples["pooler_output"] = self.base.features(hidden, mask)
            of_tokens["last_hidden_state"] = self.base.row_states(hidden, mask)
        for logits in (values["logits"] for values in (of_examples, of_tokens) if "logits" in values):
            refuse(is_nan("the logits are", logits))
        found = {name: values.unbind() for name, values in of_examples.items()}
        lengths = window.lengths[rows].tolist()
        for name, values in of_tokens.items():
            found[name] = [own[:length] for own, length in zip(values, lengths, strict=True)]
        return [ExampleOutput(**dict(zip(found, values, strict=True))) for values in zip(*found.values(), strict=True)]

    def plain(self, window: Window) -> list[ExampleOutput]:
        """Outputs of a window's examples, by batches of similar lengths."""
        found: dict[int, ExampleOutput] = {}
        for rows in groups(window.lengths, np.arange(len(window.lengths)), self.batch_tokens):
            mask = window.mask(rows)
            places = window.places(rows, mask)
            inputs = {"input_ids": window.input_ids[places], "attention_mask": mask.long()}
            if window.token_type_ids is not None:
                inputs["token_type_ids"] = window.token_type_ids[places]
            with inference_mode(self.model):
                output = self.model(**inputs, output_halting=self.output_halting, **self.options)
            for index, row in enumerate(rows):
                fields = {name: output.get(name) for name in ExampleOutput._fields}
                own = {name: None if values is None else values[index] for name, values in fields.items()}
                found[window.order[row]] = of_example(own, int(window.lengths[row]))
        return [found[place] for place in range(len(found))]


def of_example(fields: dict[str, torch.Tensor | None], length: int) -> ExampleOutput:
    """The output of an example of a padded batch, without what is of padding: tokens, or chunks."""
    steps = fields["ponder_steps"]
    halted = None if steps is None or steps.dim() == 0 else steps >= 0

    def own(name: str, values: torch.Tensor) -> torch.Tensor:
        if name in ("ponder_steps", "halting_probabilities") and halted is not None:
            return values[halted]
        of_tokens = name == "last_hidden_state" or (name == "logits" and values.dim() == 2)
        return values[:length] if of_tokens else values

    return ExampleOutput(**{name: values if values is None else own(name, values) for name, values in fields.items()})
