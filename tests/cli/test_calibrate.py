"""`hf-recurrent calibrate`, and `evaluate` of what it calibrated."""

import contextlib
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from hf_recurrent.analysis.trials import Trials
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.cli import main
from hf_recurrent.hub import lint_card, read_results
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.base.exit_calibration import calibration_problem
from hf_recurrent.models.config.exit_criteria import FIXED
from hf_recurrent.utils import percent
from support.families import BY_NAME, make_model

pytestmark = pytest.mark.slow

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
BENCHMARK = "compositional_table_lookup"
SIZES = {"num_train": 20, "num_validation": 100, "num_test": 30}
SET = ["--benchmark_params", json.dumps(SIZES)]
# what a hundred examples can show
MODEST = ("--tolerance", "0.05", "--confidence", "0.9", "--repeats", "1")
CONVERGENCE = ("--criterion", "convergence", "--only_exits", "--max-depth", "16")


def uncalibrated(folder):
    """A checkpoint that was never trained to halt, as it was before its calibration."""
    ignored = shutil.ignore_patterns("assets", "results.json", "calibration.json", "*.md", "*.py")
    shutil.copytree(MODEL_CARDS / "ndr-ctl-forward", folder, ignore=ignored)
    config = {name: value for name, value in read(folder).items() if not name.startswith(("exit_", "min_depth"))}
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 8}))
    return folder


@pytest.fixture
def checkpoint(tmp_path):
    return uncalibrated(tmp_path / "checkpoint")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A checkpoint with code of an earlier version, calibrated -> its folder, its config before, and what was said."""
    folder = uncalibrated(tmp_path_factory.mktemp("calibrated") / "checkpoint")
    (folder / "modeling_ndr.py").write_text("# of an earlier version")
    before, said = read(folder), io.StringIO()
    splits = ("--test-split", "test", "--test-split", "test_ood")
    words = ("calibrate", str(folder), BENCHMARK, *SET, *MODEST, *CONVERGENCE, *splits, "--in_place")
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as finished:
        main(words)
    assert finished.value.code == 0
    return folder, before, said.getvalue()


def read(folder, name="config.json"):
    return json.loads((folder / name).read_text())


def test_the_choice_is_stored_in_the_checkpoint(calibrated):
    checkpoint, before, out = calibrated
    found, config = read(checkpoint, "calibration.json"), read(checkpoint)
    chosen = found["chosen"]
    assert (found["benchmark"], found["benchmark_config"], found["split"]) == (BENCHMARK, "forward", "validation")
    assert (found["n"], found["difficulty"], found["max_depth"]) == (100, "depth", 16)
    assert (chosen["criterion"], config["exit_criterion"]) == ("convergence", "convergence")
    assert chosen["threshold"] == config["exit_threshold"] == found["criteria"]["convergence"]["chosen"]
    assert config["num_hidden_layers"] == 16
    # the code is that of the saved head
    kept = before.keys() - {"num_hidden_layers", "auto_map"}
    assert {name: config[name] for name in kept} == {name: before[name] for name in kept}
    tested = {name: table["n"] for name, table in found["tests"].items()}
    assert tested == {"all tested splits": 60, "test": 30, "test_ood": 30}
    together = found["tests"]["all tested splits"]["by_difficulty"]
    assert [row["value"] for row in together][-2:] == ["9", "10"]
    # a step more for each function
    depths = {row["value"]: row["mean_depth"] for row in found["tests"]["test_ood"]["by_difficulty"]}
    assert depths["10"] > depths["9"] > found["tests"]["test"]["mean_depth"] > 4
    assert found["tests"]["test_ood"]["accuracy"] > 0.9
    example = found["tests"]["test"]["examples"][-1]
    assert re.fullmatch(r"[01]{3}( [a-k])+", example["text"])
    assert example["difficulty"] == len(example["text"].split()) - 1
    assert len(example["label"]) == len(example["prediction"]) == 3
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    assert calibration_problem(model) is None
    for words in ("full depth", f"convergence {chosen['threshold']:g}", "test_ood"):
        assert re.sub(" +", " ", words) in re.sub(" +", " ", out)
    flat = " ".join(out.split())
    assert f"Chosen: convergence at {chosen['threshold']:g}. With a confidence of 90.0% at most 5%" in flat
    own = next(row for row in found["criteria"]["convergence"]["curve"] if row["threshold"] == chosen["threshold"])
    assert own.items() >= found["calibrated"].items()
    (fixed,) = (row for row in found["fixed_depths"] if row["relative_time"] is not None)
    assert fixed["max_depth"] == min(row["max_depth"] for row in found["fixed_depths"] if row["safe"])
    told = f"the best fixed depth, a fixed depth of {fixed['max_depth']}, takes {percent(fixed['relative_time'])}"
    assert f"It takes {percent(own['relative_time'])} of the time of full depth; {told}" in flat
    # a checkpoint without a card has none whose splits are out of date
    assert "--card" not in flat
    assert not any(len(line) > 80 for line in out.splitlines() if not line.startswith("wrote"))


@pytest.mark.slow
def test_code_beside_the_checkpoint_learns_the_new_fields(calibrated):
    checkpoint = calibrated[0]
    assert "exit_criterion" in (checkpoint / "configuration_ndr.py").read_text()
    assert "class NDRForSequenceClassification" in (checkpoint / "modeling_ndr.py").read_text()


@pytest.mark.slow
def test_inputs_and_weights_that_void_the_promise(run, succeed, calibrated, tmp_path):
    checkpoint = shutil.copytree(calibrated[0], tmp_path / "checkpoint")
    words = ("evaluate", checkpoint, BENCHMARK, *SET, "--split")
    _, err = succeed(*words, "test")
    assert "warning" not in err
    err = run(*words, "test_ood")[2]
    assert "warning: test_ood: these inputs look unlike those of the calibration" in err
    assert "mean steps" in err
    # which says nothing about other depths
    assert "warning" not in run(*words, "test_ood", "--max-depth", "3")[2]
    weights = load_file(checkpoint / "model.safetensors")
    weights["classifier.weight"] *= 0.999
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    err = run(*words, "test")[2]
    assert "warning: checkpoint: the exit criterion was calibrated on" in err
    assert "the weights are others" in err


def test_a_copy_is_calibrated_by_default(succeed, checkpoint, tmp_path):
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    words = (*CONVERGENCE, "--budget", "depth=0.6", "--limit", "40", "--repeats", "1", "--without-labels")
    out, _ = succeed("calibrate", checkpoint, BENCHMARK, *SET, *words)
    copy = tmp_path / "checkpoint-calibrated"
    assert f"wrote {copy}" in out
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    found = read(copy, "calibration.json")
    assert (found["n"], found["risk"], found["budget"]) == (40, "differs", {"measure": "mean_depth", "most": 0.6})
    assert list(found["tests"]) == ["test"]
    assert found["tests"]["test"]["mean_depth"] < 0.65 * 16
    assert "nothing is guaranteed of its errors" in " ".join(out.split())
    model = AutoModelForSequenceClassification.from_pretrained(copy)
    assert model.config.exit_criterion == "convergence"
    assert calibration_problem(model) is None
    assert (copy / "modeling_ndr.py").is_file()


def test_a_fixed_depth_is_stored_where_it_is_fastest(succeed, checkpoint, evaluated, monkeypatch):
    def times(trials, batches, settings, sizes, *_):
        times = {setting: 0.4 if setting.criterion == FIXED else 0.7 for setting in settings} | {trials.full: 1.0}
        return {key: {"times": {}, "relative_time": time, "noise": 0.01} for key, time in times.items()}

    monkeypatch.setattr(Trials, "times", times)
    words = ("--criterion", "convergence", "--max-depth", "16", "--test_split", "test", "--test_split", "test_ood")
    out, _ = succeed("calibrate", checkpoint, BENCHMARK, *SET, *MODEST, *words)
    copy = checkpoint.with_name("checkpoint-calibrated")
    found, config = read(copy, "calibration.json"), read(copy)
    depth = found["chosen"]["max_depth"]
    assert (config["num_hidden_layers"], config["exit_calibration"]["criterion"]) == (depth, FIXED)
    assert depth < 8
    flat = " ".join(out.split())
    assert f"Chosen: a fixed depth of {depth}. With a confidence of 90.0% at most 5%" in flat
    assert "takes 40.0% of the time of full depth; the best exit, convergence at" in flat
    # commands of up to ten functions take as many steps
    risk = found["tests"]["test_ood"]["risk"]
    assert risk > 0.05
    assert f"test_ood: risk {percent(risk)}" in flat
    # of both splits together, and of the harder one
    assert flat.count("This risk is above the tolerance of 5%: the guarantee holds for data") == 2
    (table,) = evaluated(copy, BENCHMARK, *SET, "--split", "test")[0].values()
    assert (table["accuracy"], table["max_depth"]) == (found["tests"]["test"]["accuracy"], depth)


def test_nothing_is_stored_if_nothing_is_safe(run, checkpoint):
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    # the first prediction that can be compared with another is that of the last step, which is then taken anyway
    words = ("--criterion", "stability", "--max-depth", "2", "--only_exits", "--in_place")
    status, out, _ = run("calibrate", checkpoint, BENCHMARK, *SET, *MODEST, *words)
    assert status == 1
    flat = " ".join(out.split())
    assert "No setting spares steps with at most 5% errors with a confidence of 90.0%." in flat
    assert "Nothing is stored: the checkpoint stays as it is." in flat
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before


@pytest.mark.slow
def test_the_card_shows_what_was_calibrated(refuse, succeed, tmp_path):
    checkpoint = shutil.copytree(MODEL_CARDS / "ndr-ctl-forward", tmp_path / "checkpoint")
    weights = load_file(checkpoint / "model.safetensors")
    save_file({name: weight.bfloat16().float() for name, weight in weights.items()}, checkpoint / "model.safetensors")
    with pytest.raises(ValueError, match="results are of other weights"):
        lint_card(checkpoint)
    out, _ = succeed("calibrate", checkpoint, BENCHMARK, *SET, *MODEST, *CONVERGENCE, "--in_place")
    assert f"wrote {checkpoint / 'README.md'}" in out
    results, found = read_results(checkpoint), read(checkpoint, "calibration.json")
    assert results["calibration"]["chosen"] == found["chosen"]
    assert found["arguments"] == shlex.join([BENCHMARK, *SET, *MODEST, *CONVERGENCE])
    assert f"hf-recurrent calibrate ndr-ctl-forward {found['arguments']}" in (checkpoint / "README.md").read_text()
    words = ("evaluate", checkpoint, BENCHMARK, "--split", "test_ood", "--card")
    succeed(*words)
    lint_card(checkpoint)
    far = read_results(checkpoint)["splits"]["test_ood"]
    assert (far["n"], far["halting"], far["distribution"]) == (1_000, "convergence", "deeper than training")
    assert far["accuracy"] > 0.9
    # others are as they were
    assert read_results(checkpoint)["splits"]["test"] == results["splits"]["test"]
    refused = "the card has results of 1,000 examples of 'test_ood', and these data have 30: name the data of the card"
    assert refused in refuse(*words, *SET)


def test_a_copy_has_the_card_of_the_original(succeed, tmp_path):
    words = (*CONVERGENCE, "--budget", "depth=0.6", "--limit", "40", "--repeats", "1", "--without-labels")
    succeed("calibrate", MODEL_CARDS / "ndr-ctl-forward", BENCHMARK, *SET, *words, "--output", tmp_path / "copy")
    lint_card(tmp_path / "copy")
    results = read_results(tmp_path / "copy")
    assert (results["name"], results["calibration"]["n"]) == ("copy", 40)
    assert "--output" not in results["calibration"]["arguments"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "2000 examples are too few"),
        (("--tolerance", "2"), "tolerance is 2.0: pass a share above 0 and below 1"),
        (("--budget", "width=0.5"), "budget is 'width=0.5': pass a share of full depth, as in depth=0.5 or time=0.5"),
        (("--budget", "time=1.5"), "budget is 1.5: pass a share of full depth above 0 and up to 1"),
        (("--criterion", "probe"), "run `hf-recurrent fit-probe` first"),
        (("--criterion", "learned"), "the model has no learned halting"),
        (
            ("--criterion", "entropy"),
            "100 examples are too few to calibrate on: .* 368 for 2 families of settings .fixed_depth, entropy., even",
        ),
        (("--limit", "50"), "50 examples are too few to calibrate on: .* takes 459 for 5 families"),
        (("--difficulty", "width"), "difficulty is 'width': the examples have depth"),
        (("--output", "."), "the folder of the copy, ., is not empty: name a new one with --output"),
        (("--output", "x", "--in_place"), "--output x and --in_place: a checkpoint is changed or copied"),
        (("--batch_size", "1,many"), "--batch_size is '1,many': pass numbers of examples with commas between"),
    ],
)
def test_bad_requests_write_nothing(refuse, checkpoint, words, message):
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    if not words:
        words = ("--tolerance", "0.0001", "--criterion", "entropy")
    assert re.search(message, refuse("calibrate", checkpoint, BENCHMARK, *SET, *words))
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before


def test_checkpoints_that_do_not_fit(refuse, checkpoint, tmp_path):
    save_checkpoint(make_model(BY_NAME["tlb"]), tmp_path / "tlb", build_tokenizer("listops"))
    assert "does not iterate one block (architecture 'tlb')" in refuse("calibrate", tmp_path / "tlb", "listops")
    assert "someone/model is no local folder" in refuse("calibrate", "someone/model", "listops", "--in_place")
    assert "tlbb does not exist; did you mean tlb" in refuse("calibrate", tmp_path / "tlbb", "listops")
    words = ("--budget", "depth=0.5")
    assert "which is read in segments" in refuse("calibrate", checkpoint, "long_documents", *words)
    assert "answers with" in refuse("calibrate", checkpoint, "listops", *words)
    own, other = tmp_path / "own.csv", tmp_path / "other.csv"
    own.touch()
    other.touch()
    same = ("--split", "test", "--test_file", other)
    assert "split is 'test': " in refuse("calibrate", checkpoint, own, *same, *words)
