"""`hf-recurrent fit-probe`."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_recurrent import GUTConfig, GUTForSequenceClassification
from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.hub import lint_card
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.base.exit_calibration import exit_digest
from hf_recurrent.tasks.checkpoints import Request, load_checkpoint
from hf_recurrent.utils import write_json
from support.families import BY_NAME, make_model

MODEL_CARDS = Path(__file__).parents[2] / "model_cards"
BENCHMARK = "compositional_table_lookup"
SIZES = {"num_train": 600, "num_validation": 20, "num_test": 200}
SET = ["--benchmark_params", json.dumps(SIZES)]
CHANGED = {"config.json", "model.safetensors"}


@pytest.fixture
def checkpoint(tmp_path):
    """One that was never trained to halt, and calibrated with another criterion."""
    ignored = shutil.ignore_patterns("*.py")
    return shutil.copytree(MODEL_CARDS / "ndr-ctl-forward", tmp_path / "checkpoint", ignore=ignored)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


@torch.no_grad()
def answers(checkpoint, **options):
    """Share of right answers and mean steps on the test split."""
    from hf_recurrent.cli.shared import encoded

    loaded = load_checkpoint(checkpoint, "cpu")
    request = Request(BENCHMARK, splits=("test",), params=SIZES)
    (rows,) = encoded(loaded, request, 200, 0)
    right, steps = [], []
    for batch in rows.batches(loaded.tokenizer, 100):
        labels = batch.pop("labels")
        output = loaded.model(**batch, **options)
        right += (output.logits.argmax(-1) == labels).tolist()
        steps += output.ponder_steps.tolist()
    return sum(right) / len(right), sum(steps) / len(steps)


@pytest.mark.slow
def test_the_checkpoint_stops_when_its_answer_is_right(succeed, checkpoint):
    before, config = contents(checkpoint), read_config(checkpoint)
    weights = load_file(checkpoint / "model.safetensors")
    out, _ = succeed("fit-probe", checkpoint, BENCHMARK, *SET, "--in_place")
    after = contents(checkpoint)
    assert {name for name in before if after[name] != before[name]} == CHANGED
    # the code of the new fields, and nothing hidden
    assert {name.split("_")[0] for name in after.keys() - before.keys()} == {"configuration", "kernels", "modeling"}
    found = load_file(checkpoint / "model.safetensors")
    assert all(torch.equal(found.pop(name), values) for name, values in weights.items())
    assert {name.split(".")[0] for name in found} == {"exit_probe"}
    assert {values.dtype for values in found.values()} == {torch.float32}
    new = read_config(checkpoint)
    # transformers leaves out what has its default; the code is that of the saved head
    kept = config.keys() & new.keys() - {"transformers_version", "exit_probe_size", "auto_map"}
    assert {name: new[name] for name in kept} == {name: config[name] for name in kept}
    assert (new["exit_probe_size"], new["exit_criterion"]) == (64, "convergence")
    # a probe has no part in the exit that was calibrated, and the card stays true
    assert new["exit_calibration"] == config["exit_calibration"]
    lint_card(checkpoint)
    flat = " ".join(out.split())
    assert "Probe of width 64, fitted to 600 examples of train (600 units after 1 to 15 steps)" in flat
    numbers = re.search(r"examples ([\d.]+)% .* for ([\d.]+)%: .* curve (0\.\d+), .* score (0\.\d+)", flat)
    share, knows, area, brier = map(float, numbers.groups())
    assert 50 < share < 90
    assert knows > 80
    assert area > 0.85
    assert brier < 0.12
    full, deep = answers(checkpoint, exit_criterion="learned")
    early, shallow = answers(checkpoint, exit_criterion="probe", exit_threshold=0.97)
    assert deep == 16
    assert shallow < 7
    assert early > full - 0.03
    # once more, on the first one's config
    out, _ = succeed(
        "fit-probe", checkpoint, BENCHMARK, *SET, "--limit", "100", "--size", "5", "--max-depth", "4", "--in_place"
    )
    flat = " ".join(out.split())
    assert "It replaces the probe that the checkpoint had." in flat
    assert "fitted to 100 examples of train (100 units after 1 to 3 steps)" in flat
    assert load_file(checkpoint / "model.safetensors")["exit_probe.up_proj.weight"].shape == (5, 64)
    assert (read_config(checkpoint)["exit_probe_size"], read_config(checkpoint)["num_hidden_layers"]) == (5, 16)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("hf_recurrent.analysis.probe.MOST_UPDATES", 20)


def small_gut(folder, **changes):
    torch.manual_seed(0)
    tokenizer = build_tokenizer("listops")
    names = {number: str(number) for number in range(10)}
    config = GUTConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_attention_heads=1,
        intermediate_size=16,
        num_hidden_layers=3,
        id2label=names,
        pad_token_id=tokenizer.pad_token_id,
        **{"halting": "global", **changes},
    )
    return save_checkpoint(GUTForSequenceClassification(config), folder, tokenizer)


SHORT = {"num_train": 60, "num_validation": 2, "num_test": 2, "max_depth": 2}
LISTOPS = ("listops", "--benchmark_params", json.dumps(SHORT), "--size", "4")


def test_a_failure_leaves_the_checkpoint_as_it_was(run, succeed, quick, tmp_path, monkeypatch):
    folder = small_gut(tmp_path / "gut")
    before = contents(folder)

    def fails(model, target, tokenizer):
        save_checkpoint(model, target, tokenizer)
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("hf_recurrent.hub.checkpoint.save_checkpoint", fails)
        assert "no space left" in run("fit-probe", folder, *LISTOPS, "--in_place")[2]
        assert contents(folder) == before
        assert "no space left" in run("fit-probe", folder, *LISTOPS, "--output", tmp_path / "copy")[2]
    assert [path.name for path in tmp_path.iterdir()] == ["gut"]
    succeed("fit-probe", folder, *LISTOPS, "--in_place")
    # its code has probes from now on
    expected = CHANGED | {"modeling_gut.py"}
    assert {name for name, content in contents(folder).items() if content != before[name]} == expected


def test_weights_keep_their_precision(succeed, quick, tmp_path):
    folder = small_gut(tmp_path / "gut")
    save_checkpoint(load_checkpoint(folder, "cpu", dtype=torch.bfloat16).model, folder)
    before = load_file(folder / "model.safetensors")
    succeed("fit-probe", folder, *LISTOPS, "--in_place")
    after = load_file(folder / "model.safetensors")
    assert {values.dtype for values in before.values()} == {torch.bfloat16, torch.float32}
    assert {name: after[name].dtype for name in before} == {name: values.dtype for name, values in before.items()}
    assert all(torch.equal(after[name], values) for name, values in before.items())
    assert after["exit_probe.norm.weight"].dtype == torch.float32


@pytest.mark.parametrize("criterion", ["convergence", "probe"])
def test_a_probe_voids_the_calibration_of_a_probe_alone(succeed, quick, tmp_path, caplog, criterion):
    folder = small_gut(tmp_path / "gut")
    succeed("fit-probe", folder, *LISTOPS, "--in_place")
    model = load_checkpoint(folder, "cpu").model
    fields = {"exit_criterion": criterion, "exit_threshold": 0.3}
    source = {"benchmark": "listops", "split": "unseen"}
    calibration = {**source, "fields": fields, "weights": exit_digest(model, criterion)}
    write_json(folder / "config.json", {**read_config(folder), **fields, "exit_calibration": calibration})
    succeed("fit-probe", folder, *LISTOPS, "--seed", "5", "--in_place")
    told = "the exit criterion was calibrated on listops (unseen), but the weights are others"
    new = read_config(folder)
    if criterion == "probe":
        assert told in caplog.text
        assert new["exit_calibration"] is None
    else:
        assert told not in caplog.text
        assert new["exit_calibration"] == calibration
    assert (new["exit_criterion"], new["exit_threshold"]) == (criterion, 0.3)


def test_checkpoints_that_do_not_fit(refuse, tmp_path):
    folder = small_gut(tmp_path / "gut")
    before = contents(folder)
    assert "pass examples of which the model answers some rightly" in refuse(
        "fit-probe", folder, *LISTOPS, "--limit", "2"
    )
    assert "is not empty: name a new one" in refuse("fit-probe", folder, *LISTOPS, "--output", folder)
    assert "a checkpoint is changed or copied" in refuse("fit-probe", folder, *LISTOPS, "--output", "x", "--in_place")
    assert contents(folder) == before
    assert "someone/model is no local folder" in refuse("fit-probe", "someone/model", "listops", "--in_place")
    save_checkpoint(make_model(BY_NAME["tlb"]), tmp_path / "tlb", build_tokenizer("listops"))
    assert "does not iterate one block (architecture 'tlb')" in refuse("fit-probe", tmp_path / "tlb", "listops")
