"""The choice of the checkpoint that a run keeps, or of those that it averages, and its description for the card."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_model

from ..templating import near_matches, percent
from .arguments import RecurrentTrainingArguments
from .run_folder import checkpoints, step_of

if TYPE_CHECKING:
    from transformers import TrainerState


# of evaluations, by which a checkpoint can be chosen: what every model may report, and scores of one kind or another
MEANS = ("loss", "ponder_cost", "ponder_steps")
SCORES = ("accuracy", "token_accuracy", "nll", "perplexity", "f1", "macro_f1", "matthews_correlation", "span_accuracy")
SCORES += ("r_squared", "mse", "pearson", "spearman", "entity_precision", "entity_recall", "entity_f1")
ACCURACY = "accuracy"
# those that a card tells of the last evaluation, as sentences call them
SHARES = {ACCURACY: "accuracy", "r_squared": "R²"}


@dataclass(frozen=True)
class Selection:
    """The checkpoint that was chosen, and the last evaluation of the run.

    `split` is the validation split of `metric`, `value` its value there at `step`. `last` maps validation splits to
    their `last_metric`, the accuracy, what stands for it or else `metric`, at `last_step`.
    """

    split: str
    metric: str
    value: float
    step: int
    ties: str
    last_step: int
    last: dict[str, float]
    last_metric: str = ACCURACY


def metric_names(splits: Sequence[str], metrics: Sequence[str] = (*SCORES, *MEANS)) -> dict[str, tuple[str, str]]:
    """Values of `metric_for_best_model` -> validation split and metric; the name of a single split is left out."""
    if len(splits) == 1:
        return {metric: (splits[0], metric) for metric in metrics}
    return {f"{split}_{metric}": (split, metric) for split in splits for metric in metrics}


def means_of(config: Any) -> list[str]:
    """Those of `MEANS` that evaluations of a model of this config report."""
    found = config.capabilities
    reported = {"ponder_cost": found.halts, "ponder_steps": found.shared_block}
    return [name for name in MEANS if reported.get(name, True)]


def check_metric_name(name: str | None) -> None:
    """Raise a ValueError if checkpoints are to be chosen by a metric that no run reports, whatever its data."""
    known = (*SCORES, *MEANS)
    # with several validation splits, that of one begins with its name
    if name is not None and not name.endswith(known):
        raise ValueError(
            f"metric_for_best_model is {name!r}: expected one of {', '.join(known)}{near_matches(name, known)}"
        )


def check_selection(args: RecurrentTrainingArguments, splits: Sequence[str], metrics: Sequence[str]) -> None:
    """Raise a ValueError if checkpoints are to be chosen by a metric that no evaluation can report.

    Args:
        metrics: those that evaluations report.
    """
    # a metric that is named is looked up at every evaluation
    if not args.load_best_model_at_end and (args.metric_for_best_model is None or not splits):
        return
    names = metric_names(splits, metrics) if splits else {}
    chosen = "loss" if args.metric_for_best_model is None else args.metric_for_best_model.removeprefix("eval_")
    known = f"one of {', '.join(names)}" if names else "load_best_model_at_end: false"
    if chosen not in names:
        raise ValueError(
            f"metric_for_best_model is {chosen!r}: this run is validated on {', '.join(splits) or 'no split'}, so "
            f"expected {known}{near_matches(chosen, names)}"
        )


def selection_of(state: "TrainerState", args: RecurrentTrainingArguments, splits: Sequence[str]) -> Selection | None:
    """The checkpoint that `load_best_model_at_end` chose; None if the last state of the run is kept."""
    if not args.load_best_model_at_end or state.best_model_checkpoint is None:
        return None
    names = metric_names(splits)
    split, metric = names[args.metric_for_best_model.removeprefix("eval_")]
    kinds = {kind for log in state.log_history for name, (_, kind) in names.items() if f"eval_{name}" in log}
    shown = next((kind for kind in SHARES if kind in kinds), metric)
    # the last value of each split: evaluations of one step are logged one by one
    last = {
        found: (log["step"], log[f"eval_{name}"])
        for log in state.log_history
        for name, (found, kind) in names.items()
        if kind == shown and f"eval_{name}" in log
    }
    last_step = max(step for step, _ in last.values())
    values = {name: value for name, (_, value) in last.items()}
    step = step_of(Path(state.best_model_checkpoint))
    return Selection(split, metric, state.best_metric, step, args.best_model_on_ties, last_step, values, shown)


def describe_selection(selection: Selection, averaged: Sequence[int] = ()) -> str:
    """One or two sentences for a card; `averaged` are the steps of the checkpoints whose mean was kept."""
    value = metric_value(selection.metric, selection.value)
    tied = ", the latest of equals" if selection.ties == "latest" else ""
    metric = selection.metric.replace("_", " ")
    chosen = f"by its {metric} on `{selection.split}` ({value}{tied})"
    shown = selection.last_metric
    values = [f"{metric_value(shown, value)} on `{split}`" for split, value in selection.last.items()]
    what = f"The checkpoint, of step {selection.step:,}, was chosen"
    if len(averaged) > 1:
        *others, last = (f"{step:,}" for step in averaged)
        kept = f"the best ones {chosen.replace('(', '(at best ', 1)}"
        what, chosen = f"The weights are the mean of the checkpoints of steps {', '.join(others)} and {last},", kept
    return (
        f"{what} {chosen}. At the last evaluation, step "
        f"{selection.last_step:,}, {SHARES.get(shown, shown.replace('_', ' '))} was {' and '.join(values)}."
    )


def metric_value(metric: str, value: float) -> str:
    """The value of a metric, as a percentage if it is an accuracy."""
    return percent(value) if ACCURACY in metric or metric in SHARES else f"{value:.4g}"


def best_steps(
    history: Iterable[Mapping[str, Any]],
    saved: Collection[int],
    metric: str,
    number: int,
    *,
    greater: bool,
    latest: bool,
) -> list[int]:
    """The steps of the `number` best checkpoints, the best first.

    Args:
        history: a trainer's log, whose evaluations have `step` and `metric`.
        saved: the steps that there is a checkpoint of.
        greater: whether more of the metric is better.
        latest: which of equals is better, the later or the earlier one.
    """
    values = {log["step"]: log[metric] for log in history if metric in log and log["step"] in saved}
    ranked = sorted(values, key=lambda step: (-values[step] if greater else values[step], -step if latest else step))
    return ranked[:number]


def best_checkpoints(state: "TrainerState", args: RecurrentTrainingArguments) -> list[Path]:
    """The checkpoints of a run whose average it leaves, the best first; none if it leaves a single one."""
    if getattr(args, "average_checkpoints", None) is None:
        return []
    folders = {step_of(folder): folder for folder in checkpoints(Path(args.output_dir))}
    steps = best_steps(
        state.log_history,
        folders,
        f"eval_{args.metric_for_best_model.removeprefix('eval_')}",
        args.average_checkpoints,
        greater=args.greater_is_better,
        latest=args.best_model_on_ties == "latest",
    )
    return [folders[step] for step in steps]


def load_average(model: torch.nn.Module, files: Sequence[Path]) -> torch.nn.Module:
    """`model` with the mean of its weights in some safetensors files; summed in float64."""
    sums: dict[str, torch.Tensor] = {}
    for file in files:
        load_model(model, file)
        weights = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        sums = {name: tensor.double() + sums.get(name, 0.0) for name, tensor in weights.items()}
    model.load_state_dict({name: total / len(files) for name, total in sums.items()}, strict=False)
    return model
