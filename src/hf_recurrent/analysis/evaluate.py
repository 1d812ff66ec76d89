"""One evaluation of any model of this package on any data set, and the one loop over batches behind it.

Shapes: B examples of a batch, N of all, S tokens, T labelled tokens of an example or of all, L maximum depth steps.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, product
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from ..data.batches import token_counts
from ..deploy.processes import collected, dealt, from_first, is_first
from ..models.ops.losses import NO_TARGET
from ..models.ops.modes import inference_mode
from .answers import (
    LABELS,
    SHIFTED,
    Batch,
    answers,
    answers_are_of_tokens,
    as_numpy,
    has_labels,
    join_batches,
    mean_of_sequences,
    prepare_batch,
    task_of,
    token_mask,
)
from .halting import (
    HaltingRecord,
    TokenKinds,
    columns_of_units,
    halting_columns,
    halting_mass,
    halting_table,
    stack_depths,
    stopping_rule,
    token_steps,
    unit_kind,
)

if TYPE_CHECKING:
    from datasets import Dataset

Item, Result = TypeVar("Item"), TypeVar("Result")
# of each setting the seconds of each batch in each repeat, (batches, repeats), and what was read, a row an example
Timed = dict[Hashable, tuple[np.ndarray, Any]]
# columns of a data set that models read
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# columns of an evaluation's examples, besides difficulty
SHOWN = ("answer", "label", "right", "confidence", "loss", "labelled", "right_tokens", "steps")
# in the place of a token id
PADDING = -1


@contextmanager
def attention_implementation(model: Any, implementation: str) -> Iterator[None]:
    """Another attention implementation, such as "eager", which returns maps; the model gets its own back afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def config_fields(model: torch.nn.Module, **fields: Any) -> Iterator[None]:
    """Other values of config fields, in every config that a part of the model reads; each gets its own back."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}.values()
    before = [(config, {name: getattr(config, name) for name in fields}) for config in configs]
    try:
        for config in configs:
            for name, value in fields.items():
                setattr(config, name, value)
        yield
    finally:
        for config, values in before:
            for name, value in values.items():
                setattr(config, name, value)


def progress_bar(items: Iterable, enabled: bool, description: str, unit: str) -> Iterable:
    """The items, with a progress bar if `enabled`, of several processes that of the first."""
    if not (enabled and is_first()):
        return items
    # tqdm looks for a notebook when it is imported
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit=unit)


def each_batch(
    model: Any,
    batches: Iterable[Item],
    of_batch: Callable[[Item], Result],
    fields: Mapping[str, Any] | None = None,
    progress: str | None = None,
) -> list[Result]:
    """The results of a function of a batch, in their order: of each process those for its share, shared with all.

    The model is in evaluation mode, and there are no gradients.

    Args:
        fields: values of config fields, instead of the model's.
        progress: text of a progress bar; None shows none.
    """
    with config_fields(model, **(fields or {})), inference_mode(model):
        shown = progress_bar(dealt(batches), progress is not None, progress or "", "batch")
        return collected([of_batch(batch) for batch in shown])


def timed_in_turn(
    model: Any,
    settings: Mapping[Hashable, Mapping[str, Any]],
    batches: Sequence[Batch],
    repeats: int,
    read: Callable[[Batch, Any], Mapping[str, np.ndarray]] | None = None,
    progress: bool = False,
) -> Timed:
    """Time a model with each of several settings.

    Settings take turns at every batch, so that a slow spell of the machine falls on all of them alike. Of several
    processes the first one measures.

    Args:
        settings: name -> values of config fields.
        read: columns of a batch and the model's output, read once for each batch; its time does not count.
    """
    device = next(model.parameters()).device

    def measured() -> Timed:
        seconds = {name: np.zeros((len(batches), repeats)) for name in settings}
        results: dict[Hashable, list[Mapping[str, np.ndarray]]] = {name: [] for name in settings}
        turns = list(product(range(repeats), range(len(batches))))
        for turn, place in progress_bar(turns, progress, "timing", "batch"):
            for name, fields in settings.items():
                with config_fields(model, **fields):
                    start = time.perf_counter()
                    output = model(**batches[place].inputs)
                    # CUDA calls return before the work is done
                    if device.type == "cuda":
                        torch.cuda.synchronize(device)
                    seconds[name][place, turn] = time.perf_counter() - start
                    if read is not None and turn == 0:
                        results[name].append(read(batches[place], output))
        return {
            name: (seconds[name], pd.DataFrame(join_batches(found)) if found else None)
            for name, found in results.items()
        }

    with inference_mode(model):
        return from_first(measured)


def median_seconds(seconds: np.ndarray) -> float:
    """Seconds of a pass over all batches, of each of which the median repeat counts: (batches, repeats)."""
    return float(np.median(seconds, axis=1).sum())


@dataclass(frozen=True)
class Evaluation:
    """What a model answers to examples, and when it stops.

    Attributes:
        task: the tag of its task on the Hub, such as "text-classification".
        examples: a row for each example in its order, with the columns of `answers` (lists of an example's labelled
            tokens, where each of them is answered for), the mean executed `steps`, and columns of difficulty with
            other names.
        record: of the halting units, from which `table` is made: where each labelled token is answered for, its
            examples are these tokens, with their negative log-likelihoods `nll`.
    """

    task: str
    examples: pd.DataFrame
    record: HaltingRecord

    @cached_property
    def table(self) -> dict[str, Any]:
        """Accuracy and steps, overall and by difficulty, see `halting_table`."""
        return halting_table(self.record)


def evaluate(
    model: Any,
    dataset: "Dataset",
    task: str | None = None,
    *,
    difficulty: Sequence[str] | None = None,
    batch_size: int = 32,
    data_collator: Callable[[list[dict[str, Any]]], Mapping[str, Any]] | None = None,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a model of this package on encoded examples.

    Args:
        model: with the head of its task. It is evaluated as it is: by its own halting or exit criterion, and at its own
            precision.
        dataset: as a `Trainer` takes it: rows with `input_ids` and `labels` (of a causal language model the inputs, if
            there are none; of question answering `start_positions` and `end_positions`), or a list of such rows.
        task: the tag of the task, as a check; None: that of the model.
        difficulty: columns by which results are told apart; None: all columns of numbers that the model does not read.
        batch_size: examples in a batch. They are sorted by length; results are in the order of the data set.
        data_collator: makes padded batches of rows; None: padding on the right.
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.

    Raises:
        ValueError: the model is for another task, the rows are not encoded or have no labels, or a column is not there.
    """
    from datasets import Dataset

    own = task_of(model)
    if own is None:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
    if task not in (None, own):
        raise ValueError(f"task is {task!r}, but {type(model).__name__} is for {own!r}: load a model for {task!r}")
    rows = (dataset if isinstance(dataset, Dataset) else Dataset.from_list(list(dataset))).with_format(None)
    present, first = rows.column_names, next(iter(rows), {})
    if difficulty is None:
        difficulty = [name for name in present if name not in LABELS and isinstance(first.get(name), Real)]
    for name in ("input_ids", *difficulty):
        if name not in present:
            reason = "encode it, so that it has input_ids" if name == "input_ids" else f"difficulty is {name!r}"
            raise ValueError(f"the data set has the columns {', '.join(present)}: {reason}")
    counts, names = token_counts(rows), [name for name in (*INPUTS, *LABELS) if name in present]
    if not counts.all():
        raise ValueError(f"row {int(counts.argmin())} has no tokens: leave it out")
    for name in names:
        if isinstance(first.get(name), str):
            raise ValueError(f"{name} is {first[name]!r:.60}: pass numbers, as a model reads them")
    order, read = np.argsort(counts, kind="stable"), rows.select_columns(names)
    collate = data_collator or partial(padded_rows, pad_token_id=model.config.pad_token_id or 0)

    def batches() -> Iterator[Mapping[str, Any]]:
        for start in range(0, len(order), batch_size):
            batch = dict(collate(read.select(order[start : start + batch_size]).to_list()))
            if own == "text-generation" and not has_labels(batch):
                batch["labels"] = torch.as_tensor(batch["input_ids"]).masked_fill(~token_mask(batch), NO_TARGET)
            yield batch

    slices = {name: np.asarray(rows[name][:])[order] for name in difficulty}
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold, "progress": progress}
    found = evaluate_batches(model, batches(), difficulty=slices, **options)
    # a record has a row for each labelled token, where these are answered for
    units = found.examples["answer"].map(len) if answers_are_of_tokens(found.examples) else 1
    places = np.argsort(np.repeat(order, units), kind="stable")
    examples = found.examples.take(np.argsort(order)).reset_index(drop=True)
    return replace(found, examples=examples, record=found.record.taken(places))


def evaluate_batches(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    slices: Mapping[str, Sequence] | None = None,
    difficulty: Mapping[str, np.ndarray] | None = None,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    kinds: TokenKinds | None = None,
    progress: bool = False,
) -> Evaluation:
    """`evaluate` on batches, in their order; of two stacks the halting is the decoder's.

    Args:
        batches: padded inputs with labels, see `prepare_batch`.
        slices: column of difficulty -> a value for each unit that counts: an example or, where each labelled token is
            answered for, such a token.
        difficulty: further columns -> a value for each example.
        kinds: kinds of tokens to tell apart in the halting statistics of a language model.

    Raises:
        ValueError: there are no batches, they have no labels, or a slice column does not fit them.
    """
    config, options = model.config, {"max_depth": max_depth, "halting_threshold": halting_threshold}
    stack, most_steps = list(stack_depths(config).items())[-1]
    depth = most_steps if max_depth is None else max_depth

    def of_batch(given: Mapping[str, Any]) -> tuple:
        batch = prepare_batch(model, given)
        output = model(**batch.inputs, output_halting=True, **options)
        examples = answers(output, batch, config)
        answer_at, unit, tokens = examples.pop("answer_at", None), None, []
        record = recorded(examples, config)
        if config.capabilities.halts:
            unit = unit_kind(output, config, stack, choices=model.answer_head().answers == "choice")
            if batch.by_token:
                record |= halting_of_tokens(model, output, batch, depth)
                examples["steps"] = mean_of_sequences(record["steps"], examples["labelled"])
            else:
                record |= halting_columns(output, config, depth, stack)
                examples["steps"] = record["steps"]
            if answer_at is not None:
                steps = output.ponder_steps.cpu().numpy()
                record["answer_steps"] = steps[np.arange(len(steps)), answer_at]
                tokens = [token_steps(batch.inputs["input_ids"].cpu().numpy(), steps, kinds)]
        return examples, record, tokens, unit

    found = each_batch(model, batches, of_batch, progress="evaluating" if progress else None)
    if not found:
        raise ValueError("there are no batches to evaluate on")
    parts, records, tokens, (unit, *_) = zip(*found, strict=True)
    examples, columns = join_batches(parts), join_batches(records)
    if not len(columns["label"]):
        raise ValueError("no token has a label: there is nothing to predict")
    difficulty = difficulty or {}
    counts = examples["labelled"] if "confidences" in examples else 1
    units = {**(slices or {}), **{name: np.repeat(values, counts) for name, values in difficulty.items()}}
    steps = pd.concat(chain(*tokens)) if tokens[0] else None
    record = HaltingRecord.of_run(config, columns, units, unit=unit, tokens=steps, **options)
    examples.setdefault("steps", float(depth))
    shown = {name: examples[name] for name in SHOWN if name in examples}
    # answers stand first, and win over columns of the same names
    frame = pd.DataFrame({**shown, **difficulty, **shown})
    return Evaluation(task_of(model), frame, record)


def recorded(examples: Mapping[str, np.ndarray], config: Any) -> dict[str, np.ndarray]:
    """The columns of a `HaltingRecord`, from those of `answers`."""
    names = {"label": "label", "prediction": "answer", "confidence": "confidence"}
    if "confidences" in examples:
        names |= {"confidence": "confidences", "nll": "losses"}
        return {name: np.concatenate(examples[own]) for name, own in names.items()}
    # a target is judged as a whole
    if "labelled" in examples and not config.capabilities.two_stacks:
        names |= {"labelled": "labelled", "right": "right_tokens"}
    return {name: examples[own] for name, own in names.items() if own in examples}


def halting_of_tokens(model: Any, output: Any, batch: Batch, depth: int) -> dict[str, np.ndarray]:
    """Columns (T,) and (T, L + 1) of a `HaltingRecord`: labelled tokens, each with the halting of the unit it is in."""
    chosen, mask = (
        torch.as_tensor(batch.labels != NO_TARGET, device=output.ponder_steps.device),
        token_mask(batch.inputs),
    )
    steps = of_tokens(model, output, "ponder_steps", mask)[chosen].cpu().numpy()
    probabilities = as_numpy(of_tokens(model, output, "halting_probabilities", mask)[chosen])
    mass = halting_mass(probabilities, steps, stopping_rule(model.config)[0], depth)
    cost = as_numpy(output.ponder_cost)[chosen.nonzero()[:, 0].cpu().numpy()]
    return columns_of_units(steps, mass, np.arange(len(steps)), cost)


def of_tokens(model: Any, output: Any, name: str, mask: torch.Tensor) -> torch.Tensor:
    """A field of an output, such as `ponder_steps`, for each token instead of each halting unit: (B, S, ...).

    Args:
        mask: (B, S) bool, of the inputs.
    """
    by_token = output["ponder_steps"].shape == mask.shape
    return output[name] if by_token else model.base_model.spread_over_tokens(output[name], mask)


def padded_rows(rows: Sequence[Mapping[str, Any]], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Encoded rows as a batch, padded on the right; lists of choices are padded to one length."""

    def padded(values: list[Any], fill: int) -> torch.Tensor:
        if not isinstance(values[0], Sequence):
            return torch.tensor(values)
        if isinstance(values[0][0], Sequence):
            return padded([part for parts in values for part in parts], fill).unflatten(0, (len(values), -1))
        return pad_sequence(list(map(torch.tensor, values)), batch_first=True, padding_value=fill)

    fills = {"input_ids": PADDING, "labels": NO_TARGET, SHIFTED: NO_TARGET}
    found = {name: padded([row[name] for row in rows], fills.get(name, 0)) for name in rows[0]}
    is_token = found["input_ids"] != PADDING
    found = {"attention_mask": is_token.long(), **found, "input_ids": found["input_ids"].where(is_token, pad_token_id)}
    # as transformers' collators have it
    return {"labels" if name == "label" else name: values for name, values in found.items()}
