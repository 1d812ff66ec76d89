"""One evaluation of any model of this package on any data set, and the one loop over batches behind it.

Shapes: B examples of a batch, N of all, S tokens, T labelled tokens of an example or of all, L maximum depth steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from ..data.batches import token_counts
from ..inference.modes import inference_mode
from ..inference.processes import collected, dealt
from ..models.common.token_targets import NO_TARGET
from .answers import answers, mean_of_sequences
from .halting import (
    HaltingRecord,
    TokenKinds,
    halting_columns,
    halting_mass,
    halting_table,
    token_steps,
    unit_kind,
)
from .inference import LABELS, Batch, as_numpy, config_fields, has_labels, prepare_batch, progress_bar, token_mask
from .model_facts import stack_depths, stopping_rule, task_of
from .tables import join_batches

if TYPE_CHECKING:
    from datasets import Dataset

Item, Result = TypeVar("Item"), TypeVar("Result")
# columns of a data set that models read
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# columns of an evaluation's examples, besides steps and difficulty
SHOWN = ("answer", "label", "right", "confidence", "loss", "labelled", "right_tokens")


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


@dataclass(frozen=True)
class Evaluation:
    """What a model answers to examples, and when it stops.

    Attributes:
        task: the tag of its task on the Hub, such as "text-classification".
        examples: a row for each example in its order, with the columns of `answers` (lists of an example's labelled
            tokens, where each of them is answered for), the mean executed `steps`, and columns of difficulty.
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
    own = task_of(model)
    if own is None:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
    if task not in (None, own):
        raise ValueError(f"task is {task!r}, but {type(model).__name__} is for {own!r}: load a model for {task!r}")
    rows, columns = encoded_rows(dataset, difficulty)
    order = np.argsort(token_counts(rows), kind="stable")
    read = rows.select_columns([name for name in (*INPUTS, *LABELS) if name in rows.column_names])
    collate = data_collator or partial(padded_rows, pad_token_id=model.config.pad_token_id or 0)

    def batches() -> Iterator[Mapping[str, Any]]:
        for start in range(0, len(order), batch_size):
            batch = dict(collate(read.select(order[start : start + batch_size]).to_list()))
            if own == "text-generation" and not has_labels(batch):
                batch["labels"] = torch.as_tensor(batch["input_ids"]).masked_fill(~token_mask(batch), NO_TARGET)
            yield batch

    slices = {name: rows[name][:] for name in columns}
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold, "progress": progress}
    return evaluate_batches(model, batches(), slices=slices, order=order, **options)


def encoded_rows(dataset: Any, difficulty: Sequence[str] | None) -> "tuple[Dataset, list[str]]":
    """Encoded rows as plain data, and the columns of difficulty: those named, or those of numbers beside the inputs.

    Raises:
        ValueError: rows are not encoded, or a column of difficulty is not there.
    """
    from datasets import Dataset

    rows = (dataset if isinstance(dataset, Dataset) else Dataset.from_list(list(dataset))).with_format(None)
    columns, first = rows.column_names, next(iter(rows), {})
    if "input_ids" not in columns:
        raise ValueError(f"the data set has the columns {', '.join(columns)}: encode it, so that it has input_ids")
    if difficulty is None:
        difficulty = [name for name in columns if name not in LABELS and isinstance(first.get(name), Real)]
    for name in difficulty:
        if name not in columns:
            raise ValueError(f"difficulty is {name!r}: the data set has the columns {', '.join(columns)}")
    return rows, list(difficulty)


def evaluate_batches(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    slices: Mapping[str, Sequence] | None = None,
    order: np.ndarray | None = None,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    kinds: TokenKinds | None = None,
    progress: bool = False,
) -> Evaluation:
    """`evaluate` on batches; of two stacks the halting is the decoder's.

    Args:
        batches: padded inputs with labels, see `prepare_batch`.
        slices: column of difficulty -> a value for each example or, without `order`, for each unit that counts, which
            are labelled tokens where each of them is answered for.
        order: numbers (N,) of the examples of batches, if results are wanted in their order.
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
        columns, of_tokens, tokens, unit = answers(output, batch, config), {}, None, None
        answer_at = columns.pop("answer_at", None)
        if config.capabilities.halts:
            unit = unit_kind(output, config, stack)
            if batch.by_token:
                of_tokens = halting_of_tokens(model, output, batch, depth)
                columns["steps"] = mean_of_sequences(of_tokens["steps"], columns["labelled"])
            else:
                columns |= halting_columns(output, config, depth, stack)
            if answer_at is not None:
                steps = output.ponder_steps.cpu().numpy()
                columns["answer_steps"] = steps[np.arange(len(steps)), answer_at]
                tokens = token_steps(batch.inputs["input_ids"].cpu().numpy(), steps, kinds)
        return columns, of_tokens, tokens, unit

    found = each_batch(model, batches, of_batch, progress="evaluating" if progress else None)
    if not found:
        raise ValueError("there are no batches to evaluate on")
    columns, of_tokens, tokens, units = zip(*found, strict=True)
    columns, of_tokens, slices = join_batches(columns), join_batches(of_tokens), dict(slices or {})
    by_token, difficulty = "confidences" in columns, slices if order is not None else {}
    counts = columns.get("labelled")
    if by_token and not counts.any():
        raise ValueError("no token has a label: there is nothing to predict")
    if order is not None:
        if by_token:
            places = np.argsort(np.repeat(order, counts), kind="stable")
            of_tokens = {name: values[places] for name, values in of_tokens.items()}
            slices = {name: np.repeat(values, counts[np.argsort(order)]) for name, values in slices.items()}
        columns = {name: values[np.argsort(order)] for name, values in columns.items()}
    steps = [own for own in tokens if own is not None]
    units_of = {"unit": units[0], "tokens": pd.concat(steps) if steps else None, **options}
    record = HaltingRecord.of_run(config, recorded(columns, of_tokens, config), slices, **units_of)
    shown = {name: columns[name] for name in SHOWN if name in columns}
    examples = pd.DataFrame({**shown, "steps": columns.get("steps", float(depth)), **difficulty})
    return Evaluation(task_of(model), examples, record)


def recorded(columns: Mapping[str, np.ndarray], of_tokens: Mapping[str, np.ndarray], config: Any) -> dict[str, Any]:
    """The columns of a `HaltingRecord`, from those of examples and of labelled tokens."""
    if "confidences" in columns:
        names = {"label": "label", "prediction": "answer", "confidence": "confidences", "nll": "losses"}
        return {**{name: np.concatenate(columns[own]) for name, own in names.items()}, **of_tokens}
    found = {"label": columns["label"], "prediction": columns["answer"]}
    # a target is judged as a whole
    if "labelled" in columns and not config.capabilities.two_stacks:
        found |= {"labelled": columns["labelled"], "right": columns["right_tokens"]}
    return {**found, **{name: values for name, values in columns.items() if name not in SHOWN or name == "confidence"}}


def halting_of_tokens(model: Any, output: Any, batch: Batch, depth: int) -> dict[str, np.ndarray]:
    """Columns (T,) and (T, L + 1) of a `HaltingRecord`: labelled tokens, each with the halting of the unit it is in."""
    chosen = torch.as_tensor(batch.labels != NO_TARGET, device=output.ponder_steps.device)
    mask = token_mask(batch.inputs)
    steps = of_tokens(model, output, "ponder_steps", mask)[chosen].cpu().numpy()
    probabilities = as_numpy(of_tokens(model, output, "halting_probabilities", mask)[chosen])
    return {
        "steps": steps.astype(np.float64),
        "deepest": steps,
        "forced": (steps == depth).astype(np.float64),
        "mass": halting_mass(probabilities, steps, stopping_rule(model.config)[0], depth),
        "step_counts": np.eye(depth + 1, dtype=np.int64)[steps],
        "ponder_cost": as_numpy(output.ponder_cost)[chosen.nonzero()[:, 0].cpu().numpy()],
    }


def answer_steps(model: Any, output: Any, batch: Batch) -> np.ndarray:
    """Mean depth steps (B,) of the labelled tokens of each sequence: others, such as those around it, answer nothing.

    Args:
        output: of a model that halts, for the inputs of `batch`.
    """
    chosen = batch.labels != NO_TARGET
    if not model.config.capabilities.stops_when_halted:
        return np.full(len(chosen), float(model.config.num_hidden_layers))
    steps = of_tokens(model, output, "ponder_steps", token_mask(batch.inputs)).cpu().numpy()
    return (steps * chosen).sum(1) / chosen.sum(1)


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

    rows = [row if "attention_mask" in row else {**row, "attention_mask": ones_like(row["input_ids"])} for row in rows]
    fills = {"input_ids": pad_token_id, "labels": NO_TARGET, "shift_labels": NO_TARGET}
    found = {name: padded([row[name] for row in rows], fills.get(name, 0)) for name in rows[0]}
    # as transformers' collators have it
    return {"labels" if name == "label" else name: values for name, values in found.items()}


def ones_like(ids: Sequence) -> list:
    """Ones in the place of the numbers of a list of lists."""
    return [ones_like(part) if isinstance(part, Sequence) else 1 for part in ids]
