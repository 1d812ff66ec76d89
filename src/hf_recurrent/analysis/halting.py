"""When and why a model stops, and how that follows the difficulty of examples: from model outputs to a table.

Shapes: B batch, N examples, U halting units of an example (1, 2 for a siamese pair, S for token halting), S tokens,
K kinds of tokens, L maximum depth steps; state 0 is the input, state i the result of i depth steps.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype

from ..metrics.functional import accuracy, majority_accuracy, r_squared, spearman, step_summary
from ..models.config.exit_criteria import LEARNED
from ..models.depth.exit_criteria import ExitOptions, resolve_exit
from ..utils import plain
from .answers import DECODER, ENCODER, MODEL, as_numpy, predicts_tokens, stack_output

# in the place of a stack, and of a test split: all of them together
BOTH, ALL_TESTS = "both", "all tested splits"
# halting strategies by which every token halts by itself in any model
TOKEN_HALTING = ("token", "act", "act_universal")

# buckets of a difficulty: one for each value, or fewer
MAX_VALUES, MAX_BUCKETS = 12, 8
OTHER, EN_DASH = "other", "\u2013"


class TokenKinds(NamedTuple):
    """Kinds of a benchmark's tokens: K `names`, and a function from ids (B, S) to numbers of kinds (B, S).

    Numbers below 0, such as those of padding, are of no kind.
    """

    names: tuple[str, ...]
    of: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class HaltingRecord:
    """The halting of examples, and what is answered for them.

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
        max_depth: int | None,
        halting_threshold: float | None,
        **fields: Any,
    ) -> "HaltingRecord":
        """`from_columns` of a run of a model, with its depth limit and threshold, or None for the configured ones."""
        rule, threshold = stopping_rule(config)
        fields |= {"halting": rule, "max_depth": config.num_hidden_layers if max_depth is None else max_depth}
        fields["threshold"] = threshold if halting_threshold is None else halting_threshold
        return cls.from_columns(columns, slices, **fields)

    def taken(self, places: np.ndarray) -> "HaltingRecord":
        """The record of the examples at `places`, in their order; `tokens` stay as they are."""
        frames = {name: getattr(self, name).take(places).reset_index(drop=True) for name in ("examples", "slices")}
        arrays = {name: None if self.fixed_depth else getattr(self, name)[places] for name in ("mass", "step_counts")}
        return replace(self, **frames, **arrays)

    @property
    def fixed_depth(self) -> bool:
        """Whether the model runs the same number of steps on every input."""
        return self.mass is None


def unit_kind(output: Any, config: Any, stack: str = MODEL, choices: bool = False) -> str:
    """What halts in a stack: "example", "sentence" (of a pair), "choice" (of several), "chunk" or "token".

    The tokens of a language model halt one by one, whatever their halting is computed from.
    """
    steps = stack_output(output, stack, "ponder_steps")
    if steps.dim() == 1:
        return "example"
    if steps.dim() == 2 and choices:
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
    # of several choices their mean
    cost = as_numpy(stack_output(output, stack, "ponder_cost")).reshape(len(live), -1).mean(1)
    return columns_of_units(steps, mass, np.nonzero(live)[0], cost)


def columns_of_units(steps: np.ndarray, mass: np.ndarray, example: np.ndarray, cost: np.ndarray) -> dict[str, Any]:
    """`halting_columns` from steps (n,) and mass (n, L + 1) of units.

    Args:
        example: (n,) number of each unit's example.
        cost: (B,) the examples' ponder cost.
    """
    depth = mass.shape[1] - 1
    units = pd.DataFrame(np.column_stack([steps, steps == depth, mass])).groupby(example)
    means = units.mean().to_numpy()
    return {
        "steps": means[:, 0],
        "deepest": units[0].max().to_numpy(),
        "forced": means[:, 1],
        "mass": means[:, 2:],
        "step_counts": joint_counts(example, steps, (len(cost), depth + 1)),
        "ponder_cost": cost,
    }


def joint_counts(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Number of times that each (row, column) of a table of `shape` occurs in two arrays of indices `(n,)`."""
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


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
    table = {
        **_results(examples),
        "halting": record.halting,
        "unit": record.unit,
        "fixed_depth": fixed,
        "max_depth": record.max_depth,
        "threshold": record.threshold,
        "ponder_cost": None if fixed else examples["ponder_cost"].mean(),
        "halting_mass": None if fixed else record.mass.mean(axis=0),
        "steps_histogram": None if fixed else record.step_counts.sum(axis=0),
        "slices": {
            name: slice_table(values, lambda members: _results(examples.loc[members]), steps)
            for name, values in record.slices.items()
        },
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


def slice_frame(slices: Mapping[str, Sequence] | None, num_examples: int) -> pd.DataFrame:
    """Slice columns as a frame with a row for each example.

    Raises:
        ValueError: a column has not one value for each example.
    """
    columns = {name: np.asarray(values) for name, values in (slices or {}).items()}
    # frames would take None in a column of strings for NaN
    columns = {name: own if own.dtype.kind in "biuf" else own.astype(str) for name, own in columns.items()}
    return pd.DataFrame(columns, index=range(num_examples))


def slice_table(
    values: pd.Series, row: Callable[[pd.Index], Mapping[str, Any] | None], steps: pd.Series | None
) -> dict[str, Any]:
    """Statistics by the value of a column.

    `numeric`; `spearman`, the rank correlation of the examples' steps with the column (None where undefined or not
    numeric); and `rows`, in order of the values: each with its bucket's label as `value`, the numeric bounds `low` and
    `high` (None of names), and what `row` says of the examples of the bucket.

    Args:
        values: one for each example, in any index.
        row: function of the examples' index; a bucket of which it says nothing has no row.
        steps: of each example; None for a fixed depth.
    """
    numeric, rows = is_numeric(values), []
    for label, members in values.groupby(bucketize(values), observed=True):
        bounds = {name: getattr(members, how)() if numeric else None for name, how in (("low", "min"), ("high", "max"))}
        if found := row(members.index):
            rows.append({"value": label, **bounds, **found})
    return {
        "numeric": numeric,
        "spearman": spearman(steps, values) if numeric and steps is not None else None,
        "rows": rows,
    }


def is_numeric(values: pd.Series | np.ndarray) -> bool:
    """Whether a column can be ordered and correlated: integers and floats, not truth values or strings."""
    return values.dtype.kind in "iuf"


def bucketize(values: pd.Series | np.ndarray) -> pd.Categorical:
    """A column `(N,)` as readable buckets in order: one bucket per value while there are at most 12.

    Beyond that, numbers go into at most 8 buckets of about equal size, labelled with the smallest and largest
    value inside, and other values into the 11 most frequent ones plus "other".

    Raises:
        ValueError: a numeric column holds NaN or infinity.
    """
    values = np.asarray(values)
    if not is_numeric(values):
        return _named_buckets(pd.Series(values.astype(str)))
    values = pd.Series(values)
    if not np.isfinite(values).all():
        raise ValueError("a difficulty column must hold finite numbers")
    ranks = values.rank(method="dense")
    if ranks.max() > MAX_VALUES:
        # a value goes where the middle of its own rank interval lies: ties never straddle two buckets
        ranks = ((values.rank() - 0.5) / len(values) * MAX_BUCKETS).astype(int)
    bounds = values.groupby(ranks).agg(["min", "max"])
    return pd.Categorical.from_codes(pd.factorize(ranks, sort=True)[0], _range_labels(bounds.to_numpy().tolist()))


def _range_labels(bounds: list[tuple[float, float]]) -> list[str]:
    """Labels such as "11–20"; floats get as many digits as it takes to tell the buckets apart."""
    for digits in range(3, 18):
        edges = ([_format_number(value, digits) for value in pair] for pair in bounds)
        labels = [EN_DASH.join(dict.fromkeys(pair)) for pair in edges]
        if len(set(labels)) == len(labels):
            break
    return labels


def is_ordered(labels: Iterable[str]) -> bool:
    """Whether labels of buckets, such as "11–20", are those of numbers."""
    try:
        return all(math.isfinite(float(label.split(EN_DASH)[0])) for label in labels)
    except ValueError:
        return False


def _format_number(value: float, digits: int) -> str:
    if float(value).is_integer():
        return str(int(value))
    # never fewer digits than the whole part has: 1235, not 1.23e+03
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _named_buckets(values: pd.Series) -> pd.Categorical:
    counts = values.value_counts().sort_index()
    if len(counts) <= MAX_VALUES:
        return pd.Categorical(values, counts.index)
    frequent = counts.sort_values(ascending=False, kind="stable").index[: MAX_VALUES - 1]
    return pd.Categorical(values.where(values.isin(frequent), OTHER), [*sorted(set(frequent) - {OTHER}), OTHER])


def adds_probabilities(halting: str) -> bool:
    """Whether a strategy is adaptive computation time, whose halting probabilities are unconditional and add up."""
    return halting.startswith("act")


def stopping_rule(config: Any) -> tuple[str, float | None]:
    """What stops units, and its threshold: the exit criterion or, if that is "learned", the halting strategy.

    ("none", None) for a fixed depth; a criterion may have no threshold.
    """
    capabilities = config.capabilities
    if capabilities.exit_criterion not in (None, LEARNED):
        rule = resolve_exit(config, ExitOptions())
        return rule.criterion.name, rule.threshold
    return capabilities.halting, capabilities.halting_threshold if capabilities.halts else None


def stack_depths(config: Any) -> dict[str, int]:
    """Maximum depth steps of each stack."""
    if config.capabilities.two_stacks:
        return {ENCODER: config.num_hidden_layers, DECODER: config.num_decoder_layers}
    return {MODEL: config.num_hidden_layers}


def all_stacks(stacks: Mapping[str, Any]) -> dict[str, float]:
    """The work of all `stacks` of a row of a sweep together."""
    return stacks[BOTH] if BOTH in stacks else next(iter(stacks.values()))
