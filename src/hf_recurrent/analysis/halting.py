"""When and why a model stops: from model outputs to a table.

Shapes: B batch, N examples, U halting units of an example (1, 2 for a siamese pair, S for token halting), S tokens,
K kinds of tokens, L maximum depth steps; state 0 is the input, state i the result of i depth steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from pandas.api.types import is_float_dtype

from ..files import plain
from ..inference.modes import inference_mode
from ..inference.processes import collected, dealt, of_any
from ..metrics.functional import accuracy, majority_accuracy, r_squared, step_summary
from ..models.common.outputs import RecurrentMultipleChoiceModelOutput
from .inference import (
    Batch,
    as_numpy,
    interleaved_seconds,
    mean_steps,
    predictions,
    predicts_tokens,
    prepare_batch,
    progress_bar,
    stack_output,
)
from .model_facts import MODEL, TOKEN_HALTING, adds_probabilities, stopping_rule
from .tables import join_batches, joint_counts, slice_frame, slice_table


class TokenKinds(NamedTuple):
    """Kinds of a benchmark's tokens: K `names`, and a function from ids (B, S) to numbers of kinds (B, S).

    Numbers below 0, such as those of padding, are of no kind.
    """

    names: tuple[str, ...]
    of: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class HaltingRecord:
    """Results of `collect_halting`.

    Fields:
        halting: the model's exit criterion or, if that is "learned", its halting strategy; "none" for a fixed depth.
        unit: what halts: "example", "sentence" (of a pair), "choice", "chunk", "token"; None for a fixed depth.
        max_depth: L, the maximum depth steps of the run.
        threshold: that of the run; None for a fixed depth, and for a criterion without.
        examples: a row for each example.
            `label`, `prediction`: class ids; names of all labels of an example that may have several; numbers of a
            regression; of a language model, token ids of the last labelled token. Of a classifier or language model
            also `confidence`, the probability of the prediction.
            Unless the depth is fixed, `steps`: executed depth steps, mean over the example's units; `deepest`: those of
            its deepest unit; `ponder_cost`: expected depth, in steps; `forced`: fraction of its units that ran all L
            steps without reaching the threshold.
            Of a language model, `labelled` and `right`: its tokens that have a label, and that were predicted;
            `answer_steps`: executed depth steps of the token from which the last labelled one is predicted.
        slices: a row for each example, and the columns that results are sliced by.
        mass: `(N, L + 1)` halting mass of each state, mean over the example's units; rows sum to 1.
        step_counts: `(N, L + 1)` numbers of the example's units that stopped after 0, ..., L steps.
        tokens: of a language model that halts, a row for each token: its `position`, its `steps` and, where kinds are
            told apart, its `kind` (none: not a number).
    """

    halting: str
    unit: str | None
    max_depth: int
    threshold: float | None
    examples: pd.DataFrame
    slices: pd.DataFrame = field(default_factory=pd.DataFrame)
    mass: np.ndarray | None = None
    step_counts: np.ndarray | None = None
    tokens: pd.DataFrame | None = None

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, np.ndarray], slices: Mapping[str, Sequence] | None = None, **fields: Any
    ) -> "HaltingRecord":
        """A record whose `examples`, `mass` and `step_counts` are `columns` of N values or rows each.

        Raises:
            ValueError: a slice column has not one value for each example.
        """
        columns = dict(columns)
        arrays = {name: columns.pop(name, None) for name in ("mass", "step_counts")}
        examples = pd.DataFrame(columns)
        return cls(examples=examples, slices=slice_frame(slices, len(examples)), **arrays, **fields)

    @classmethod
    def of_run(
        cls,
        config: Any,
        columns: Mapping[str, np.ndarray],
        slices: Mapping[str, Sequence] | None,
        unit: str | None,
        max_depth: int | None,
        halting_threshold: float | None,
        **fields: Any,
    ) -> "HaltingRecord":
        """`from_columns` of a run of a model, with its depth limit and threshold, or None for the configured ones.

        Args:
            unit: None where this process has run no batch.
        """
        rule, threshold = stopping_rule(config)
        return cls.from_columns(
            columns,
            slices,
            halting=rule,
            unit=of_any(unit),
            max_depth=config.num_hidden_layers if max_depth is None else max_depth,
            threshold=threshold if halting_threshold is None else halting_threshold,
            **fields,
        )

    @property
    def fixed_depth(self) -> bool:
        """Whether the model runs the same number of steps on every input."""
        return self.mass is None


def unit_kind(output: Any, config: Any, stack: str = MODEL) -> str:
    """What halts in a stack: "example", "sentence" (of a pair), "choice", "chunk" or "token".

    The tokens of a language model halt one by one, whatever their halting is computed from.
    """
    steps = stack_output(output, stack, "ponder_steps")
    if steps.dim() == 1:
        return "example"
    if steps.dim() == 2 and isinstance(output, RecurrentMultipleChoiceModelOutput):
        return "choice"
    if (
        config.capabilities.halting in TOKEN_HALTING
        or getattr(config, "counts_by_token", False)
        or (predicts_tokens(output) and steps.shape == output.logits.shape[:2])
    ):
        return "token"
    return "chunk" if config.capabilities.reads == "chunks" else "sentence"


def unit_mass(
    output: Any, config: Any, max_depth: int, stack: str = MODEL
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Halting units of a stack, from the output of a model that was called with `output_halting=True`.

    Args:
        max_depth: L.

    Returns:
        (B, U) bool, which units are no padding; of these, one after another, executed steps (n,) and mass (n, L + 1).
    """
    steps = stack_output(output, stack, "ponder_steps").cpu().numpy()
    probabilities = as_numpy(stack_output(output, stack, "halting_probabilities"))
    live = steps >= 0
    steps = steps[live]
    mass = halting_mass(probabilities[live], steps, stopping_rule(config)[0], max_depth)
    return live.reshape(len(live), -1), steps, mass


def halting_mass(
    probabilities: np.ndarray, steps: np.ndarray, halting: str = "global", max_depth: int | None = None
) -> np.ndarray:
    """Unconditional halting mass `(U, L + 1)` of the states 0..L.

    A unit that stopped after k steps gives state i < k the mass `p_i * prod_{j<i} (1 - p_j)` and state k,
    its last one, all that is left; the states after k get nothing. Under adaptive computation time probabilities are
    unconditional, and those of step i belong to the state after it.

    Args:
        probabilities: halting probabilities `(U, L)`, one for each step computed.
        steps: executed steps `(U,)`, in 0..L.
        halting: the model's halting strategy or exit criterion.
        max_depth: L, where a call had another depth than there are probabilities.
    """
    probabilities, steps = np.asarray(probabilities, dtype=np.float64)[:, :max_depth], np.asarray(steps)
    units, depth = probabilities.shape
    added = adds_probabilities(halting)
    if not added:
        left = np.cumprod(1 - probabilities, axis=1)
        probabilities = probabilities * np.pad(left, ((0, 0), (1, 0)), constant_values=1.0)[:, :depth]
    mass = np.zeros((units, 1 + max(depth, max_depth or 0)))
    states = np.arange(depth) + added
    mass[:, states] = np.where(states < steps[:, None], probabilities, 0.0)
    mass[np.arange(units), steps] = np.clip(1 - mass.sum(axis=1), 0.0, 1.0)
    return mass


def halting_columns(output: Any, config: Any, depth: int, stack: str = MODEL) -> dict[str, np.ndarray]:
    """Columns `(B,)` and `(B, L + 1)` of a `HaltingRecord` from one batch.

    Args:
        depth: L.
        stack: whose halting it is.

    Raises:
        ValueError: an example is all padding.
    """
    live, steps, mass = unit_mass(output, config, depth, stack)
    if not live.any(1).all():
        raise ValueError("an example has no halting unit: all its positions are padding")
    example = np.nonzero(live)[0]
    units = pd.DataFrame(np.column_stack([steps, steps == depth, mass])).groupby(example)
    means = units.mean().to_numpy()
    return {
        "steps": means[:, 0],
        "deepest": units[0].max().to_numpy(),
        "forced": means[:, 1],
        "mass": means[:, 2:],
        "step_counts": joint_counts(example, steps, (len(live), depth + 1)),
        # of several choices their mean
        "ponder_cost": as_numpy(stack_output(output, stack, "ponder_cost")).reshape(len(live), -1).mean(1),
    }


def collect_halting(
    model: torch.nn.Module,
    batches: Iterable[Mapping[str, Any]],
    *,
    slices: Mapping[str, Sequence] | None = None,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    kinds: TokenKinds | None = None,
    progress: bool = False,
) -> HaltingRecord:
    """Predictions of a model over `batches`, and when each example stopped.

    The prediction of a causal language model is that of the last labelled token.

    Args:
        model: a sequence classifier or causal language model with `config`; its training mode is restored afterwards.
        batches: a data loader or any iterable of batches with `labels`: `(B,)` classes, or `(B, S)` token ids aligned
            with `input_ids`, -100 where there is none.
        slices: column name -> one value per example, in the order of the batches.
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        kinds: kinds of tokens to tell apart in the halting statistics of a language model.
        progress: show a progress bar.

    Raises:
        ValueError: there are no batches, they have no labels, or a slice column does not fit them.
    """
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    config, unit, found = model.config, None, []
    depth = config.num_hidden_layers if max_depth is None else max_depth
    for given in progress_bar(dealt(batches), progress, "halting statistics", "batch"):
        batch, tokens = prepare_batch(model, given), None
        with inference_mode(model):
            output = model(**batch.inputs, output_halting=True, **options)
        columns = predictions(output, batch.labels, config)
        answer_at = columns.pop("answer_at", None)
        if config.capabilities.halts:
            unit = unit_kind(output, config)
            columns |= halting_columns(output, config, depth)
            if answer_at is not None:
                steps = output.ponder_steps.cpu().numpy()
                columns["answer_steps"] = steps[np.arange(len(steps)), answer_at]
                tokens = token_steps(batch.inputs["input_ids"].cpu().numpy(), steps, kinds)
        found.append((columns, tokens))
    found = collected(found)
    if not found:
        raise ValueError("no batches to collect halting statistics from")
    tokens = [own for _, own in found if own is not None]
    kept = pd.concat(tokens) if tokens else None
    return HaltingRecord.of_run(
        config, join_batches(columns for columns, _ in found), slices, unit, **options, tokens=kept
    )


def token_steps(input_ids: np.ndarray, steps: np.ndarray, kinds: TokenKinds | None) -> pd.DataFrame:
    """`HaltingRecord.tokens` of a batch: ids and executed steps (B, S), negative at padding."""
    live = steps >= 0
    # positions count from the first token, wherever the padding is
    tokens = pd.DataFrame({"position": (live.cumsum(1) - 1)[live], "steps": steps[live]})
    if kinds is None:
        return tokens
    return tokens.assign(kind=pd.Categorical.from_codes(np.maximum(kinds.of(input_ids)[live], -1), kinds.names))


def halting_table(record: HaltingRecord) -> dict[str, Any]:
    """The statistics of one evaluation that a card shows, as plain Python data without NaN.

    `steps` (mean, median, p95 over examples, each example being the mean over its units; max over units),
    `ponder_cost` (mean expected depth), `forced_halt_rate`, `halting_mass` (L + 1 values that sum to 1) and
    `steps_histogram` (L + 1 counts of units) are None for a model of fixed depth (`fixed_depth`).
    `slices` maps each column to its rows in order of difficulty and to `spearman`, the rank correlation of
    the examples' steps (see `difficulty_key`) with the column (None where undefined or not numeric).

    `accuracy` of a regression is the share of the labels' variance that is explained, 0 for the constant answer. That
    of a language model is that of each example's last labelled token. Its table and slices have two more
    keys: `labelled_tokens` (`n` and `accuracy` of all of them) and `answer_steps` (as `steps`, of the token from which
    the last labelled one is predicted), and the table has `tokens`, steps by position and kind of token
    (see `token_tables`; None for a fixed depth).
    """
    examples, fixed = record.examples, record.fixed_depth
    steps = None if fixed else examples.get("answer_steps", examples["steps"])
    results = _results(examples)
    table = {
        **{name: results.pop(name) for name in ("n", "accuracy", "majority_baseline")},
        "halting": record.halting,
        "unit": record.unit,
        "fixed_depth": fixed,
        "max_depth": record.max_depth,
        "threshold": record.threshold,
        "steps": results.pop("steps"),
        "ponder_cost": None if fixed else examples["ponder_cost"].mean(),
        "forced_halt_rate": results.pop("forced_halt_rate"),
        "halting_mass": None if fixed else record.mass.mean(axis=0),
        "steps_histogram": None if fixed else record.step_counts.sum(axis=0),
        "slices": {
            name: slice_table(values, lambda members: _results(examples.loc[members]), steps)
            for name, values in record.slices.items()
        },
        **results,
    }
    if "labelled" in examples:
        table["tokens"] = None if record.tokens is None else token_tables(record.tokens, record.max_depth)
    return plain(table)


def difficulty_key(table: Mapping[str, Any]) -> str:
    """The key of the steps that are compared with difficulty: `steps`, or `answer_steps` of a language model.

    The mean over all tokens of a string depends on its composition: more tokens to ignore, fewer steps. A column such
    as `distance` makes the last read hard.
    """
    return "answer_steps" if table.get("answer_steps") else "steps"


def _results(examples: pd.DataFrame) -> dict[str, Any]:
    """Accuracy and steps of all examples, or of those of a bucket."""
    fixed = "steps" not in examples
    results = {
        "n": len(examples),
        "accuracy": accuracy(examples["prediction"], examples["label"]),
        "majority_baseline": majority_accuracy(examples["label"]),
        "steps": None if fixed else step_summary(examples["steps"], examples["deepest"]),
        "forced_halt_rate": None if fixed else examples["forced"].mean(),
    }
    if is_float_dtype(examples["label"]):
        # of numbers the explained share of variance
        results |= {"accuracy": r_squared(examples["prediction"], examples["label"]), "majority_baseline": 0.0}
    if "labelled" in examples:
        labelled, right = examples["labelled"].sum(), examples["right"].sum()
        results["labelled_tokens"] = {"n": labelled, "accuracy": right / labelled}
        results["answer_steps"] = None if fixed else step_summary(examples["answer_steps"])
    return results


def token_tables(tokens: pd.DataFrame, max_depth: int) -> dict[str, dict[str, Any]]:
    """Steps by `position`, and by `kind` if kinds are told apart, each with `rows` as slices have them.

    A row holds `value` (label), `low` and `high` (positions, or None), `n` tokens, `steps` and `forced_halt_rate`.
    """

    def row(chosen: pd.Series) -> dict[str, Any]:
        steps = tokens["steps"][chosen]
        return {"n": len(steps), "steps": step_summary(steps), "forced_halt_rate": (steps == max_depth).mean()}

    # buckets have like numbers of positions, whatever the number of tokens
    places = pd.Series(range(tokens["position"].max() + 1))
    by_place = slice_table(places, lambda members: row(tokens["position"].isin(members)), None)
    tables = {"position": {"numeric": True, "rows": by_place["rows"]}}
    if "kind" in tokens:
        kinds = tokens["kind"].cat.remove_unused_categories().cat.categories
        rows = [{"value": kind, "low": None, "high": None, **row(tokens["kind"] == kind)} for kind in kinds]
        tables["kind"] = {"numeric": False, "rows": rows}
    return tables


def threshold_curve(
    model: torch.nn.Module, batches: Iterable[Mapping[str, Any]], thresholds: Sequence[float]
) -> list[dict[str, float]]:
    """Evaluate and time the model at each halting threshold, one row per threshold.

    A row holds `threshold`, `accuracy`, `mean_steps`, `mean_ponder_cost`, `seconds` of a pass over all batches, already
    on the device, and `relative_time`, these over those of the highest threshold. A model of fixed depth has no such
    threshold, nor has one that stops by an exit criterion: they give an empty list.
    """
    capabilities = model.config.capabilities
    if not capabilities.halts or stopping_rule(model.config)[0] != capabilities.halting:
        return []
    columns: dict[float, list[dict[str, np.ndarray]]] = {value: [] for value in thresholds}

    def read(threshold: float, batch: Batch, output: Any) -> None:
        found = predictions(output, batch.labels, model.config)
        steps, cost = mean_steps(output.ponder_steps, len(batch.labels)), as_numpy(output.ponder_cost)
        columns[threshold].append({**found, "steps": steps, "ponder_cost": cost})

    ways = {value: ({"halting_threshold": value}, lambda batch: model(**batch.inputs)) for value in thresholds}
    with inference_mode(model):
        prepared = [prepare_batch(model, batch) for batch in batches]
        seconds = {
            value: each.sum() for value, each in interleaved_seconds(model, ways, prepared, 1, read=read).items()
        }
    examples = {value: join_batches(found) for value, found in columns.items()}
    rows = [
        {
            "threshold": value,
            "accuracy": accuracy(found["prediction"], found["label"]),
            "mean_steps": found["steps"].mean(),
            "mean_ponder_cost": found["ponder_cost"].mean(),
            "seconds": seconds[value],
            "relative_time": seconds[value] / seconds[max(thresholds)],
        }
        for value, found in examples.items()
    ]
    return plain(rows)
