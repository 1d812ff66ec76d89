"""Calibrations of small models, and of answers made up for the purpose."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom
from sweep_models import make_pairs, make_translator
from transformers import AutoModel, AutoModelForSequenceClassification

from hf_recurrent.analysis.calibration import (
    DIFFERS,
    MEAN_DEPTH,
    RELATIVE_TIME,
    Examples,
    Goal,
    calibrate,
    calibrated_fields,
    choose,
    unusual_inputs,
)
from hf_recurrent.analysis.exit_settings import GRIDS, Setting, check_criteria, settings_of
from hf_recurrent.cli.calibrate import little_learned
from hf_recurrent.models.common.exit_calibration import calibration_problem
from hf_recurrent.models.common.exit_criteria import CRITERIA
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text
from support.token_heads import CHOICE, TOKENS, make_head, make_head_batch

# what ten examples can show
MODEST = Goal(tolerance=0.4, confidence=0.6)


def own_labels(model, batch, **options):
    """The batch with the answers of full depth as labels, but for the last two."""
    with torch.no_grad():
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        labels = model(**inputs, **options).logits.argmax(-1)
    labels[-2:] = (labels[-2:] + 1) % 3
    return {**inputs, "labels": labels}


@pytest.fixture(scope="module")
def ndr():
    model = make_model(BY_NAME["ndr"])
    batch = own_labels(model, make_batch(BY_NAME["ndr"]), max_depth=9)
    lengths = batch["attention_mask"].sum(1).tolist()
    examples = Examples([batch], [f"text {i}" for i in range(10)], lengths)
    criteria = ["convergence", "confidence", "stability"]
    before = model.config.to_dict()
    table = calibrate(model, examples, {"test": examples}, MODEST, criteria=criteria, max_depth=9, repeats=1)
    assert model.config.to_dict() == before
    return model, batch, table


def test_rows_are_what_the_model_answers(ndr):
    model, batch, table = ndr
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    right = torch.tensor([True] * 8 + [False] * 2)
    depths = set()
    for name, own in table["criteria"].items():
        for row in own["curve"]:
            with torch.no_grad():
                output = model(
                    **inputs,
                    max_depth=9,
                    exit_criterion=name,
                    exit_threshold=row["threshold"],
                    exit_patience=row["patience"],
                )
            here = output.logits.argmax(-1) == batch["labels"]
            assert row["accuracy"] == pytest.approx(here.float().mean().item())
            assert row["mean_depth"] == pytest.approx(output.ponder_steps.float().mean().item())
            assert row["lost"] == (right & ~here).sum().item()
            assert row["risk"] == pytest.approx(row["lost"] / 10)
            assert row["disagreement"] >= row["risk"]
            assert row["p_value"] == pytest.approx(binom.cdf(row["lost"], 10, 0.4))
            assert row["seconds"] > 0
            assert row["relative_time"] == pytest.approx(row["seconds"] / table["full_depth"]["seconds"])
            depths.add(round(row["mean_depth"], 3))
    assert len(depths) > 5
    assert (table["full_depth"]["accuracy"], table["full_depth"]["mean_depth"], table["max_depth"]) == (0.8, 9, 9)
    assert [row["max_depth"] for row in table["fixed_depths"]] == [1, 2, 3, 4, 6, 7, 8]
    assert json.loads(json.dumps(table, allow_nan=False)) == table


def test_a_criterion_is_safe_up_to_its_first_failure(ndr):
    _, _, table = ndr
    for own in table["criteria"].values():
        safe = [row["safe"] for row in own["curve"]]
        expected = [row["p_value"] <= 0.4 / 3 for row in own["curve"]]
        first = expected.index(False) if False in expected else len(expected)
        assert safe == [place < first for place in range(len(safe))]
        sparing = [row for row in own["curve"] if row["safe"] and row["mean_depth"] < 9]
        fastest = min(sparing, key=lambda row: row["mean_depth"], default=None)
        assert own["chosen"] == (fastest and (fastest["threshold"] or fastest["patience"]))


def test_tests_show_the_choice_beside_full_depth(ndr):
    *_, table = ndr
    chosen, test = table["chosen"], table["tests"]["test"]
    (row,) = (
        row
        for row in table["criteria"][chosen["criterion"]]["curve"]
        if (row["threshold"], row["patience"]) == (chosen["threshold"], chosen["patience"])
    )
    assert (test["n"], test["full_accuracy"]) == (10, 0.8)
    for name in ("accuracy", "mean_depth", "risk"):
        assert test[name] == pytest.approx(row[name])
    buckets = test["by_difficulty"]
    assert sum(bucket["n"] for bucket in buckets) == 10
    assert sum(bucket["n"] * bucket["mean_depth"] for bucket in buckets) == pytest.approx(10 * row["mean_depth"])
    assert sum(bucket["n"] * bucket["full_accuracy"] for bucket in buckets) == pytest.approx(8)
    steps = [example["steps"] for example in test["examples"]]
    assert steps == sorted(steps)
    assert {example["text"] for example in test["examples"]} == {f"text {i}" for i in range(10)}


def test_a_calibrated_checkpoint_stops_as_chosen(ndr, tmp_path):
    model, batch, table = ndr
    chosen = table["chosen"]
    fields = calibrated_fields(model, table, benchmark="toy", benchmark_config="small", split="validation")
    saved = make_model(BY_NAME["ndr"])
    saved.config.update(fields)
    saved.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert calibration_problem(again) is None
    record = again.config.exit_calibration
    assert (record["benchmark"], record["criterion"], record["threshold"], record["n"]) == (
        "toy",
        chosen["criterion"],
        chosen["threshold"],
        10,
    )
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    options = {f"exit_{name}": value for name, value in chosen.items() if name != "min_depth"}
    with torch.no_grad():
        expected, found = model(**inputs, max_depth=9, **options), again(**inputs)
    assert found.ponder_steps.tolist() == expected.ponder_steps.tolist()
    steps = found.ponder_steps.double()
    assert record["inputs"]["steps"]["mean"] == pytest.approx(steps.mean().item())
    assert record["inputs"]["steps"]["std"] == pytest.approx(steps.std(correction=0).item())
    confidence = found.logits.softmax(-1).amax(-1)
    assert record["inputs"]["confidence"]["mean"] == pytest.approx(confidence.mean().item(), rel=1e-5)
    again.config.exit_threshold = 0.123
    assert "the config has exit_threshold=0.123" in calibration_problem(again)


def test_learned_halting_is_calibrated_by_its_own_threshold():
    model, batch = make_model(BY_NAME["gut"]), make_batch(BY_NAME["gut"])
    batch = own_labels(model, batch, halting_threshold=1.0)
    table = calibrate(model, Examples([batch]), goal=Goal(0.4, 0.6), criteria=["learned"], repeats=1)
    curve = table["criteria"]["learned"]["curve"]
    assert [row["threshold"] for row in curve] == list(GRIDS["learned"])
    for row in curve:
        with torch.no_grad():
            output = model(**batch, halting_threshold=row["threshold"])
        assert row["mean_depth"] == pytest.approx(output.ponder_steps.float().mean().item())
    assert table["full_depth"]["accuracy"] == pytest.approx(0.8)
    most = torch.bincount(batch["labels"]).max().item()
    assert table["full_depth"]["majority_baseline"] == pytest.approx(most / 10)
    fields = calibrated_fields(model, table)
    assert (fields["exit_criterion"], fields["halting_threshold"]) == ("learned", table["chosen"]["threshold"])


@pytest.mark.parametrize(("accuracy", "warns"), [(0.4, True), (0.59, True), (0.61, False), (None, False)])
def test_a_model_that_learned_little_is_told(accuracy, warns):
    # two standard errors of a half are 0.1
    found = {"n": 100, "full_depth": {"accuracy": accuracy, "majority_baseline": 0.5}}
    lines = little_learned(found)
    assert len(lines) == warns
    if warns:
        assert f"full depth answers {100 * accuracy:.1f}% right, and the most frequent answer alone 50.0%" in lines[0]


@pytest.mark.parametrize("labelled", [True, False])
def test_without_labels_answers_are_compared_with_full_depth(labelled):
    model, batch = make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    if not labelled:
        del batch["labels"]
    goal = Goal(0.4, 0.6, labelled=False)
    table = calibrate(model, Examples([batch]), {"test": Examples([batch], ["a"] * 10)}, goal, repeats=1)
    assert table["risk"] == DIFFERS
    assert (table["full_depth"]["accuracy"] is None) == (not labelled)
    assert (table["full_depth"]["majority_baseline"] is None) == (not labelled)
    rows = [row for own in table["criteria"].values() for row in own["curve"]]
    assert all(row["risk"] == row["disagreement"] for row in rows)
    assert all((row["lost"] is None) == (not labelled) for row in rows)
    if table["chosen"]:
        assert table["tests"]["test"]["examples"][0]["label"] is None or labelled


@pytest.mark.parametrize("kind", ["tokens", "choice", "several"])
def test_whatever_is_answered_is_compared_with_full_depth(kind):
    goal = Goal(0.5, 0.4, labelled=False)
    if kind == "several":
        model, batch = make_model(BY_NAME["ndr"], problem_type="multi_label_classification"), make_batch(BY_NAME["ndr"])
    else:
        head = {"tokens": TOKENS, "choice": CHOICE}[kind]
        model, batch = make_head("ut", head), make_head_batch("ut", head)
    del batch["labels"]
    table = calibrate(model, Examples([batch]), goal=goal, criteria=["convergence"], repeats=1)
    rows = table["criteria"]["convergence"]["curve"]
    assert table["n"] == len(batch["input_ids"])
    assert rows[0]["risk"] <= rows[-1]["risk"]


def test_language_models_are_judged_by_their_last_labelled_token():
    model, text = make_language_model(LANGUAGE_BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gut"])
    goal = Goal(0.5, 0.4, labelled=False)
    table = calibrate(model, Examples([text]), goal=goal, criteria=["agreement"], repeats=1)
    with torch.no_grad():
        full = model(**text, halting_threshold=1.0).logits[:, :-1].argmax(-1)
        rows = [
            model(**text, exit_criterion="agreement", exit_threshold=row["threshold"])
            for row in table["criteria"]["agreement"]["curve"]
        ]
    wanted = text["labels"][:, 1:].masked_fill(text["attention_mask"][:, :-1] == 0, -100)
    last = [int((row != -100).nonzero()[-1]) for row in wanted]
    for row, output in zip(table["criteria"]["agreement"]["curve"], rows, strict=True):
        found = output.logits[:, :-1].argmax(-1)
        differs = [found[place, at] != full[place, at] for place, at in enumerate(last)]
        assert row["risk"] == pytest.approx(sum(differs) / 4)
        live = output.ponder_steps >= 0
        mean = torch.where(live, output.ponder_steps, 0).sum(1) / live.sum(1)
        assert row["mean_depth"] == pytest.approx(mean.mean().item())
    unlabelled = {name: text[name] for name in ("input_ids", "attention_mask")}
    assert calibrate(model, Examples([unlabelled]), goal=goal, criteria=["agreement"], repeats=1)["n"] == 4


@pytest.mark.slow
def test_two_stacks_are_judged_by_whole_targets():
    model, batches = make_translator(), make_pairs()
    goal = Goal(0.4, 0.6, labelled=False)
    table = calibrate(model, Examples(batches), goal=goal, criteria=["learned"], repeats=1)
    assert table["fixed_depths"] == []
    labelled = [batch["labels"] != -100 for batch in batches]

    def targets(threshold):
        with torch.no_grad():
            found = [model(**batch, halting_threshold=threshold).logits.argmax(-1) for batch in batches]
        pairs = zip(torch.cat(found), torch.cat(labelled), strict=True)
        return [row[kept].tolist() for row, kept in pairs]

    full = targets(1.0)
    for row in table["criteria"]["learned"]["curve"]:
        differs = [here != there for here, there in zip(targets(row["threshold"]), full, strict=True)]
        assert row["risk"] == pytest.approx(sum(differs) / 10)
    with pytest.raises(ValueError, match="max_depth is 9: it is for models with one stack"):
        calibrate(model, Examples(batches), goal=goal, criteria=["learned"], max_depth=9)
    for batch in batches:
        del batch["labels"]
    with pytest.raises(ValueError, match="the examples have no targets"):
        calibrate(model, Examples(batches), goal=goal, criteria=["learned"])


def rows_of(**columns):
    """A curve from its columns, of the first settings of a criterion."""
    keys = settings_of("convergence")
    return {
        key: {**dict.fromkeys(("accuracy", "disagreement"), 0.5), **dict(zip(columns, values, strict=True))}
        for key, values in zip(keys, zip(*columns.values(), strict=True), strict=False)
    }


def test_what_spares_no_step_is_not_chosen():
    rows = rows_of(safe=[True, True, False], mean_depth=[10.0, 10.0, 4.0], relative_time=[1.1, 1.1, 0.5])
    assert choose({"convergence": rows}, 10.0, Goal()) == ({"convergence": None}, None)
    rows = rows_of(safe=[True, True, False], mean_depth=[10.0, 8.0, 4.0], relative_time=[1.1, 0.9, 0.5])
    choice = Setting("convergence", 0.01, 1)
    assert choose({"convergence": rows}, 10.0, Goal()) == ({"convergence": choice}, choice)


def test_budgets_take_the_most_accurate_that_is_fast_enough():
    rows = rows_of(
        safe=[True, True, False, False],
        accuracy=[0.9, 0.8, 0.85, 0.3],
        disagreement=[0.0, 0.1, 0.3, 0.4],
        mean_depth=[9.0, 5.0, 4.0, 1.0],
        relative_time=[1.0, 0.7, 0.6, 0.4],
    )

    def threshold(measure, most, labelled=True):
        _, choice = choose({"convergence": rows}, 10.0, Goal(budget=(measure, most), labelled=labelled))
        return choice and choice.threshold

    assert threshold(MEAN_DEPTH, 0.5) == GRIDS["convergence"][2]
    assert threshold(MEAN_DEPTH, 0.5, labelled=False) == GRIDS["convergence"][1]
    assert threshold(RELATIVE_TIME, 0.5) == GRIDS["convergence"][3]
    assert threshold(RELATIVE_TIME, 0.3) is None


@pytest.mark.parametrize(
    ("mean", "std", "n", "unusual"),
    [
        (5.0, 1.0, 1000, False),
        # significant, but small
        (5.4, 1.0, 100_000, False),
        # large, but so few inputs show nothing
        (6.5, 1.0, 4, False),
        (5.6, 1.0, 1000, True),
        (4.4, 1.0, 1000, True),
    ],
)
def test_unusual_inputs(mean, std, n, unusual):
    calibration = {
        "benchmark": "toy",
        "split": "validation",
        "n": 1000,
        "inputs": {"steps": {"mean": 5.0, "std": 1.0}, "confidence": {"mean": 0.9, "std": 0.1}},
    }
    half = np.tile([-std, std], n // 2)
    inputs = pd.DataFrame({"steps": mean + half, "confidence": 0.9})
    found = unusual_inputs(calibration, inputs)
    assert (found is not None) == unusual
    if unusual:
        assert found.endswith(f"(toy, validation), to which its guarantee is limited: mean steps {mean:g} instead of 5")


def test_grids_go_from_safe_to_fast():
    for name, thresholds in GRIDS.items():
        falls = name in CRITERIA and CRITERIA[name].falls
        assert list(thresholds) == sorted(thresholds, reverse=not falls)
        assert len(set(thresholds)) == len(thresholds)
        if name in CRITERIA:
            assert [CRITERIA[name].check_threshold(value) for value in thresholds] == list(thresholds)
    assert {*GRIDS, "stability"} == {"learned", *CRITERIA}


def test_criteria_are_those_that_a_model_can_use():
    halting, fixed = make_model(BY_NAME["gut"]), make_model(BY_NAME["ndr"])
    own = ("convergence", "agreement", "stability", "confidence", "entropy")
    assert check_criteria(halting, None) == ("learned", *own)
    assert check_criteria(fixed, None) == own
    assert check_criteria(fixed, ["entropy", "entropy"]) == ("entropy",)
    for criterion, reason in {
        "learned": "the model has no learned halting",
        "probe": "run `hf-recurrent fit-probe` first",
        "patience": "there is none; choose convergence, agreement",
    }.items():
        with pytest.raises(ValueError, match=f"criterion is '{criterion}': .*{reason}"):
            check_criteria(fixed, [criterion])
    siamese = make_model(BY_NAME["gutlb_siamese"])
    assert check_criteria(siamese, None) == ("learned", "convergence")
    with pytest.raises(ValueError, match="criterion is 'entropy': the sentences of a pair have different chunks"):
        check_criteria(siamese, ["entropy"])
    with pytest.raises(ValueError, match=r"does not iterate one block \(architecture 'tlb'\)"):
        check_criteria(make_model(BY_NAME["tlb"]), None)
    with pytest.raises(ValueError, match="NDRModel has no head"):
        check_criteria(AutoModel.from_config(fixed.config), None)


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        (
            Goal(),
            "10 examples are too few .* tolerance of 0.01 at a confidence of 0.95 takes 299, even without an error",
        ),
        (Goal(tolerance=0), "tolerance is 0: pass a share above 0"),
        (Goal(tolerance=math.nan), "tolerance is nan: pass a share above 0"),
        (Goal(confidence=1.0), "confidence is 1.0: pass a share above 0 and below 1, as in 0.95"),
        (Goal(budget=(MEAN_DEPTH, 1.5)), "budget is 1.5: pass a share of full depth above 0 and up to 1"),
    ],
)
def test_bad_goals_are_refused_before_any_work(goal, message, monkeypatch):
    model, batch = make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    monkeypatch.setattr(type(model), "forward", lambda *_, **__: pytest.fail("there was work"))
    with pytest.raises(ValueError, match=message):
        calibrate(model, Examples([batch]), goal=goal, criteria=["convergence"])


def test_bad_examples_are_refused_before_any_work(monkeypatch):
    model, batch = make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    monkeypatch.setattr(type(model), "forward", lambda *_, **__: pytest.fail("there was work"))
    with pytest.raises(ValueError, match=r"takes 459 for 5 criteria.*or choose one criterion"):
        calibrate(model, Examples([batch]))
    with pytest.raises(ValueError, match="there are no examples to calibrate on"):
        calibrate(model, Examples([]), goal=MODEST)
    hidden = {**batch, "labels": torch.full_like(batch["labels"], -1)}
    with pytest.raises(ValueError, match="labels hold numbers below 0, which mark examples without a right answer"):
        calibrate(model, Examples([hidden]), goal=MODEST)
    unlabelled = {name: batch[name] for name in ("input_ids", "attention_mask")}
    for examples, tests in ((Examples([unlabelled]), {}), (Examples([batch]), {"test": Examples([unlabelled])})):
        with pytest.raises(ValueError, match=r"the examples have no labels.*calibrate without them"):
            calibrate(model, examples, tests, MODEST)


def test_a_model_says_itself_how_deep_it_can_go():
    model, batch = make_model(BY_NAME["ndr_act"]), make_batch(BY_NAME["ndr_act"])
    with pytest.raises(ValueError, match="pass at most that; only models with halting='none' take further steps"):
        calibrate(model, Examples([batch]), goal=MODEST, criteria=["learned"], max_depth=16)
