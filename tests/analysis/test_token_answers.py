"""Sweeps and calibrations of models that answer for each token, compared with evaluations."""

import numpy as np
import pandas as pd
import pytest
import torch

from hf_recurrent.analysis.calibration import Examples, Goal, calibrate, errors
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.exit_settings import check_criteria
from hf_recurrent.analysis.halting import halting_table
from hf_recurrent.analysis.sweep import sweep_thresholds
from hf_recurrent.models.ops.exit_probe import ExitProbe
from support.families import BY_NAME, slow
from support.token_heads import MASKED, TOKENS, make_head, make_head_batch, without_targets


@pytest.mark.parametrize(
    ("name", "head"),
    [("gut", TOKENS), ("gutlb", TOKENS), ("ut", MASKED), slow("ndr_act", TOKENS), slow("sut", MASKED)],
)
def test_a_sweep_agrees_with_an_evaluation(name, head):
    model, batches = make_head(name, head), [make_head_batch(name, head, seed=seed) for seed in (0, 1)]
    found = sweep_thresholds(model, batches, [0.3], repeats=1)
    table = halting_table(evaluate_batches(model, batches).record)
    (own,) = (row for row in found["thresholds"] if row["threshold"] == found["own_threshold"])
    assert own["accuracy"] == pytest.approx(table["accuracy"])
    assert own["loss"] == pytest.approx(evaluate_batches(model, batches).record.examples["nll"].mean(), rel=1e-5)
    lower = halting_table(evaluate_batches(model, batches, halting_threshold=0.3).record)
    assert found["thresholds"][0]["accuracy"] == pytest.approx(lower["accuracy"])
    assert lower["threshold"] == 0.3
    assert found["thresholds"][0]["stacks"]["model"]["calls"] <= own["stacks"]["model"]["calls"]


def test_errors_are_of_tokens():
    def frame(answers):
        label = [np.array([0, 1, 1]), np.array([2])]
        columns = {"answer": [np.array(own) for own in answers], "label": label}
        right = [own == wanted for own, wanted in zip(columns["answer"], label, strict=True)]
        return pd.DataFrame({**columns, "right": right})

    full, early = frame([[0, 1, 0], [2]]), frame([[0, 0, 2], [2]])
    # the third token is wrong both times, in another way
    assert errors(early, full, True).tolist() == pytest.approx([1 / 3, 0])
    assert errors(early, full, False).tolist() == pytest.approx([2 / 3, 0])


def test_a_calibration_without_labels_compares_all_tokens():
    model = make_head("ut", MASKED, halting_threshold=0.9)
    batches = [without_targets(make_head_batch("ut", MASKED, seed=seed)) for seed in range(4)]
    goal = Goal(tolerance=0.5, confidence=0.5, labelled=False, repeats=1)
    found = calibrate(model, Examples(batches), None, goal, criteria=["convergence"])
    assert (found["unit"], found["n"], found["risk"]) == ("token", 24, "differs")
    curve = found["criteria"]["convergence"]["curve"]
    assert curve[0]["accuracy"] is None
    # shares of sequences, whatever their lengths
    tokens = [int(batch["attention_mask"].sum(-1)[row]) for batch in batches for row in range(6)]
    worst = max(row["risk"] for row in curve)
    assert 0 < worst <= 1
    assert worst * 24 * np.lcm.reduce(tokens) == pytest.approx(round(worst * 24 * np.lcm.reduce(tokens)))


def test_a_calibration_counts_the_steps_of_labelled_tokens():
    model = make_head("ut", TOKENS, halting_threshold=0.9)
    batches = [make_head_batch("ut", TOKENS, seed=seed) for seed in range(4)]
    goal = Goal(tolerance=0.5, confidence=0.5, repeats=1)
    found = calibrate(model, Examples(batches), None, goal, criteria=["learned"])
    assert found["full_depth"]["mean_depth"] == model.config.num_hidden_layers
    row = found["criteria"]["learned"]["curve"][-1]
    means = []
    for batch in batches:
        with torch.no_grad():
            steps = model(**without_targets(batch), halting_threshold=row["threshold"]).ponder_steps
        chosen = batch["labels"] != -100
        means += [own[kept].float().mean().item() for own, kept in zip(steps, chosen, strict=True)]
    assert row["mean_depth"] == pytest.approx(np.mean(means))
    assert row["mean_depth"] < model.config.num_hidden_layers


def test_criteria_that_fit_such_a_head():
    by_token = make_head("ut", TOKENS)
    assert check_criteria(by_token, None) == (
        "learned",
        "convergence",
        "agreement",
        "stability",
        "confidence",
        "entropy",
    )
    as_a_whole = make_head("gut", TOKENS)
    assert BY_NAME["gut"].fields.get("halting") != "token"
    assert check_criteria(as_a_whole, None) == ("learned", "convergence")
    with pytest.raises(ValueError, match=r"criterion is 'probe': no probe was fitted .*run `hf-recurrent fit-probe`"):
        check_criteria(by_token, ["probe"])
    by_token.exit_probe, by_token.config.exit_probe_size = ExitProbe(32, 4), 4
    assert check_criteria(by_token, ["probe"]) == ("probe",)
    with pytest.raises(ValueError, match=r"sequences stop as a whole: .*choose learned, convergence"):
        check_criteria(as_a_whole, ["confidence"])
