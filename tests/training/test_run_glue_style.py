"""The script from recipe to publishable folder: interrupted, resumed, repeated, refused."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tiny_run import SCRIPT, TINY

from hf_recurrent.hub import lint_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.training.evaluate import Request, load_checkpoint
from hf_recurrent.training.reevaluation import prepare_reevaluation
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close
from support.families import papers_halting
from support.scripts import run_script

# a resumed run warns of nothing but the checkpoint it skips
pytestmark = [pytest.mark.filterwarnings("ignore:skipping the incomplete:UserWarning"), pytest.mark.slow]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def weights(folder):
    return load_file(Path(folder) / "model.safetensors")


def assert_same_weights(first, second):
    assert_close(weights(first), weights(second), 1e-4)


def kill_at(monkeypatch, method, step):
    """Interrupt the run where `method` of the trainer is called at a global step; returns what lifts that."""
    original = getattr(RecurrentTrainer, method)

    def wrapped(self, *args, **kwargs):
        if self.state.global_step == step:
            raise Killed
        return original(self, *args, **kwargs)

    monkeypatch.setattr(RecurrentTrainer, method, wrapped)
    return lambda: monkeypatch.setattr(RecurrentTrainer, method, original)


def killed(*args, **kwargs):
    raise Killed


def train_without_evaluation(script, argv, monkeypatch):
    """Run `script` until there are weights to evaluate."""
    with monkeypatch.context() as patch:
        patch.setattr("hf_recurrent.training.trainer_run.evaluate_run", killed)
        with pytest.raises(Killed):
            script.main(argv)


@pytest.fixture(scope="module")
def straight(script, tmp_path_factory):
    """A tiny run without interruption."""
    folder = tmp_path_factory.mktemp("straight")
    recipe = folder / "tiny.yaml"
    further = {"length_generalization": {"num_test": 4, "min_length": 200, "max_length": 210}}
    recipe.write_text(yaml.safe_dump({**TINY, "evaluate_on": ["length_generalization"], "evaluate_params": further}))
    script.main([str(recipe), "--output_dir", str(folder / "run"), "--write_predictions", "--timing"])
    return folder / "run"


def test_folder_is_publishable(straight):
    names = {path.name for path in straight.iterdir()}
    assert {"README.md", "card.json", "config.json", "model.safetensors", "modeling_gut.py"} <= names
    assert {"tokenizer.json", "halting_stats.json", "recipe.yaml", "run.json", "assets"} <= names
    assert not [path for path in straight.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert not list(straight.glob("checkpoint-*"))
    lint_card(straight)
    assert json.loads((straight / "run.json").read_text())["finished"] is True
    recipe = yaml.safe_load((straight / "recipe.yaml").read_text())
    assert recipe["lr_schedule"] == "rootwarmup"
    assert "output_dir" not in recipe
    card = json.loads((straight / "card.json").read_text())
    splits = [result["split"] for result in card["results"]]
    assert splits[0] == "test"
    assert any(split.startswith("length_generalization/") for split in splits)
    further = {"length_generalization": {"num_test": 4, "min_length": 200, "max_length": 210}}
    assert card["benchmark"]["further_parameters"] == further
    text = (straight / "README.md").read_text()
    assert "| `max_length` of length_generalization | `210` |" in text
    assert card["training"]["command"].startswith("accelerate launch training/run_glue_style.py tiny.yaml")
    assert card["training"]["steps"] == 12
    assert len((straight / "predictions" / "test.jsonl").read_text().splitlines()) == 24
    assert load_config(straight)["ponder_loss_weight"] == 0.1


def test_a_card_finds_the_examples_of_all_its_splits_again(straight):
    checkpoint = load_checkpoint(str(straight))
    again = prepare_reevaluation(straight, checkpoint, Request("listops"))
    sizes = {split.name: len(split.dataset) for split in again.splits}
    assert sizes == {result.split: result.table["n"] for result in again.card.results}
    assert any(name.startswith("length_generalization/") for name in sizes)


def load_config(folder):
    return json.loads((folder / "config.json").read_text())


def test_finished_run_is_left_alone(script, straight, capsys):
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*")}
    script.main([str(straight.parent / "tiny.yaml"), "--output_dir", str(straight), "--write_predictions"])
    assert "nothing to train" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*")} == before


def test_flags_of_the_card_alone_reach_the_card_of_a_finished_run(script, straight, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    weights, before = (folder / "model.safetensors").read_bytes(), read_card(folder)
    recipe = str(straight.parent / "tiny.yaml")
    flags = ["--license", "mit", "--title=Another title", "--dataset-id", "org/listops"]
    script.main([recipe, "--output_dir", str(folder), "--write_predictions", *flags])
    assert "nothing to train; its card is written anew" in capsys.readouterr().out
    card = read_card(folder)
    assert card.claim == before.claim.replace(before.model_name, "Another title")
    assert (card.model_name, card.license, card.benchmark.dataset_id) == ("Another title", "mit", "org/listops")
    assert replace(card, claim="", model_name="", license=None, benchmark=before.benchmark) == replace(
        before, claim="", model_name=""
    )
    lint_card(folder)
    assert (folder / "model.safetensors").read_bytes() == weights
    script.main([recipe, "--output_dir", str(folder), "--write_predictions", *flags])
    assert "written anew" not in capsys.readouterr().out


def test_other_run_is_refused(script, straight):
    recipe = str(straight.parent / "tiny.yaml")
    with pytest.raises(ValueError, match="different run"):
        script.main([recipe, "--output_dir", str(straight), "--seed", "7"])


# after step 6 is within an epoch (8 steps an epoch), after step 8 at its end
@pytest.mark.parametrize("step", [6, 9])
def test_resumed_run_equals_straight_run(script, straight, tmp_path, monkeypatch, step):
    recipe, folder = str(straight.parent / "tiny.yaml"), tmp_path / "run"
    lift = kill_at(monkeypatch, "training_step", step)
    with pytest.raises(Killed):
        script.main([recipe, "--output_dir", str(folder)])
    assert (folder / f"checkpoint-{step // 4 * 4}").is_dir()
    lift()
    train_without_evaluation(script, [recipe, "--output_dir", str(folder)], monkeypatch)
    assert_same_weights(folder, straight)


def test_run_killed_while_saving_goes_on_from_the_checkpoint_before(script, straight, tmp_path, monkeypatch):
    recipe, folder = str(straight.parent / "tiny.yaml"), tmp_path / "run"
    lift = kill_at(monkeypatch, "_save_optimizer_and_scheduler", 8)
    with pytest.raises(Killed):
        script.main([recipe, "--output_dir", str(folder)])
    assert (folder / "checkpoint-8" / "model.safetensors").is_file()
    lift()
    seen = []
    train = RecurrentTrainer.train
    monkeypatch.setattr(
        RecurrentTrainer,
        "train",
        lambda self, resume_from_checkpoint: (seen.append(resume_from_checkpoint), train(self, resume_from_checkpoint)),
    )
    train_without_evaluation(script, [recipe, "--output_dir", str(folder)], monkeypatch)
    assert Path(seen[0]).name == "checkpoint-4"
    assert_same_weights(folder, straight)


def test_run_killed_after_training_does_not_train_again(script, straight, tmp_path, monkeypatch, capsys):
    """Killed while it evaluates, and again while it removes checkpoints."""
    recipe, folder = str(straight.parent / "tiny.yaml"), tmp_path / "run"
    train_without_evaluation(script, [recipe, "--output_dir", str(folder)], monkeypatch)
    monkeypatch.setattr(RecurrentTrainer, "train", killed)
    with monkeypatch.context() as patch:
        patch.setattr("hf_recurrent.training.run.remove_checkpoints", killed)
        with pytest.raises(Killed):
            script.main([recipe, "--output_dir", str(folder)])
    assert list(folder.glob("checkpoint-*"))
    script.main([recipe, "--output_dir", str(folder)])
    assert "nothing to train" in capsys.readouterr().out
    assert not list(folder.glob("checkpoint-*"))
    assert json.loads((folder / "run.json").read_text())["finished"] is True
    assert_same_weights(folder, straight)
    ours, theirs = (json.loads((path / "halting_stats.json").read_text())["splits"] for path in (folder, straight))
    assert ours == theirs
    assert load_config(folder) == load_config(straight)


def test_a_finished_run_is_continued_in_another_folder(script, straight, tmp_path, monkeypatch):
    recipe, first, longer = str(straight.parent / "tiny.yaml"), tmp_path / "first", tmp_path / "longer"
    # a rate of 0 leaves the best checkpoint where the first run wrote it
    still = ["--learning_rate", "0", "--save_total_limit", "9"]
    train_without_evaluation(script, [recipe, "--output_dir", str(first), *still], monkeypatch)
    begin = ["--resume_from_checkpoint", str(first / "checkpoint-12"), *still]
    train_without_evaluation(script, [recipe, "--output_dir", str(longer), "--max_steps", "16", *begin], monkeypatch)
    state = json.loads((longer / "checkpoint-16" / "trainer_state.json").read_text())
    assert (state["global_step"], Path(state["best_model_checkpoint"]).parent) == (16, first)
    assert_same_weights(longer, first)
    # as long as the first, there is nothing to train
    monkeypatch.setattr(RecurrentTrainer, "train", killed)
    train_without_evaluation(script, [recipe, "--output_dir", str(tmp_path / "same"), *begin], monkeypatch)
    assert_same_weights(tmp_path / "same", first)


def test_early_stopping_tolerates_as_many_failures_as_the_authors(script, write_recipe, tmp_path, monkeypatch):
    recipe = write_recipe(early_stopping_patience=1, eval_steps=1, save_steps=1, learning_rate=0.0, thresholds=[])
    train_without_evaluation(
        script, [recipe, "--output_dir", str(tmp_path / "run"), "--save_total_limit", "9"], monkeypatch
    )
    # the first evaluation sets the record, the second fails and is tolerated, the third stops
    steps = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert steps == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


@pytest.mark.parametrize("model", ["ut", "xpos_transformer"])
def test_sentence_pairs_and_other_families(script, write_recipe, tmp_path, model):
    config = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    recipe = write_recipe(
        model_type=model,
        config={**config, **papers_halting(model), "pair_encoding": "siamese"},
        benchmark="logical_inference",
        benchmark_params={"num_train": 32, "num_validation": 8, "num_test": 12},
        max_steps=2,
        eval_steps=2,
        save_steps=2,
    )
    script.main([recipe, "--output_dir", str(tmp_path / "run")])
    lint_card(tmp_path / "run")
    figures = {path.name for path in (tmp_path / "run" / "assets").iterdir()}
    assert ("test_heat_map.png" in figures) is (model == "ut")


def test_checkpoint_can_be_fine_tuned(script, straight, write_recipe, tmp_path):
    recipe = write_recipe(
        model_type=None,
        model_name_or_path=str(straight),
        config={"halting_threshold": 0.9},
        max_steps=1,
        learning_rate=0.0,
        eval_strategy=None,
        eval_steps=None,
        load_best_model_at_end=None,
        benchmark_params={"num_train": 16, "num_validation": 8, "num_test": 12, "max_depth": 3, "depth_balanced": True},
    )
    script.main([recipe, "--output_dir", str(tmp_path / "run")])
    assert_same_weights(tmp_path / "run", straight)
    assert load_config(tmp_path / "run")["halting_threshold"] == 0.9


def test_accelerate_launch_and_errors_in_one_line(write_recipe, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    launch = [str(Path(sys.executable).parent / "accelerate"), "launch", "--cpu", "--num_processes", "1", str(SCRIPT)]
    recipe = write_recipe(max_steps=2, eval_steps=2, save_steps=2)
    run = subprocess.run(
        [*launch, recipe, "--output_dir", str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "test by depth" in run.stdout
    message = "error: unknown argument '--modl_type'; did you mean model_type?"
    assert run_script(SCRIPT, recipe, "--modl_type", "gut") == message
