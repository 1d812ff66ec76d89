"""Which checkpoint of a run is kept, and what a card says of the choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..templating import percent
from .recipes import near_matches

if TYPE_CHECKING:
    from transformers import TrainerState

    from .arguments import RecurrentTrainingArguments

# what the evaluations of a run report that a checkpoint can be chosen by
METRICS = ("accuracy", "token_accuracy", "loss", "nll", "ponder_cost", "ponder_steps")
TIES = ("first", "latest")


@dataclass(frozen=True)
class Selection:
    """The checkpoint that was chosen, and the last evaluation of the run.

    `split` is the validation split of `metric`, `value` what it had there at `step`. `last` maps validation splits to
    their accuracy at `last_step`.
    """

    split: str
    metric: str
    value: float
    step: int
    ties: str
    last_step: int
    last: dict[str, float]


def metric_names(splits: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What `metric_for_best_model` may be -> its validation split and metric; with one split, that goes unnamed."""
    if len(splits) == 1:
        return {metric: (splits[0], metric) for metric in METRICS}
    return {f"{split}_{metric}": (split, metric) for split in splits for metric in METRICS}


def check_selection(args: "RecurrentTrainingArguments", splits: Sequence[str]) -> None:
    """Raise a ValueError if checkpoints are to be chosen by a metric that no evaluation will report."""
    if not args.load_best_model_at_end:
        return
    names = metric_names(splits) if splits else {}
    chosen = (args.metric_for_best_model or "loss").removeprefix("eval_")
    known = f"one of {', '.join(names)}" if names else "load_best_model_at_end: false"
    if chosen not in names:
        raise ValueError(
            f"metric_for_best_model is {chosen!r}: this run is validated on {', '.join(splits) or 'no split'}, so "
            f"expected {known}{near_matches(chosen, names)}"
        )


def selection_of(state: "TrainerState", args: "RecurrentTrainingArguments", splits: Sequence[str]) -> Selection | None:
    """What became of `load_best_model_at_end`; None where the last state of the run is kept."""
    if not args.load_best_model_at_end or not state.best_global_step:
        return None
    names = metric_names(splits)
    split, metric = names[args.metric_for_best_model.removeprefix("eval_")]
    # the last value of each split: evaluations of one step are logged one by one
    last = {
        found: (log["step"], log[f"eval_{name}"])
        for log in state.log_history
        for name, (found, kind) in names.items()
        if kind == "accuracy" and f"eval_{name}" in log
    }
    last_step = max(step for step, _ in last.values())
    values = {name: value for name, (_, value) in last.items()}
    return Selection(
        split, metric, state.best_metric, state.best_global_step, args.best_model_on_ties, last_step, values
    )


def selection_words(selection: Selection, averaged: Sequence[int] = ()) -> str:
    """One or two sentences for a card; `averaged` are the steps of checkpoints whose mean is what was kept."""
    value = percent(selection.value) if "accuracy" in selection.metric else f"{selection.value:.4g}"
    tied = ", the latest of equals" if selection.ties == "latest" else ""
    metric = selection.metric.replace("_", " ")
    chosen = f"by its {metric} on `{selection.split}` ({value}{tied})"
    accuracies = [f"{percent(accuracy)} on `{split}`" for split, accuracy in selection.last.items()]
    what = f"The checkpoint, of step {selection.step:,}, was chosen"
    if len(averaged) > 1:
        *others, last = (f"{step:,}" for step in averaged)
        kept = f"the best ones {chosen.replace('(', '(at best ', 1)}"
        what, chosen = f"The weights are the mean of the checkpoints of steps {', '.join(others)} and {last},", kept
    return (
        f"{what} {chosen}. At the last evaluation, step "
        f"{selection.last_step:,}, accuracy was {' and '.join(accuracies)}."
    )
