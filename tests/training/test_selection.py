"""Which checkpoint a run keeps, or which it averages, and how its card tells."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from task_runs import PAIR_SIZES
from tiny_trainer import tiny_rows, tiny_trainer
from torch.testing import assert_close
from transformers import TrainerCallback, TrainerState

from hf_recurrent import GUTConfig, SUTConfig, SUTForConditionalGeneration
from hf_recurrent.training.run_folder import best_checkpoints, load_average
from hf_recurrent.training.trainer import check_selection, describe_selection
from support.families import BY_NAME, make_batch, make_model

TWO = ["validation", "validation_ood"]
TASK = SimpleNamespace(scores=["accuracy", "f1"])


class Scripted(TrainerCallback):
    """Lets evaluations report accuracies by step, of splits by name, instead of what the model has."""

    def __init__(self, values):
        self.values = values

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        for name, values in self.values.items():
            if (key := f"eval_{name}_accuracy") in metrics:
                metrics[key] = state.log_history[-1][key] = values[state.global_step]


def trainer_on_two_splits(folder, ood=(0.2, 0.8, 0.8, 0.1), **options):
    chosen = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    chosen |= {"load_best_model_at_end": True, "metric_for_best_model": "validation_ood_accuracy"}
    trainer = tiny_trainer(folder, **{**chosen, **options})
    trainer.eval_dataset = {"validation": tiny_rows(4), "validation_ood": tiny_rows(6)}
    values = {"validation": (0.5, 0.9, 0.7, 0.6), "validation_ood": ood}
    trainer.add_callback(Scripted({name: dict(enumerate(each, 1)) for name, each in values.items()}))
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize(("ties", "step"), [("first", 2), ("latest", 3)])
def test_of_equals_the_first_or_the_latest_is_kept(tmp_path, ties, step):
    trainer = trainer_on_two_splits(tmp_path / "straight", best_model_on_ties=ties)
    trainer.train()
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (step, 0.8)
    # the best checkpoint outlives the limit
    left = {path.name for path in (tmp_path / "straight").glob("checkpoint-*")}
    assert left == {f"checkpoint-{step}", "checkpoint-4"}
    chosen = describe_selection(trainer.state, trainer.args, TWO)
    tied = ", the latest of equals" if ties == "latest" else ""
    by = f"was chosen by its accuracy on `validation_ood` (80.0%{tied})"
    assert chosen == f"The checkpoint, of step {step}, {by} among 4 steps."
    # also where 2 is the best when the run stops, and 3 ties with it after resuming
    trainer_on_two_splits(tmp_path / "resumed", best_model_on_ties=ties, max_steps=2).train()
    resumed = trainer_on_two_splits(tmp_path / "resumed", best_model_on_ties=ties)
    resumed.train(resume_from_checkpoint=str(tmp_path / "resumed" / "checkpoint-2"))
    assert describe_selection(resumed.state, resumed.args, TWO) == chosen


@pytest.mark.slow
@pytest.mark.parametrize(("accuracies", "step"), [((0.2, 0.5, 0.9, 0.6), 4), ((0.9, 0.6, 0.8, 0.5), 2)])
def test_of_evaluations_between_checkpoints_none_is_chosen(tmp_path, accuracies, step):
    trainer = trainer_on_two_splits(tmp_path, accuracies, save_steps=2)
    trainer.train()
    chosen = describe_selection(trainer.state, trainer.args, TWO)
    assert f"of step {step}, was chosen by its accuracy on `validation_ood` ({accuracies[step - 1]:.1%})" in chosen
    kept = load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors")
    assert kept
    assert_close({name: trainer.model.state_dict()[name] for name in kept}, kept)


EXITS = {"exit_criterion": "convergence", "exit_threshold": 0.1}


@pytest.mark.parametrize(
    ("name", "exits"), [("xpos_transformer", {}), ("gut_no_halt", {}), ("gut_no_halt", EXITS), ("gut", {})]
)
def test_means_are_those_that_a_model_reports(name, exits):
    model = make_model(BY_NAME[name])
    for field, value in exits.items():
        setattr(model.config, field, value)
    output = model(**make_batch(BY_NAME[name]))
    for metric in ("loss", "ponder_cost", "ponder_steps"):
        reported = (
            nullcontext() if output.get(metric) is not None else pytest.raises(ValueError, match="expected one of")
        )
        with reported:
            check_selection(arguments(metric), ["validation"], TASK, model.config)


def arguments(metric="validation_ood_accuracy", best=True):
    return SimpleNamespace(load_best_model_at_end=best, metric_for_best_model=metric, best_model_on_ties="first")


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
        check_selection(arguments(metric), splits, TASK, GUTConfig())
    if metric is None or not splits:
        check_selection(arguments(metric, best=False), splits, TASK, GUTConfig())
    else:
        with pytest.raises(ValueError, match=message):
            check_selection(arguments(metric, best=False), splits, TASK, GUTConfig())


def test_nothing_is_chosen_where_the_last_state_is_kept():
    saved = TrainerState(best_global_step=3, best_model_checkpoint="run/checkpoint-3")
    assert describe_selection(saved, arguments(best=False), TWO) is None
    # the step was evaluated, but there is no checkpoint of it
    assert describe_selection(TrainerState(best_global_step=3), arguments(), TWO) is None


def test_description_by_loss():
    state = TrainerState(best_metric=0.12345, best_model_checkpoint="run/checkpoint-5", global_step=2000)
    found = describe_selection(state, arguments("loss"), ["validation"])
    assert found == "The checkpoint, of step 5, was chosen by its loss on `validation` (0.1235) among 2,000 steps."
    averaged = describe_selection(state, arguments("loss"), ["validation"], [3, 5])
    assert averaged == (
        "The weights are the mean of the checkpoints of steps 3 and 5, the best ones by its loss on `validation` "
        "(at best 0.1235)."
    )


# ---- the mean of checkpoints


@pytest.mark.parametrize(
    ("metric", "number", "greater", "ties", "expected"),
    [
        ("nll", 3, False, "first", [4, 8, 6]),
        ("nll", 1, False, "latest", [8]),
        ("nll", 2, True, "first", [2, 6]),
        ("bleu", 2, True, "first", []),
        ("nll", None, True, "first", []),
    ],
)
def test_the_best_checkpoints(tmp_path, metric, number, greater, ties, expected):
    losses = {2: 3.0, 4: 1.0, 6: 2.0, 8: 1.0, 10: 0.5}
    logs = [{"step": 2, "loss": 0.1}, *({"step": step, "eval_nll": loss} for step, loss in losses.items())]
    for step in (2, 4, 6, 8):
        (tmp_path / f"checkpoint-{step}").mkdir()
    args = SimpleNamespace(output_dir=tmp_path, metric_for_best_model=metric, average_checkpoints=number)
    args.greater_is_better, args.best_model_on_ties = greater, ties
    found = best_checkpoints(TrainerState(log_history=logs), args)
    assert found == [tmp_path / f"checkpoint-{step}" for step in expected]


def test_tied_weights_are_averaged_once(tmp_path):
    def pair(**changes):
        config = SUTConfig(is_encoder_decoder=True, **{**PAIR_SIZES, "vocab_size": 12, **changes})
        return SUTForConditionalGeneration(config)

    models = [pair(), pair()]
    models[1].load_state_dict(models[0].state_dict())
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter += 1.0
    for name, model in zip("ab", models, strict=True):
        model.save_pretrained(tmp_path / name)
    files = [tmp_path / name / "model.safetensors" for name in "ab"]
    averaged = load_average(pair(), files)
    for ours, first in zip(averaged.parameters(), models[0].parameters(), strict=True):
        assert_close(ours, first + 0.5)
    assert averaged.get_output_embeddings().weight is averaged.get_input_embeddings().weight
    with pytest.raises(RuntimeError, match="halting"):
        load_average(pair(halting="none"), files)
