"""Which run a folder belongs to, and which of its checkpoints can be gone on with."""

import hashlib
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from hf_recurrent.training.run_folder import (
    COMPLETE,
    LOCK_FILE,
    STEP_SIZE,
    acquire,
    checkpoint_to_resume,
    claimed,
    last_complete_checkpoint,
    read_run,
    remove_checkpoints,
    write_run,
)

SETTINGS = {"model_type": "gut", "seed": 3}


def make_checkpoint(folder, step, stop=False):
    """The files of a `Trainer` checkpoint."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    state = {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": stop}}}}
    (path / "trainer_state.json").write_text(json.dumps(state))
    (path / COMPLETE).touch()
    return path


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
    (tmp_path / LOCK_FILE).touch()
    for name in (".checkpoint-2.removed", ".checkpoint-8"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").touch()
    with claim(tmp_path) as finished:
        assert not finished
    assert sorted(path.name for path in tmp_path.iterdir()) == [kept.name, "run.json"]


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


def test_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"holds files but no run\.json"):
        acquire(tmp_path, SETTINGS)


def test_latest_by_number(tmp_path):
    make_checkpoint(tmp_path, 9)
    latest = make_checkpoint(tmp_path, 10)
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(tmp_path) == latest
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-best"]


def test_a_checkpoint_that_was_not_written_to_its_end_is_skipped(tmp_path):
    good, bad = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    (bad / COMPLETE).unlink()
    with pytest.warns(UserWarning, match=r"skipping the incomplete .*checkpoint-8"):
        assert last_complete_checkpoint(tmp_path) == good
    with pytest.raises(ValueError, match="it is no complete checkpoint, complete is missing"):
        checkpoint_to_resume(tmp_path, str(bad))


def test_a_second_process_is_refused(tmp_path):
    code = (
        "import sys; from test_run_folder import claim; from pathlib import Path\n"
        "with claim(Path(sys.argv[1])): print('claimed', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    first = subprocess.Popen(command, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdout.readline() == b"claimed\n"
    with pytest.raises(ValueError, match="is in use by another process"), claim(tmp_path):
        pass
    # the lock of a killed process is free
    first.kill()
    first.communicate()
    with claim(tmp_path) as finished:
        assert not finished


def test_checkpoint_asked_for(tmp_path):
    first, last = make_checkpoint(tmp_path, 4), make_checkpoint(tmp_path, 8)
    assert checkpoint_to_resume(tmp_path, None) == last
    assert checkpoint_to_resume(tmp_path, str(first)) == first
    with pytest.raises(ValueError, match=r"resume_from_checkpoint .*elsewhere: it is no complete checkpoint"):
        checkpoint_to_resume(tmp_path, str(tmp_path / "elsewhere"))


def test_a_checkpoint_of_another_folder_is_where_a_run_begins(tmp_path):
    other = make_checkpoint(tmp_path / "other", 4)
    folder = tmp_path / "run"
    folder.mkdir()
    assert checkpoint_to_resume(folder, str(other)) == other
    own = make_checkpoint(folder, 6)
    assert checkpoint_to_resume(folder, str(other)) == own
