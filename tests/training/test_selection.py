"""Which checkpoint a run keeps, or which it averages, and how its card tells."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from task_runs import PAIR_SIZES
from tiny_trainer import tiny_rows, tiny_trainer
from torch.testing import assert_close
from transformers import TrainerCallback, TrainerState

from hf_recurrent import SUTConfig, SUTForConditionalGeneration
from hf_recurrent.training.selection import (
    MEANS,
    SCORES,
    Selection,
    best_steps,
    check_selection,
    describe_selection,
    load_average,
    means_of,
    selection_of,
)
from support.families import BY_NAME, make_batch, make_model

TWO = ["validation", "validation_ood"]


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
    chosen = selection_of(trainer.state, trainer.args, TWO)
    last = {"validation": 0.6, "validation_ood": 0.1}
    assert chosen == Selection("validation_ood", "accuracy", 0.8, step, ties, 4, last)
    # also where 2 is the best when the run stops, and 3 ties with it after resuming
    trainer_on_two_splits(tmp_path / "resumed", best_model_on_ties=ties, max_steps=2).train()
    resumed = trainer_on_two_splits(tmp_path / "resumed", best_model_on_ties=ties)
    resumed.train(resume_from_checkpoint=str(tmp_path / "resumed" / "checkpoint-2"))
    assert selection_of(resumed.state, resumed.args, TWO) == chosen


@pytest.mark.slow
@pytest.mark.parametrize(("accuracies", "step"), [((0.2, 0.5, 0.9, 0.6), 4), ((0.9, 0.6, 0.8, 0.5), 2)])
def test_of_evaluations_between_checkpoints_none_is_chosen(tmp_path, accuracies, step):
    trainer = trainer_on_two_splits(tmp_path, accuracies, save_steps=2)
    trainer.train()
    chosen = selection_of(trainer.state, trainer.args, TWO)
    assert (chosen.step, chosen.value, chosen.last_step) == (step, accuracies[step - 1], 4)
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
    assert means_of(model.config) == [name for name in MEANS if output.get(name) is not None]


@pytest.mark.slow
def test_a_metric_that_an_evaluation_lacks_is_named(tmp_path):
    options = {"eval_strategy": "steps", "save_strategy": "steps", "load_best_model_at_end": True, "eval_steps": 1}
    trainer = tiny_trainer(tmp_path, **options, save_steps=1, max_steps=1, metric_for_best_model="f1")
    with pytest.raises(ValueError, match="metric_for_best_model is 'f1': evaluations report loss, accuracy"):
        trainer.train()


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
    last = "At the last evaluation, step 30,000, accuracy was 100.0% on `validation` and 50.0% on `b`."
    assert describe_selection(chosen) == (
        "The checkpoint, of step 26,000, was chosen by its accuracy on `validation_ood` (99.8%, the latest of equals). "
        + last
    )
    by_loss = Selection("validation", "loss", 0.12345, 5, "first", 5, {"validation": 0.25})
    assert "chosen by its loss on `validation` (0.1235). At" in describe_selection(by_loss)


# ---- the mean of checkpoints


def test_best_steps():
    losses = {2: 3.0, 4: 1.0, 6: 2.0, 8: 1.0, 10: 0.5}
    history = [{"step": 2, "loss": 0.1}, *({"step": step, "eval_nll": loss} for step, loss in losses.items())]
    saved = {2, 4, 6, 8}
    assert best_steps(history, saved, "eval_nll", 3, greater=False, latest=False) == [4, 8, 6]
    assert best_steps(history, saved, "eval_nll", 1, greater=False, latest=True) == [8]
    assert best_steps(history, saved, "eval_nll", 2, greater=True, latest=False) == [2, 6]
    assert best_steps(history, saved, "eval_bleu", 2, greater=True, latest=False) == []


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
