"""Which run a folder belongs to, and which of its checkpoints can be gone on with."""

import errno
import hashlib
import json
import math
from contextlib import nullcontext
from dataclasses import asdict

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import TrainerControl, TrainerState

from hf_recurrent.training.checksums import check_checksums, write_checksums
from hf_recurrent.training.clock import TrainingClock
from hf_recurrent.training.folder_lock import LOCK_FILE
from hf_recurrent.training.run_folder import (
    STEP_SIZE,
    acquire,
    checkpoint_to_resume,
    claimed,
    last_complete_checkpoint,
    read_run,
    remove_checkpoints,
    training_finished,
    write_run,
)

SETTINGS = {"model_type": "gut", "seed": 3}


def make_checkpoint(folder, step, stop=False):
    """The files of a `Trainer` checkpoint."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file({"w": torch.zeros(64)}, path / "model.safetensors")
    (path / "config.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"x": torch.zeros(64)}, path / name)
    (path / "trainer_state.json").write_text(json.dumps(state_of(step, stop)))
    return path


def state_of(step, stop=False, callbacks=None, **changes):
    """The state of a trainer after so many steps, with changes to it."""
    control = TrainerControl(should_training_stop=stop).state()
    callbacks = {"TrainerControl": control, "TrainingClock": TrainingClock(2.5).state(), **(callbacks or {})}
    return {**asdict(TrainerState(global_step=step, train_batch_size=8, stateful_callbacks=callbacks)), **changes}


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


def test_another_number_of_processes_keeps_the_size_of_a_step(tmp_path):
    def of(size, batch, **more):
        return {**SETTINGS, STEP_SIZE: size, "per_device_train_batch_size": batch, **more}

    assert acquire(tmp_path, of(12, 6)) is False
    assert acquire(tmp_path, of(12, 4)) is False
    assert acquire(tmp_path, of(12, 2, gradient_accumulation_steps=2)) is False
    with pytest.raises(ValueError, match=r"steps are of 12 examples .* of 18: choose per_device_train_batch_size and"):
        acquire(tmp_path, of(18, 6))
    with pytest.raises(
        ValueError,
        match=r"different run: .*\(per_device_train_batch_size: 6 there, 4 here; seed: 3",
    ):
        acquire(tmp_path, of(12, 4, seed=4))
    # as to publish it, in one process
    write_run(tmp_path, of(12, 6), finished=True)
    assert acquire(tmp_path, of(6, 6)) is True


def test_a_folder_is_acquired(tmp_path):
    folder = tmp_path / "run"
    assert acquire(folder, SETTINGS) is False
    assert acquire(folder, SETTINGS) is False
    assert acquire(folder, {**SETTINGS, "num_proc": 2, "output_dir": "elsewhere"}) is False
    with pytest.raises(
        ValueError, match=r"different run: use another folder, or its settings \(seed: 3 there, 4 here\)"
    ):
        acquire(folder, {**SETTINGS, "seed": 4})
    with pytest.raises(ValueError, match=r"max_steps: '\(default\)' there, 5 here"):
        acquire(folder, {**SETTINGS, "max_steps": 5})
    write_run(folder, SETTINGS, evaluated=True)
    assert acquire(folder, SETTINGS) is False
    assert read_run(folder)["evaluated"]
    write_run(folder, SETTINGS, finished=True)
    assert acquire(folder, SETTINGS) is True


def test_a_longer_run_of_the_same_weights_begins_with_them(tmp_path):
    onwards = r", or train its weights further, in another folder with --model_name_or_path .+"
    write_run(tmp_path, {**SETTINGS, "max_steps": 3})
    with pytest.raises(ValueError, match=r"max_steps: 3 there, 5 here\)$"):
        acquire(tmp_path, {**SETTINGS, "max_steps": 5})
    write_run(tmp_path, {**SETTINGS, "max_steps": 3}, finished=True)
    with pytest.raises(ValueError, match=rf"max_steps: 3 there, 5 here\){onwards}"):
        acquire(tmp_path, {**SETTINGS, "max_steps": 5})


def test_flags_for_what_every_run_does_are_no_other_run(tmp_path):
    asked = {**SETTINGS, "do_train": True, "do_eval": True}
    assert acquire(tmp_path, SETTINGS) is False
    assert acquire(tmp_path, asked) is False
    # earlier versions counted them
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    (tmp_path / "run.json").write_text(json.dumps({"digest": digest, "settings": asked, "finished": True}))
    assert acquire(tmp_path, SETTINGS) is True
    assert acquire(tmp_path, asked) is True


def claim(folder):
    return claimed(folder, SETTINGS, nullcontext(), is_main_process=True)


def test_leftovers_of_a_killed_run_are_removed(tmp_path):
    write_run(tmp_path, SETTINGS)
    kept = make_checkpoint(tmp_path, 4)
    (tmp_path / "assets").mkdir()
    for name in (".run.json.abc.partial", "assets/.steps.png.abc.partial", LOCK_FILE):
        (tmp_path / name).touch()
    for name in (".checkpoint-2.removed", ".checkpoint-8"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").touch()
    with claim(tmp_path) as finished:
        assert not finished
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assets", kept.name, "run.json"]
    assert not list((tmp_path / "assets").iterdir())


def test_a_claim_that_was_cut_short_is_no_foreign_file(tmp_path):
    for name in (".run.json.abc.partial", LOCK_FILE):
        (tmp_path / name).touch()
    with claim(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {LOCK_FILE, "run.json"}


def test_a_run_that_fails_before_it_begins_leaves_nothing(tmp_path):
    folder = tmp_path / "runs" / "first"
    with pytest.raises(ValueError, match="no such data"), claim(folder):
        raise ValueError("no such data")
    assert not list(tmp_path.iterdir())
    make_checkpoint(tmp_path, 4)
    write_run(folder, SETTINGS)
    (tmp_path / "checkpoint-4").rename(folder / "checkpoint-4")
    with pytest.raises(ValueError, match="no such data"), claim(folder):
        raise ValueError("no such data")
    assert {path.name for path in folder.iterdir()} == {"run.json", "checkpoint-4"}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:664] . PytorchStreamWriter failed writing file data/0"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_named(tmp_path, error):
    with (
        pytest.raises(ValueError, match=r"no room on the disk .*: make room, then give the same command"),
        claim(tmp_path),
    ):
        raise error
    with pytest.raises(KeyError), claim(tmp_path):
        raise KeyError


def test_a_finished_folder_is_locked_for_what_a_kill_left_there_only(tmp_path, monkeypatch):
    write_run(tmp_path, SETTINGS, finished=True)
    (tmp_path / LOCK_FILE).touch()
    with claim(tmp_path) as finished:
        assert finished
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    monkeypatch.setattr("hf_recurrent.training.run_folder.locked", lambda folder: pytest.fail("locked"))
    with claim(tmp_path) as finished:
        assert finished


def test_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"holds files but no run\.json"):
        acquire(tmp_path, SETTINGS)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="not readable"):
        read_run(tmp_path)


@pytest.mark.parametrize("changes", [{"finished": 3}, {"evaluated": "no"}, {"digest": None}, {"settings": []}])
def test_a_run_file_of_other_contents_is_refused(tmp_path, changes):
    write_run(tmp_path, SETTINGS)
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**run, **changes}))
    name = next(iter(changes))
    with pytest.raises(ValueError, match=rf"run\.json is not readable \(run\.json: {name} is .*expected"):
        read_run(tmp_path)


def test_no_checkpoint(tmp_path):
    assert last_complete_checkpoint(tmp_path) is None
    assert last_complete_checkpoint(tmp_path / "absent") is None


def test_latest_by_number(tmp_path):
    make_checkpoint(tmp_path, 9)
    latest = make_checkpoint(tmp_path, 10)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(tmp_path) == latest
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-best"]


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "config.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"],
)
@pytest.mark.parametrize("damage", ["absent", "cut short", "empty"])
def test_incomplete_checkpoints_are_skipped(tmp_path, name, damage):
    good, bad = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    if damage == "absent":
        (bad / name).unlink()
    else:
        content = (bad / name).read_bytes()
        (bad / name).write_bytes(content[: len(content) // 2] if damage == "cut short" else b"")
    if name == "config.json" and damage == "cut short":
        (bad / name).write_text("{")
    with pytest.warns(UserWarning, match=r"skipping the incomplete .*checkpoint-8"):
        assert last_complete_checkpoint(tmp_path) == good


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ([], r"its content is \[\], expected dict"),
        ({}, "has no global_step"),
        (without(state_of(8), "log_history"), "has no log_history"),
        (without(state_of(8), "best_metric"), "has no best_metric"),
        (state_of(8, best_metric=math.nan), "best_metric is nan, expected a finite number"),
        (state_of(4), "global_step is 4, expected 8, as the folder's name says"),
        (state_of(8, stateful_callbacks={}), "TrainerControl is None, expected dict"),
        (
            state_of(8, stop=3),
            "should_training_stop of TrainerControl is 3, expected bool",
        ),
        (
            state_of(8, callbacks={"TrainingClock": {"args": {"seconds": 1.0, "running": None}, "attributes": {}}}),
            "TrainingClock has no epochs",
        ),
        (
            state_of(8, callbacks={"TrainingClock": TrainingClock(math.nan).state()}),
            "seconds of TrainingClock is nan, expected a finite number",
        ),
        ({"global_step": "x"}, "global_step is 'x', expected int"),
        ({"later": 1}, "has 'later', which is not known: update transformers"),
        ({"stateful_callbacks": []}, r"stateful_callbacks is \[\], expected dict"),
        (
            state_of(8, callbacks={"TrainerControl": {"args": 3}}),
            "args of TrainerControl is 3, expected dict",
        ),
        ({"log_history": [1]}, r"log_history is \[1\], expected a list of dict"),
    ],
)
def test_a_checkpoint_of_other_contents_is_skipped(tmp_path, state, problem):
    good, bad = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    (bad / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "checkpoint-12").write_text("no folder")
    with pytest.warns(UserWarning, match=rf"skipping the incomplete .*checkpoint-8: .*{problem}"):
        assert last_complete_checkpoint(tmp_path) == good


def test_flipped_byte_is_noticed(tmp_path):
    bad = make_checkpoint(tmp_path, 8)
    content = bytearray((bad / "optimizer.pt").read_bytes())
    content[content.index(bytes(64)) + 40] = 1
    (bad / "optimizer.pt").write_bytes(content)
    with pytest.warns(UserWarning, match="skipping"):
        assert last_complete_checkpoint(tmp_path) is None


def test_a_checkpoint_whose_choice_is_damaged_is_skipped(tmp_path):
    """The best one, or an average, is made of the weights of earlier ones."""
    for step in (4, 8):
        make_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(b"")
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-8"
    best = str(tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-8" / "trainer_state.json").write_text(json.dumps(state_of(8, best_model_checkpoint=best)))
    chosen = r"checkpoint-8: .*checkpoint-4/model\.safetensors is damaged"
    with pytest.warns(UserWarning, match=chosen), pytest.warns(UserWarning, match="the incomplete .*checkpoint-4: "):
        assert last_complete_checkpoint(tmp_path) is None


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, "{}"])
def test_a_checkpoint_whose_sums_do_not_fit_is_skipped(tmp_path, name, content):
    """A config or tokenizer that lacks a field is still one."""
    good, bad = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    for file in ("config.json", "tokenizer_config.json"):
        (bad / file).write_text('{"dropout": 0.1}')
    write_checksums(bad)
    assert last_complete_checkpoint(tmp_path) == bad
    if content is None:
        (bad / name).unlink()
    else:
        (bad / name).write_text(content)
    with pytest.warns(UserWarning, match=rf"skipping the incomplete .*checkpoint-8: .*{name}"):
        assert last_complete_checkpoint(tmp_path) == good


def test_training_finished(tmp_path):
    assert training_finished(make_checkpoint(tmp_path, 1, stop=True))
    assert not training_finished(make_checkpoint(tmp_path, 2))


def test_checkpoint_asked_for(tmp_path):
    first, last = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    assert checkpoint_to_resume(tmp_path, None) == last
    assert checkpoint_to_resume(tmp_path, str(first)) == first
    with pytest.raises(ValueError, match=r"resume_from_checkpoint .*elsewhere: trainer_state\.json is missing"):
        checkpoint_to_resume(tmp_path, str(tmp_path / "elsewhere"))


def test_a_checkpoint_of_another_folder_is_where_a_run_begins(tmp_path):
    other = make_checkpoint(tmp_path / "other", 4)
    folder = tmp_path / "run"
    folder.mkdir()
    assert checkpoint_to_resume(folder, str(other)) == other
    own = make_checkpoint(folder, 6)
    assert checkpoint_to_resume(folder, str(other)) == own


def test_a_folder_that_is_saved_twice_has_the_sums_of_its_files(tmp_path):
    for content in ("{}", "[]"):
        (tmp_path / "config.json").write_text(content)
        write_checksums(tmp_path)
        check_checksums(tmp_path)
