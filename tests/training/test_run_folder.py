"""Which run a folder belongs to, and which of its checkpoints can be gone on with."""

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
    checkpoint_to_resume,
    checkpoints,
    claimed,
    last_complete_checkpoint,
    recorded,
    remove_checkpoints,
    write_run,
)

SETTINGS = {"model_type": "gut", "seed": 3}


def make_checkpoint(folder, step):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / COMPLETE).touch()
    return path


def begin(folder, settings=SETTINGS):
    """Begin a run, or go on with it -> whether it has finished."""
    with claimed(folder, settings, nullcontext(), is_main_process=True) as record:
        return record["finished"]


def claim(folder):
    return claimed(folder, SETTINGS, nullcontext(), is_main_process=True)


def test_another_number_of_processes_keeps_the_size_of_a_step(tmp_path):
    def of(size, batch, **more):
        return {**SETTINGS, STEP_SIZE: size, "per_device_train_batch_size": batch, **more}

    for settings in (of(12, 6), of(12, 4), of(12, 2, gradient_accumulation_steps=2)):
        assert begin(tmp_path, settings) is False
    with pytest.raises(ValueError, match=r"different run: .*\(size of a step: 12 there, 18 here\)"):
        recorded(tmp_path, of(18, 6))
    with pytest.raises(ValueError, match=r"different run: .*\(seed: 3 there, 4 here\)"):
        recorded(tmp_path, of(12, 4, seed=4))
    # as to publish it, in one process
    write_run(tmp_path, of(12, 6), finished=True)
    assert begin(tmp_path, of(6, 6)) is True
    with pytest.raises(ValueError, match=r"\(per_device_train_batch_size: 6 there, 3 here\)"):
        recorded(tmp_path, of(3, 3))


def test_a_folder_is_that_of_its_run(tmp_path):
    folder = tmp_path / "run"
    assert begin(folder) is False
    assert begin(folder, {**SETTINGS, "num_proc": 2, "output_dir": "elsewhere"}) is False
    for changes, told in (({"seed": 4}, "seed: 3 there, 4 here"), ({"max_steps": 5}, r"'\(default\)' there, 5 here")):
        with pytest.raises(ValueError, match=rf"different run: use another folder, or its settings \(.*{told}\)$"):
            recorded(folder, {**SETTINGS, **changes})
    write_run(folder, SETTINGS, evaluated=True)
    assert begin(folder) is False
    assert recorded(folder, SETTINGS)["evaluated"]
    write_run(folder, SETTINGS, finished=True)
    assert begin(folder) is True
    # weights may go on in another folder
    with pytest.raises(ValueError, match=r"5 here\), or train its weights further, in .* --model_name_or_path .+"):
        recorded(folder, {**SETTINGS, "max_steps": 5})


def test_flags_for_what_every_run_does_are_no_other_run(tmp_path):
    asked = {**SETTINGS, "do_train": True, "do_eval": True}
    assert begin(tmp_path) is False
    assert begin(tmp_path, asked) is False
    # earlier versions counted them
    (tmp_path / "run.json").write_text(json.dumps({"settings": asked, "evaluated": True, "finished": True}))
    assert begin(tmp_path) is True
    assert begin(tmp_path, asked) is True


def test_the_lock_of_a_killed_run_is_removed(tmp_path):
    write_run(tmp_path, SETTINGS)
    kept = make_checkpoint(tmp_path, 4)
    (tmp_path / LOCK_FILE).touch()
    assert begin(tmp_path) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == [kept.name, "run.json"]


def test_a_run_that_fails_before_it_begins_leaves_nothing(tmp_path):
    folder = tmp_path / "runs" / "first"
    with pytest.raises(ValueError, match="no such data"), claim(folder):
        raise ValueError("no such data")
    assert not list(tmp_path.iterdir())
    write_run(folder, SETTINGS)
    make_checkpoint(folder, 4)
    with pytest.raises(ValueError, match="no such data"), claim(folder):
        raise ValueError("no such data")
    assert {path.name for path in folder.iterdir()} == {"run.json", "checkpoint-4"}


def test_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"holds files but no run\.json"):
        recorded(tmp_path, SETTINGS)


@pytest.mark.slow
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
    assert begin(tmp_path) is False


def test_the_checkpoint_to_go_on_from(tmp_path):
    other, folder = make_checkpoint(tmp_path / "other", 4), tmp_path / "run"
    early, last = make_checkpoint(folder, 9), make_checkpoint(folder, 10)
    (folder / "checkpoint-best").mkdir()
    for asked, expected in ((None, last), (early, early)):
        assert checkpoint_to_resume(folder, asked and str(asked)) == expected
    (last / COMPLETE).unlink()
    for missing in (folder / "elsewhere", last, other):
        with pytest.raises(ValueError, match=f"checkpoint {missing}: it is no complete checkpoint of output_dir"):
            checkpoint_to_resume(folder, str(missing))
    with pytest.warns(UserWarning, match=r"skipping the incomplete .*checkpoint-10"):
        assert last_complete_checkpoint(folder) == early
    remove_checkpoints(checkpoints(folder))
    assert [path.name for path in folder.iterdir()] == ["checkpoint-best"]
