"""Sweeps of real models of each kind."""

import math

import numpy as np
import pytest
import torch
from sweep_models import make_pairs, make_translator

from hf_recurrent.analysis.answers import Batch
from hf_recurrent.analysis.evaluate import median_seconds, timed_in_turn
from hf_recurrent.analysis.sweep import checked_thresholds, require_halting, sweep_thresholds
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text

THRESHOLDS = (0.2, 0.6)


def by_threshold(table):
    return {row["threshold"]: row for row in (table["full_depth"], *table["thresholds"])}


@pytest.mark.parametrize("name", ["ut", "gut", "gutlb", "ndr_act_universal"])
def test_rows_are_what_the_model_answers(name):
    model, batch = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    table = sweep_thresholds(model, [batch], THRESHOLDS, repeats=1)
    assert [row["threshold"] for row in table["thresholds"]] == [*THRESHOLDS, 0.95]
    assert (table["own_threshold"], table["n"], table["measured"]) == (0.95, 10, "accuracy")
    answers = {}
    for row in table["thresholds"]:
        with torch.no_grad():
            output = model(**inputs, halting_threshold=row["threshold"])
        answers[row["threshold"]] = output.logits.argmax(-1) == batch["labels"]
        assert row["accuracy"] == pytest.approx(answers[row["threshold"]].float().mean().item())
        steps = output.ponder_steps.reshape(10, -1).float()
        mean = torch.where(steps >= 0, steps, 0).sum(1) / (steps >= 0).sum(1)
        assert row["stacks"]["model"]["mean_depth"] == pytest.approx(mean.mean().item())
    for row in table["thresholds"]:
        here, own = answers[row["threshold"]], answers[0.95]
        assert (row["lost"], row["gained"]) == ((own & ~here).sum().item(), (here & ~own).sum().item())
    lowest, full = table["thresholds"][0], table["full_depth"]
    assert lowest["stacks"]["model"]["share"] < table["thresholds"][-1]["stacks"]["model"]["share"] <= 1
    assert (full["threshold"], full["relative_time"]) == (None, 1)
    assert full["stacks"]["model"]["share"] == 1
    assert full["stacks"]["model"]["mean_depth"] == 6
    assert all(row["seconds"] > 0 for row in by_threshold(table).values())
    assert model.config.halting_threshold == 0.95
    assert model.config.hard_stop


def test_language_models_have_their_loss_too():
    model, text = make_language_model(LANGUAGE_BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gut"])
    table = sweep_thresholds(model, [text], THRESHOLDS, repeats=1)
    assert table["measured"] == "last-token accuracy"
    for row in table["thresholds"]:
        with torch.no_grad():
            output = model(**text, halting_threshold=row["threshold"])
        assert row["loss"] == pytest.approx(output.loss.item(), rel=1e-5)
        # padding on the left predicts nothing
        wanted = text["labels"][:, 1:].masked_fill(text["attention_mask"][:, :-1] == 0, -100)
        right = output.logits[:, :-1].argmax(-1) == wanted
        assert row["token_accuracy"] == pytest.approx((right.sum() / (wanted != -100).sum()).item())
    losses = {row["loss"] for row in table["thresholds"]}
    assert len(losses) == 3


@pytest.fixture(scope="module")
def translated():
    model, batches = make_translator(), make_pairs()
    with torch.no_grad():
        # targets that the model writes itself, for some rows
        sources = {name: batches[0][name] for name in ("input_ids", "attention_mask")}
        written = model.generate(**sources, max_new_tokens=4, do_sample=False)[:, 1:].tolist()
    for row in (0, 2):
        ids = written[row][: written[row].index(3) + 1] if 3 in written[row] else written[row]
        batches[0]["labels"][row] = torch.tensor(ids + [-100] * (4 - len(ids)))
    return model, batches, sweep_thresholds(model, batches, THRESHOLDS, repeats=2)


def test_a_translator_is_judged_on_true_targets(translated):
    model, batches, table = translated
    assert table["measured"] == "exact match"
    assert table["most_steps"] == {"encoder": 5, "decoder": 4}
    for row in table["thresholds"]:
        nats, right, tokens, hits, rows = 0.0, 0, 0, 0, 0
        for batch in batches:
            with torch.no_grad():
                logits = model(**batch, halting_threshold=row["threshold"]).logits
            labels = batch["labels"]
            nats += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
            hit = (logits.argmax(-1) == labels) | (labels == -100)
            right += hit.all(1).sum().item()
            tokens += (labels != -100).sum().item()
            hits += (hit & (labels != -100)).sum().item()
            rows += len(labels)
        assert row["loss"] == pytest.approx(nats / tokens, rel=1e-5)
        assert row["accuracy"] == pytest.approx(right / rows)
        assert row["token_accuracy"] == pytest.approx(hits / tokens)
    assert max(row["accuracy"] for row in table["thresholds"]) > 0


def test_stacks_are_told_apart_and_together(translated):
    table = translated[2]
    for row in by_threshold(table).values():
        encoder, decoder, both = (row["stacks"][name] for name in ("encoder", "decoder", "both"))
        assert both["calls"] == encoder["calls"] + decoder["calls"]
        possible = encoder["calls"] / encoder["share"] + decoder["calls"] / decoder["share"]
        assert both["share"] == pytest.approx(both["calls"] / possible)
        low, high = sorted((encoder["mean_depth"], decoder["mean_depth"]))
        assert low <= both["mean_depth"] <= high
    full = table["full_depth"]["stacks"]
    assert (full["encoder"]["share"], full["decoder"]["share"], full["both"]["share"]) == (1, 1, 1)
    assert table["thresholds"][0]["stacks"]["both"]["share"] < table["thresholds"][-1]["stacks"]["both"]["share"]


def test_times_are_medians_of_each_batch(monkeypatch):
    # a spell hits the second batch in the first pass, and the first in the second
    clock = iter(np.cumsum([0, 1, 0, 20, 0, 10, 0, 2, 0, 4, 0, 5]).tolist())
    monkeypatch.setattr("hf_recurrent.analysis.evaluate.time.perf_counter", lambda: float(next(clock)))
    batch = Batch({"input": torch.ones(1, 1)}, np.zeros(1))
    timed = timed_in_turn(torch.nn.Linear(1, 1), {"a": {}}, [batch, batch], 3)
    assert median_seconds(timed["a"][0]) == 9.0


def test_thresholds_are_in_order_each_once():
    assert checked_thresholds([0.5, 1.0, 0.5]) == (0.5, 1.0)
    for wrong in ([], [0.0], [1.1], [math.nan]):
        with pytest.raises(ValueError, match="pass halting masses above 0 and up to 1"):
            checked_thresholds(wrong)


@pytest.mark.parametrize("name", ["tlb", "gut_no_halt", "ndr", "xpos_transformer"])
def test_models_that_never_halt_are_refused(name):
    model, batch = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    with pytest.raises(ValueError, match="so there is no threshold to lower"):
        sweep_thresholds(model, [batch])
    with pytest.raises(ValueError, match=f"runs/x never halts .architecture '{BY_NAME[name].architecture}'"):
        require_halting(model, "runs/x")


def test_no_batches():
    with pytest.raises(ValueError, match="there are no batches to sweep over"):
        sweep_thresholds(make_model(BY_NAME["ut"]), [])
