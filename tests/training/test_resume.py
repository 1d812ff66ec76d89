"""A run of any task that is killed goes on as if nothing had happened, and a finished one is left alone."""

import json
import shutil
from pathlib import Path

import pytest
from task_runs import RUNS, arguments, write_files
from tiny_run import TINY, Killed, json_of, killed, table_of, tables_of, train, weights

from hf_recurrent.training.run import run
from hf_recurrent.training.trainer import RecurrentTrainer
from support.compare import assert_close
from support.families import nightly
from support.own_data import flags

# a resumed run warns of nothing but the checkpoint it skips
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:skipping the incomplete:UserWarning"),
    pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning"),
]
EVALUATION = "hf_recurrent.training.stages.evaluate_run"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("data"))


def command(name, folder, places):
    """With dropout, whose random numbers a checkpoint must restore, and epochs within which it is killed."""
    config = {key: value for key, value in RUNS[name]["config"].items() if "dropout" not in key}
    return arguments(name, folder, places, config={**config, "dropout": 0.1}, max_steps=7, save_steps=2)


@pytest.mark.parametrize(
    "name",
    [name if name in ("classes", "stream", "pairs", "segments", "words") else nightly(name) for name in RUNS],
)
def test_resumed_run_equals_straight_run(name, places, tmp_path):
    run(command(name, tmp_path / "straight", places))
    with killed(step=5):
        run(command(name, tmp_path / "run", places))
    assert (tmp_path / "run" / "checkpoint-4").is_dir()
    run(command(name, tmp_path / "run", places))
    assert_close(weights(tmp_path / "run"), weights(tmp_path / "straight"), 1e-4)
    ours, theirs = (tables_of(tmp_path / each) for each in ("run", "straight"))
    assert_close(json.loads(json.dumps(ours)), theirs, 1e-4)
    # what only a resumption needs is gone
    assert not list((tmp_path / "run").glob("checkpoint-*"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A tiny run without interruption."""
    further = {"length_generalization": {"num_test": 4, "min_length": 200, "max_length": 210}}
    changes = {"evaluate_on": ["length_generalization"], "evaluate_params": further, "write_predictions": True}
    return train(tmp_path_factory.mktemp("straight") / "run", TINY, **changes)


def again(straight, folder, **changes):
    """The same run in a folder, with changes by flags."""
    return run([str(straight.with_name("run.yaml")), *flags({"output_dir": folder, **changes})])


def until_evaluation(straight, folder, **changes):
    with killed(EVALUATION):
        again(straight, folder, **changes)


def test_folder_of_a_finished_run(straight):
    names = {path.name for path in straight.iterdir()}
    assert {"config.json", "model.safetensors", "modeling_gut.py", "tokenizer.json", "recipe.yaml"} <= names
    assert not [path for path in straight.rglob("*") if path.suffix in (".bin", ".pt", ".pth", ".pkl")]
    assert not list(straight.glob("checkpoint-*"))
    assert json_of(straight / "run.json")["finished"] is True
    assert "lr_schedule: rootwarmup" in (straight / "recipe.yaml").read_text()
    tables = tables_of(straight)
    assert next(iter(tables)) == "test"
    assert any(split.startswith("length_generalization/") for split in tables)
    assert len((straight / "predictions" / "test.jsonl").read_text().splitlines()) == table_of(straight, "test")["n"]
    # the ponder loss of training rises to its full weight, which is that of the model
    assert json_of(straight / "config.json")["ponder_loss_weight"] == 0.1


def test_finished_run_is_left_alone(straight, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*")}
    assert "nothing to train" in again(straight, straight)
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*")} == before
    with pytest.raises(
        ValueError, match=r"different run: .*seed: 42 there, 7 here|different run: .*\(seed: '\(default"
    ):
        again(straight, straight, seed=7)


# after step 6 is within an epoch (8 steps an epoch), after step 8 at its end
@pytest.mark.parametrize("step", [6, 9])
def test_run_killed_in_training(straight, tmp_path, step):
    with killed(step=step):
        again(straight, tmp_path)
    assert (tmp_path / f"checkpoint-{step // 4 * 4}").is_dir()
    until_evaluation(straight, tmp_path)
    assert_close(weights(tmp_path), weights(straight), 1e-4)


def test_run_killed_while_saving_goes_on_from_the_checkpoint_before(straight, tmp_path, monkeypatch):
    save, take, begun = RecurrentTrainer._save_optimizer_and_scheduler, RecurrentTrainer.train, []

    def broken(self, folder):
        if self.state.global_step == 8 and not begun:
            raise Killed
        return save(self, folder)

    def noted(self, resume_from_checkpoint):
        begun.append(resume_from_checkpoint)
        return take(self, resume_from_checkpoint)

    monkeypatch.setattr(RecurrentTrainer, "_save_optimizer_and_scheduler", broken)
    with pytest.raises(Killed):
        again(straight, tmp_path)
    assert (tmp_path / "checkpoint-8" / "model.safetensors").is_file()
    monkeypatch.setattr(RecurrentTrainer, "train", noted)
    begun.append(None)
    until_evaluation(straight, tmp_path)
    assert Path(begun[-1]).name == "checkpoint-4"
    assert_close(weights(tmp_path), weights(straight), 1e-4)


def test_run_killed_after_training_does_not_train_again(straight, tmp_path, monkeypatch):
    """Killed while it evaluates, and again while it removes checkpoints."""
    same = {"write_predictions": True}
    until_evaluation(straight, tmp_path, **same)
    monkeypatch.setattr(RecurrentTrainer, "train", None)
    with killed("hf_recurrent.training.stages.remove_checkpoints"):
        again(straight, tmp_path, **same)
    assert list(tmp_path.glob("checkpoint-*"))
    assert "nothing to train" in again(straight, tmp_path, **same)
    assert not list(tmp_path.glob("checkpoint-*"))
    assert json_of(tmp_path / "run.json")["finished"] is True
    assert_close(weights(tmp_path), weights(straight), 1e-4)
    assert tables_of(tmp_path) == tables_of(straight)
    assert json_of(tmp_path / "config.json") == json_of(straight / "config.json")


def test_early_stopping_tolerates_as_many_failures_as_the_authors(straight, tmp_path):
    often = {"eval_steps": 1, "save_steps": 1, "learning_rate": 0, "save_total_limit": 9}
    until_evaluation(straight, tmp_path, early_stopping_patience=1, **often)
    # the first evaluation sets the record, the second fails and is tolerated, the third stops
    steps = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert steps == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_a_run_on_other_data_does_not_go_on(places, tmp_path):
    data = tmp_path / "words.jsonl"
    shutil.copy(places["WORDS"], data)
    own = {**places, "WORDS": str(data)}
    with killed(step=5):
        run(command("words", tmp_path / "run", own))
    with data.open("a") as file:
        file.write(data.read_text().partition("\n")[0] + "\n")
    with pytest.raises(ValueError, match=r"different run: .*\(digest of the data: 'sha256:\w+' there, 'sha256:"):
        run(command("words", tmp_path / "run", own))
    shutil.copy(places["WORDS"], data)
    run(command("words", tmp_path / "run", own))
    assert json_of(tmp_path / "run" / "run.json")["finished"] is True
