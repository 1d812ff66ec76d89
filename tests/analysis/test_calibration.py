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
    DEFAULT_GOAL,
    DIFFERS,
    MEAN_DEPTH,
    MOST_PASSES,
    RELATIVE_TIME,
    Examples,
    Goal,
    apply_calibration,
    calibrate,
    choose,
    fitting,
    prepare,
    unusual_inputs,
)
from hf_recurrent.analysis.depth_record import in_record
from hf_recurrent.analysis.exit_settings import GRIDS, Setting, check_criteria, fixed_depths, settings_of
from hf_recurrent.analysis.trials import Trials, timed_batches
from hf_recurrent.cli.calibrate import little_learned
from hf_recurrent.models.base.exit_calibration import calibration_problem
from hf_recurrent.models.config.exit_criteria import CRITERIA, FIXED
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    STEPS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    slow,
)
from support.token_heads import CHOICE, MASKED, TOKENS, make_head, make_head_batch

# what ten examples can show
MODEST = Goal(tolerance=0.4, confidence=0.6, repeats=1)
FULL = Setting(FIXED, max_depth=STEPS)


def unlabelled(batch):
    return {name: value for name, value in batch.items() if name != "labels"}


def own_labels(model, batch, **options):
    """The batch with the answers of full depth as labels, but for the last two."""
    with torch.no_grad():
        labels = model(**unlabelled(batch), **options).logits.argmax(-1)
    labels[-2:] = (labels[-2:] + 1) % 3
    return {**batch, "labels": labels}


def timed(monkeypatch, relative_time):
    """Let settings take the time that a function says."""

    def times(trials, batches, settings, sizes, *_):
        found = {trials.full: 1.0, **{setting: relative_time(setting) for setting in settings}}
        return {
            setting: {"times": dict.fromkeys(map(str, sizes), time), RELATIVE_TIME: time, "noise": 0.01}
            for setting, time in found.items()
        }

    monkeypatch.setattr(Trials, "times", times)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("gut", None),
        ("ndr", None),
        ("ut", None),
        ("albert_recurrent", None),
        ("gut_siamese", None),
        ("gut", CHOICE),
        ("gut", TOKENS),
        ("ndr", MASKED),
        *(
            slow(name, None)
            for name in ("ut_global", "gut_no_transition", "gut_length_cap", "gut_every_step", "ndr_act", "ndr_siamese")
        ),
        *(slow(name, None) for name in ("gutlb", "sut", "ouro_recurrent", "huginn_recurrent", "ndr_relative")),
        slow("huginn_recurrent", TOKENS),
        slow("ut", MASKED),
    ],
)
def test_one_pass_shows_what_the_model_answers_at_every_setting(name, head):
    model = make_model(BY_NAME[name]) if head is None else make_head(name, head)
    batch = make_batch(BY_NAME[name]) if head is None else make_head_batch(name, head)
    (prepared,), labelled = prepare(model, Examples([unlabelled(batch)]), labelled=False)
    trials = Trials(model, FULL, labelled)
    families = {FIXED: fixed_depths(model, STEPS), **{own: settings_of(own) for own in check_criteria(model, None)}}
    settings = [FULL, *(setting for own in families.values() for setting in own if in_record(model, setting))]
    computed = []
    hook = model.base_model.block.register_forward_hook(lambda *_: computed.append(1))
    found = trials.answers([prepared], settings)
    hook.remove()
    if name not in ("gutlb", "sut"):
        # each step is computed once
        assert len(computed) == (2 if name == "gut_length_cap" else 1) * STEPS
        assert len(settings) > STEPS - 1
    steps = set()
    for setting in settings:
        real = trials.run([prepared], setting)
        for answer, expected in zip(found[setting]["answer"], real["answer"], strict=True):
            assert np.array_equal(answer, expected), setting
        np.testing.assert_allclose(found[setting]["steps"], real["steps"], err_msg=str(setting))
        np.testing.assert_allclose(found[setting]["confidence"], real["confidence"], rtol=1e-4)
        steps |= set(real["steps"])
    assert settings == [FULL] or len(steps) >= STEPS


@pytest.fixture(scope="module")
def ndr():
    model = make_model(BY_NAME["ndr"])
    batch = own_labels(model, make_batch(BY_NAME["ndr"]), max_depth=9)
    examples = Examples([batch], [f"text {i}" for i in range(10)], batch["attention_mask"].sum(1).tolist())
    criteria = ["convergence", "confidence", "stability"]
    before = model.config.to_dict()
    with pytest.MonkeyPatch.context() as patch:
        timed(patch, lambda setting: 0.9 if setting.criterion == FIXED else 0.5)
        table = calibrate(model, examples, {"test": examples}, MODEST, criteria=criteria, max_depth=9)
    assert model.config.to_dict() == before
    return model, batch, table


def rows_of_families(table):
    """The rows of fixed depths, from deep to shallow, and those of each criterion."""
    curves = {name: own["curve"] for name, own in table["criteria"].items()}
    return {FIXED: table["fixed_depths"][::-1], **curves}


def test_rows_are_what_the_model_answers(ndr):
    model, batch, table = ndr
    right, depths = torch.tensor([True] * 8 + [False] * 2), set()
    for name, rows in rows_of_families(table).items():
        for row in rows:
            options = {"max_depth": row.get("max_depth", 9)}
            if name != FIXED:
                options |= {"exit_criterion": name, **{f"exit_{key}": row[key] for key in ("threshold", "patience")}}
            with torch.no_grad():
                output = model(**unlabelled(batch), **options)
            here = output.logits.argmax(-1) == batch["labels"]
            assert row["accuracy"] == pytest.approx(here.float().mean().item())
            assert row["mean_depth"] == pytest.approx(output.ponder_steps.float().mean().item())
            lost = (right & ~here).sum().item()
            assert row["risk"] == pytest.approx(lost / 10)
            assert row["p_value"] == pytest.approx(binom.cdf(lost, 10, 0.4))
            depths.add(round(row["mean_depth"], 3))
    assert len(depths) > 8
    assert (table["full_depth"]["accuracy"], table["full_depth"]["mean_depth"], table["max_depth"]) == (0.8, 9, 9)
    assert [row["max_depth"] for row in table["fixed_depths"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert json.loads(json.dumps(table, allow_nan=False)) == table


def test_a_family_is_certified_up_to_its_first_failure(ndr):
    _, _, table = ndr
    for name, rows in rows_of_families(table).items():
        # the level is shared by three criteria and the fixed depths
        passes = [row["p_value"] <= 0.4 / 4 for row in rows]
        first = [*passes, False].index(False)
        assert [row["safe"] for row in rows] == [place < first for place in range(len(rows))]
        sparing = [row for row in rows if row["safe"] and row["mean_depth"] < 9]
        ahead = min(sparing, key=lambda row: row["mean_depth"], default=None)
        assert [row for row in rows if row["relative_time"] is not None] == ([ahead] if ahead else [])
        if name != FIXED:
            assert table["criteria"][name]["chosen"] == (ahead and (ahead["threshold"] or ahead["patience"]))


def test_tests_show_the_choice_and_full_depth(ndr):
    *_, table = ndr
    row, test = table["calibrated"], table["tests"]["test"]
    assert (test["n"], test["full_accuracy"]) == (10, 0.8)
    for name in ("accuracy", "mean_depth", "risk", "relative_time"):
        assert test[name] == pytest.approx(row[name])
    buckets = test["by_difficulty"]
    assert sum(bucket["n"] for bucket in buckets) == 10
    assert sum(bucket["n"] * bucket["mean_depth"] for bucket in buckets) == pytest.approx(10 * row["mean_depth"])
    assert sum(bucket["n"] * bucket["full_accuracy"] for bucket in buckets) == pytest.approx(8)
    steps = [example["steps"] for example in test["examples"]]
    assert steps == sorted(steps)
    assert {example["text"] for example in test["examples"]} == {f"text {i}" for i in range(10)}


def test_a_calibrated_checkpoint_stops_as_chosen(ndr, tmp_path):
    _, batch, table = ndr
    chosen = table["chosen"]
    saved = make_model(BY_NAME["ndr"])
    apply_calibration(saved, table, benchmark="toy", benchmark_config="small", split="validation")
    saved.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert calibration_problem(again) is None
    record = again.config.exit_calibration
    assert (record["benchmark"], record["n"]) == ("toy", 10)
    assert (record["criterion"], record["threshold"]) == (chosen["criterion"], chosen["threshold"])
    options = {f"exit_{name}": value for name, value in chosen.items() if name != "min_depth"}
    with torch.no_grad():
        expected, found = (
            make_model(BY_NAME["ndr"])(**unlabelled(batch), max_depth=9, **options),
            again(**unlabelled(batch)),
        )
    assert found.ponder_steps.tolist() == expected.ponder_steps.tolist()
    steps, confidence = found.ponder_steps.double(), found.logits.softmax(-1).amax(-1).double()
    for name, values in (("steps", steps), ("confidence", confidence)):
        assert record["inputs"][name]["mean"] == pytest.approx(values.mean().item(), rel=1e-5)
        assert record["inputs"][name]["std"] == pytest.approx(values.std(correction=0).item(), rel=1e-4)
    again.config.exit_threshold = 0.123
    assert "the config has exit_threshold=0.123" in calibration_problem(again)


@pytest.mark.parametrize(
    ("name", "changes"), [("ndr", {}), ("gut", {}), ("albert_recurrent", {"step_classifiers": "separate"})]
)
def test_a_fixed_depth_is_chosen_where_it_is_fastest_and_stored(name, changes, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = make_model(BY_NAME[name])
    if changes:
        model = type(model)(type(model.config)(**{**model.config.to_dict(), **changes})).eval()
    batch = make_batch(BY_NAME[name])
    with torch.no_grad():
        batch["labels"] = model(**unlabelled(batch), max_depth=3).logits.argmax(-1)
    timed(monkeypatch, lambda setting: 0.4 if setting.criterion == FIXED else 0.8)
    examples = {"examples": Examples([batch]), "goal": MODEST, "criteria": ["convergence"]}
    only_exits = calibrate(model, **examples, only_exits=True)
    assert (only_exits["chosen"] or {}).get("criterion") != FIXED
    table = calibrate(model, **examples)
    depth = table["chosen"]["max_depth"]
    assert table["chosen"] == {
        "criterion": FIXED,
        "threshold": None,
        "patience": None,
        "max_depth": depth,
        "min_depth": 1,
    }
    assert table["calibrated"][RELATIVE_TIME] == 0.4
    with torch.no_grad():
        expected = model(**unlabelled(batch), max_depth=depth, **({"halting_threshold": 1.0} if name == "gut" else {}))
    apply_calibration(model, table, benchmark="toy", split="validation")
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert (again.config.num_hidden_layers, calibration_problem(again)) == (depth, None)
    with torch.no_grad():
        torch.testing.assert_close(again(**unlabelled(batch)).logits, expected.logits)


def test_learned_halting_is_calibrated_by_its_own_threshold(monkeypatch):
    timed(monkeypatch, lambda setting: 0.9 if setting.criterion == FIXED else 0.5)
    model = make_model(BY_NAME["gut"])
    batch = own_labels(model, make_batch(BY_NAME["gut"]), halting_threshold=1.0)
    table = calibrate(model, Examples([batch]), goal=MODEST, criteria=["learned"])
    curve = table["criteria"]["learned"]["curve"]
    assert [row["threshold"] for row in curve] == list(GRIDS["learned"])
    assert table["full_depth"]["accuracy"] == pytest.approx(0.8)
    most = torch.bincount(batch["labels"]).max().item()
    assert table["full_depth"]["majority_baseline"] == pytest.approx(most / 10)
    fields = apply_calibration(model, table)
    assert (fields["exit_criterion"], fields["halting_threshold"]) == ("learned", table["chosen"]["threshold"])


@pytest.mark.parametrize(("accuracy", "warns"), [(0.4, True), (0.59, True), (0.61, False), (None, False)])
def test_a_model_that_learned_little_is_told(accuracy, warns):
    # two standard errors of a half are 0.1
    lines = little_learned({"n": 100, "full_depth": {"accuracy": accuracy, "majority_baseline": 0.5}})
    assert len(lines) == warns
    if warns:
        assert f"full depth answers {100 * accuracy:.1f}% right, and the most frequent answer alone 50.0%" in lines[0]


@pytest.mark.parametrize("labelled", [True, False])
def test_without_labels_answers_are_compared_with_full_depth(labelled):
    model, batch = make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    batch = batch if labelled else unlabelled(batch)
    # answers that change with depth
    with torch.no_grad():
        model.classifier.bias -= model(**unlabelled(batch)).logits.mean(0)
        answers = {depth: model(**unlabelled(batch), max_depth=depth).logits.argmax(-1) for depth in range(1, 7)}
    goal = Goal(0.4, 0.6, labelled=False, repeats=1)
    table = calibrate(model, Examples([batch]), {"test": Examples([batch], ["a"] * 10)}, goal)
    assert table["risk"] == DIFFERS
    assert (table["full_depth"]["accuracy"] is None) == (not labelled)
    assert (table["full_depth"]["majority_baseline"] is None) == (not labelled)
    rows = [row for own in rows_of_families(table).values() for row in own]
    assert all((row["accuracy"] is None) == (not labelled) for row in rows)
    assert all(0 <= row["risk"] <= 1 for row in rows)
    differ = {depth: (own != answers[STEPS]).double().mean().item() for depth, own in answers.items()}
    assert max(differ.values()) > 0
    assert {row["max_depth"]: row["risk"] for row in table["fixed_depths"]} == pytest.approx(
        {depth: share for depth, share in differ.items() if depth < STEPS}
    )


def test_without_labels_a_budget_takes_the_answers_nearest_to_full_depth(monkeypatch):
    timed(monkeypatch, lambda setting: 0.5)
    model, batch = make_model(BY_NAME["ndr"]), unlabelled(make_batch(BY_NAME["ndr"]))
    goal = Goal(budget=(MEAN_DEPTH, 0.7), labelled=False, repeats=1)
    table = calibrate(model, Examples([batch]), goal=goal)
    rows = [row for own in rows_of_families(table).values() for row in own]
    affordable = [row for row in rows if row["mean_depth"] <= 0.7 * STEPS]
    assert table["calibrated"]["risk"] == min(row["risk"] for row in affordable)
    assert table["calibrated"]["mean_depth"] == min(
        row["mean_depth"] for row in affordable if row["risk"] == table["calibrated"]["risk"]
    )


@pytest.mark.parametrize("kind", ["tokens", "choice", "several"])
def test_whatever_is_answered_is_compared_with_full_depth(kind):
    goal = Goal(0.5, 0.4, labelled=False, repeats=1)
    if kind == "several":
        model, batch = make_model(BY_NAME["ndr"], problem_type="multi_label_classification"), make_batch(BY_NAME["ndr"])
    else:
        head = {"tokens": TOKENS, "choice": CHOICE}[kind]
        model, batch = make_head("ut", head), make_head_batch("ut", head)
    table = calibrate(model, Examples([unlabelled(batch)]), goal=goal, criteria=["convergence"])
    rows = table["criteria"]["convergence"]["curve"]
    assert table["n"] == len(batch["input_ids"])
    assert rows[0]["risk"] <= rows[-1]["risk"]


def test_language_models_are_judged_by_their_last_labelled_token():
    model, text = make_language_model(LANGUAGE_BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gut"])
    goal = Goal(0.5, 0.1, labelled=False, repeats=1)
    table = calibrate(model, Examples([text]), goal=goal, criteria=["agreement"])
    wanted = text["labels"][:, 1:].masked_fill(text["attention_mask"][:, :-1] == 0, -100)
    last = [int((row != -100).nonzero()[-1]) for row in wanted]

    def answers(**options):
        with torch.no_grad():
            output = model(**text, **options)
        found = output.logits[:, :-1].argmax(-1)
        return [found[place, at].item() for place, at in enumerate(last)], output.ponder_steps

    full, _ = answers(halting_threshold=1.0)
    curve = table["criteria"]["agreement"]["curve"]
    assert curve
    for row in curve:
        found, steps = answers(exit_criterion="agreement", exit_threshold=row["threshold"])
        assert row["risk"] == pytest.approx(np.mean(np.not_equal(found, full)))
        live = steps >= 0
        assert row["mean_depth"] == pytest.approx((torch.where(live, steps, 0).sum(1) / live.sum(1)).mean().item())
    bare = {name: text[name] for name in ("input_ids", "attention_mask")}
    assert calibrate(model, Examples([bare]), goal=goal, criteria=["agreement"])["n"] == 4


@pytest.mark.slow
def test_settings_that_take_passes_are_walked_to_the_first_failure(monkeypatch):
    model, batch = make_model(BY_NAME["gutlb"]), make_batch(BY_NAME["gutlb"])
    tried, run = [], Trials.run
    monkeypatch.setattr(Trials, "run", lambda trials, batches, key: tried.append(key) or run(trials, batches, key))
    table = calibrate(model, Examples([batch]), goal=Goal(0.3, 0.3, labelled=False, repeats=1))
    families = rows_of_families(table)
    assert len(tried) == 1 + sum(map(len, families.values())) <= 1 + MOST_PASSES
    # of each family evenly chosen ones, up to the first that is not certified
    for name, rows in families.items():
        assert all(row["safe"] for row in rows[:-1]), name
    walked = [setting.threshold for setting in tried if setting.criterion == "learned"]
    assert walked == [GRIDS["learned"][place] for place in (2, 6, 10)][: len(walked)]


@pytest.mark.slow
def test_two_stacks_are_judged_by_whole_targets():
    model, batches = make_translator(), make_pairs()
    goal = Goal(0.4, 0.6, labelled=False, repeats=1)
    table = calibrate(model, Examples(batches), goal=goal, criteria=["learned"])
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
    with pytest.raises(ValueError, match="the examples have no targets"):
        calibrate(model, Examples(list(map(unlabelled, batches))), goal=goal, criteria=["learned"])


def chosen(rows, goal=DEFAULT_GOAL, competing=None):
    """The value of the setting that is chosen from rows of (safe, mean depth, time, accuracy), by families."""
    settings = {FIXED: [Setting(FIXED, max_depth=depth) for depth in (9, 8, 5, 4, 3)]}
    curves, times = {}, {}
    for name, own in rows.items():
        keys = settings.get(name) or settings_of(name)
        for key, (safe, depth, time, *accuracy) in zip(keys, own, strict=False):
            right = accuracy[0] if accuracy else 0.5
            row = {"safe": safe, MEAN_DEPTH: depth, "accuracy": right}
            curves.setdefault(name, {})[key] = row
            times[key] = {RELATIVE_TIME: time, "noise": 0.02}
    asked = []

    def timed(group):
        asked.append(len(group))
        return {key: times[key] for key in group}

    flat = {key: row for own in curves.values() for key, row in own.items()}
    choice, found = choose(fitting(flat, 10.0, goal), competing or list(curves), goal, timed)
    assert all(number <= 4 for number in asked)
    return choice and choice.value, set(found)


def test_the_fastest_certified_setting_is_chosen():
    # within a family the time follows the steps, and only the settings ahead are timed
    rows = {
        FIXED: [(True, 9.0, 0.9), (True, 8.0, 0.8)],
        "convergence": [(True, 7.0, 0.7), (True, 6.0, 0.6), (False, 1.0, 0.1)],
    }
    assert chosen(rows) == (0.01, {Setting(FIXED, max_depth=8), Setting("convergence", 0.01, 1)})
    rows["convergence"][1] = (True, 6.0, 0.85)
    assert chosen(rows)[0] == 8
    # differences within the noise go to fewer steps
    rows["convergence"][1] = (True, 6.0, 0.815)
    assert chosen(rows)[0] == 0.01
    assert chosen({**rows, "convergence": [(True, 6.0, 0.9)]}, competing=["convergence"])[0] == 0.001
    # full depth itself is certified
    assert chosen({"convergence": [(True, 6.0, 1.1)]})[0] is None
    assert chosen({"convergence": [(True, 10.0, 0.9), (False, 4.0, 0.5)]}) == (None, set())


def test_budgets_take_the_most_accurate_that_is_fast_enough():
    rows = {
        "convergence": [(True, 9.0, 1.0, 0.9), (True, 5.0, 0.7, 0.8), (False, 4.0, 0.6, 0.85), (False, 1.0, 0.4, 0.3)]
    }

    def threshold(measure, most):
        return chosen(rows, Goal(budget=(measure, most)))[0]

    assert threshold(MEAN_DEPTH, 0.5) == GRIDS["convergence"][2]
    assert threshold(RELATIVE_TIME, 0.65) == GRIDS["convergence"][2]
    assert threshold(RELATIVE_TIME, 0.5) == GRIDS["convergence"][3]
    assert threshold(RELATIVE_TIME, 0.3) is None


def test_times_are_of_batches_of_the_named_sizes():
    model, batch = make_model(BY_NAME["gut"]), make_batch(BY_NAME["gut"], rows=12)
    prepared, _ = prepare(model, Examples([batch, batch]), labelled=True)
    single = timed_batches(prepared, 1)
    assert len(single) == 24
    # without padding that only other rows need
    assert [int(each.inputs["attention_mask"].all()) for each in single] == [1] * 24
    assert [len(each.labels) for each in timed_batches(prepared, 5)] == [5, 5, 2, 5, 5, 2]
    setting = Setting(FIXED, max_depth=2)
    found = Trials(model, FULL, True).times(prepared, [setting], (1, 5), repeats=2)
    for own in found.values():
        assert own[RELATIVE_TIME] == pytest.approx(np.mean([*own["times"].values()]))
    assert found[setting]["times"].keys() == {"1", "5"}
    assert found[FULL][RELATIVE_TIME] == 1


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
    found = unusual_inputs(calibration, pd.DataFrame({"steps": mean + half, "confidence": 0.9}))
    assert (found is not None) == unusual
    if unusual:
        assert found.endswith(f"(toy, validation), to which its guarantee is limited: mean steps {mean:g} instead of 5")


def test_grids_go_from_safe_to_fast():
    for name, thresholds in GRIDS.items():
        falls = name in CRITERIA and CRITERIA[name].falls
        assert list(thresholds) == sorted(set(thresholds), reverse=not falls)
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


BATCH = make_batch(BY_NAME["ndr"])


@pytest.mark.parametrize(
    ("examples", "goal", "message"),
    [
        (
            BATCH,
            Goal(),
            "10 examples are too few .* takes 368 for 2 families of settings .fixed_depth, convergence., even",
        ),
        (BATCH, Goal(tolerance=0), "tolerance is 0: pass a share above 0"),
        (BATCH, Goal(tolerance=math.nan), "tolerance is nan: pass a share above 0"),
        (BATCH, Goal(repeats=0), "repeats is 0: pass the number of passes to time, at least 1"),
        (BATCH, Goal(confidence=1.0), "confidence is 1.0: pass a share above 0 and below 1, as in 0.95"),
        (BATCH, Goal(budget=(MEAN_DEPTH, 1.5)), "budget is 1.5: pass a share of full depth above 0 and up to 1"),
        (None, MODEST, "there are no examples to calibrate on"),
        ({**BATCH, "labels": BATCH["labels"] * 0 - 1}, MODEST, "labels hold numbers below 0, which mark examples"),
        (unlabelled(BATCH), MODEST, r"the examples have no labels.*calibrate without them"),
    ],
)
def test_bad_requests_are_refused_before_any_work(examples, goal, message, monkeypatch):
    model = make_model(BY_NAME["ndr"])
    monkeypatch.setattr(type(model), "forward", lambda *_, **__: pytest.fail("there was work"))
    with pytest.raises(ValueError, match=message):
        calibrate(model, Examples([] if examples is None else [examples]), goal=goal, criteria=["convergence"])


def test_a_model_says_itself_how_deep_it_can_go():
    model, batch = make_model(BY_NAME["ndr_act"]), make_batch(BY_NAME["ndr_act"])
    with pytest.raises(ValueError, match="pass at most that; only models with halting='none' take further steps"):
        calibrate(model, Examples([batch]), goal=MODEST, criteria=["learned"], max_depth=16)
