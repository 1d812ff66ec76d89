"""Which checkpoint a run keeps, and how its card tells."""

from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file
from test_trainer import make_rows, make_trainer
from torch.testing import assert_close
from transformers import EvalPrediction, TrainerCallback, TrainerState

from hf_recurrent.text_data.labels import MULTI, REGRESSION, SINGLE, Labels
from hf_recurrent.training.metrics import scores_of
from hf_recurrent.training.objectives import (
    CLASSIFICATION,
    LANGUAGE_MODELLING,
    MASKED_MODELLING,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    SEQ2SEQ,
    TEXT_MODELLING,
)
from hf_recurrent.training.selection import (
    MEANS,
    SCORES,
    Selection,
    check_selection,
    describe_selection,
    means_of,
    selection_of,
)
from hf_recurrent.training.trainer import RecurrentTrainer
from support.families import BY_NAME, make_batch, make_model

pytestmark = pytest.mark.slow  # trains


class Scripted(TrainerCallback):
    """Lets evaluations report accuracies by step, of splits by name, instead of what the model has."""

    def __init__(self, values):
        self.values = values

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        for name, values in self.values.items():
            if f"eval_{name}_accuracy" in metrics:
                metrics[f"eval_{name}_accuracy"] = values[state.global_step]
                state.log_history[-1][f"eval_{name}_accuracy"] = values[state.global_step]


VALUES = {"validation": {1: 0.5, 2: 0.9, 3: 0.7, 4: 0.6}, "validation_ood": {1: 0.2, 2: 0.8, 3: 0.8, 4: 0.1}}
SELECTED = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 1,
    "max_steps": 4,
    "load_best_model_at_end": True,
    "metric_for_best_model": "validation_ood_accuracy",
    "save_total_limit": 2,
}


def trainer_on_two_splits(folder, values=VALUES, **options):
    trainer = make_trainer(folder, **{**SELECTED, **options})
    trainer.eval_dataset = {"validation": make_rows(4), "validation_ood": make_rows(6)}
    trainer.add_callback(Scripted(values))
    return trainer


@pytest.mark.parametrize(("ties", "step"), [("first", 2), ("latest", 3)])
def test_of_equals_the_first_or_the_latest_is_kept(tmp_path, ties, step):
    trainer = trainer_on_two_splits(tmp_path, best_model_on_ties=ties)
    trainer.train()
    assert trainer.state.best_global_step == step
    assert trainer.state.best_metric == 0.8
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{step}")
    # the best checkpoint outlives the limit
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {f"checkpoint-{step}", "checkpoint-4"}
    chosen = selection_of(trainer.state, trainer.args, ["validation", "validation_ood"])
    last = {"validation": 0.6, "validation_ood": 0.1}
    assert chosen == Selection("validation_ood", "accuracy", 0.8, step, ties, 4, last)


def test_a_resumed_run_still_knows_the_value_to_tie_with(tmp_path):
    # 2 is the best when the run stops, 3 ties with it after resuming
    first = trainer_on_two_splits(tmp_path, best_model_on_ties="latest", max_steps=2)
    first.train()
    second = trainer_on_two_splits(tmp_path, best_model_on_ties="latest")
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert second.state.best_global_step == 3
    chosen = selection_of(second.state, second.args, ["validation", "validation_ood"])
    assert (chosen.step, chosen.last_step) == (3, 4)


@pytest.mark.parametrize(("accuracies", "step"), [((0.2, 0.5, 0.9, 0.6), 4), ((0.9, 0.6, 0.8, 0.5), 2)])
def test_of_evaluations_between_checkpoints_none_is_chosen(tmp_path, accuracies, step):
    values = {**VALUES, "validation_ood": dict(enumerate(accuracies, 1))}
    trainer = trainer_on_two_splits(tmp_path, values, save_steps=2)
    trainer.train()
    chosen = selection_of(trainer.state, trainer.args, TWO)
    assert (chosen.step, chosen.value, chosen.last_step) == (step, accuracies[step - 1], 4)
    kept = load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors")
    assert kept
    assert_close({name: trainer.model.state_dict()[name] for name in kept}, kept)


def arguments(metric="validation_ood_accuracy", best=True):
    return SimpleNamespace(load_best_model_at_end=best, metric_for_best_model=metric, best_model_on_ties="first")


TWO = ["validation", "validation_ood"]


EXITS = {"exit_criterion": "convergence", "exit_threshold": 0.1}


@pytest.mark.parametrize(
    ("name", "exits"), [("xpos_transformer", {}), ("gut_no_halt", {}), ("gut_no_halt", EXITS), ("gut", {})]
)
def test_means_are_those_that_a_model_reports(name, exits):
    model = make_model(BY_NAME[name])
    for field, value in exits.items():
        setattr(model.config, field, value)
    output = model(**make_batch(BY_NAME[name]))
    assert means_of(model.config) == [name for name in MEANS if output.get(name) is not None]


IDS = np.array([[1, 2], [0, 3]])
PREDICTIONS = {
    CLASSIFICATION: (np.eye(2), IDS[:, 0]),
    MULTIPLE_CHOICE: (np.eye(2), IDS[:, 0]),
    LANGUAGE_MODELLING: (IDS, IDS),
    TEXT_MODELLING: (np.ones((2, 3)), IDS),
    MASKED_MODELLING: (np.ones((2, 3)), IDS),
    SEQ2SEQ: (np.array([[1.0] * 4 + [np.nan] * 4]), IDS),
    # of windows whose first token is not where their answers begin
    QUESTION_ANSWERING: (np.column_stack([IDS, [9, 9]]), (IDS[:, 0], np.array([2, 4]))),
}


@pytest.mark.parametrize("objective", PREDICTIONS, ids=lambda item: item.metric)
def test_a_checkpoint_is_chosen_by_what_evaluations_report(objective):
    found = objective.compute_metrics(EvalPrediction(*PREDICTIONS[objective]))
    assert tuple(sorted(found)) == tuple(sorted(objective.scores))
    for name in found:
        check_selection(arguments(name), ["validation"], objective.scores)
    with pytest.raises(ValueError, match="metric_for_best_model is 'f1'"):
        check_selection(arguments("f1"), ["validation"], objective.scores)


LABELS = [
    (Labels(SINGLE, ("a", "b")), {"accuracy", "macro_f1", "f1", "matthews_correlation"}),
    (Labels(SINGLE, ("a", "b", "c")), {"accuracy", "macro_f1", "matthews_correlation"}),
    (Labels(MULTI, ("a", "b", "c")), {"accuracy", "f1", "macro_f1"}),
    (Labels(REGRESSION), {"r_squared", "mse", "pearson", "spearman"}),
]


@pytest.mark.parametrize(("labels", "names"), LABELS)
def test_scores_of_own_labels(labels, names):
    assert set(scores_of(labels)) == names
    assert names <= set(SCORES)


def test_a_metric_that_an_evaluation_lacks_is_named():
    trainer = RecurrentTrainer.__new__(RecurrentTrainer)
    trainer.args = SimpleNamespace(load_best_model_at_end=False, save_strategy="no", metric_for_best_model="f1")
    message = "metric_for_best_model is 'f1': evaluations report loss, accuracy$"
    with pytest.raises(ValueError, match=message):
        trainer._determine_best_metric({"eval_loss": 1.0, "eval_accuracy": 0.5, "eval_runtime": 1.0}, None)


@pytest.mark.parametrize(
    ("splits", "metric", "message"),
    [
        (TWO, "accuracy", "is 'accuracy': this run is validated on validation, validation_ood, so expected one of"),
        (TWO, "validation_odd_accuracy", "did you mean validation_ood_accuracy"),
        (["validation"], "validation_ood_accuracy", "validated on validation, so expected one of accuracy"),
        ([], "accuracy", "validated on no split, so expected load_best_model_at_end: false"),
        (TWO, None, "is 'loss'"),
    ],
)
def test_metrics_that_no_evaluation_reports_are_refused_before_training(splits, metric, message):
    with pytest.raises(ValueError, match=message):
        check_selection(arguments(metric), splits, SCORES)
    if metric is None or not splits:
        check_selection(arguments(metric, best=False), splits, SCORES)
    else:
        with pytest.raises(ValueError, match=message):
            check_selection(arguments(metric, best=False), splits, SCORES)


def test_nothing_is_chosen_where_the_last_state_is_kept():
    saved = TrainerState(best_global_step=3, best_model_checkpoint="run/checkpoint-3")
    assert selection_of(saved, arguments(best=False), TWO) is None
    # the step was evaluated, but there is no checkpoint of it
    assert selection_of(TrainerState(best_global_step=3), arguments(), TWO) is None


def test_description():
    chosen = Selection("validation_ood", "accuracy", 0.998, 26_000, "latest", 30_000, {"validation": 1.0, "b": 0.5})
    assert describe_selection(chosen) == (
        "The checkpoint, of step 26,000, was chosen by its accuracy on `validation_ood` (99.8%, the latest of equals). "
        "At the last evaluation, step 30,000, accuracy was 100.0% on `validation` and 50.0% on `b`."
    )
    by_loss = Selection("validation", "loss", 0.12345, 5, "first", 5, {"validation": 0.25})
    assert "chosen by its loss on `validation` (0.1235). At" in describe_selection(by_loss)
