import functools
import json
import shutil
from pathlib import Path

import datasets
import pytest
import typer

from hf_recurrent.cli import console, main
from hf_recurrent.models.config.exit_criteria import FIXED
from support.checkpoints import GUT_LISTOPS
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub
from support.task_checkpoints import make_checkpoint, write_examples


@pytest.fixture(scope="session", autouse=True)
def one_command_tree():
    """The commands are put together once, not for each command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def steady_times(monkeypatch):
    """The times of a calibration: those of tiny models on a busy machine differ from run to run."""

    def times(trials, batches, settings, sizes, *_):
        relative = {setting: 0.9 if setting.criterion == FIXED else 0.5 for setting in settings} | {trials.full: 1.0}
        return {
            setting: {"times": dict.fromkeys(map(str, sizes)), "relative_time": time, "noise": 0.01}
            for setting, time in relative.items()
        }

    monkeypatch.setattr("hf_recurrent.analysis.trials.Trials.times", times)


@pytest.fixture
def run(capsys):
    """Runs a command line -> (exit status, stdout, stderr)."""

    def run(*words):
        with pytest.raises(SystemExit) as finished:
            main([str(word) for word in words])
        return finished.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def succeed(run):
    """Runs a command line that must not fail -> (stdout, stderr)."""

    def succeed(*words):
        status, out, err = run(*words)
        assert status == 0, err
        return out, err

    return succeed


@pytest.fixture
def refuse(run):
    """Runs a command line that must fail -> its one line on stderr."""

    def refuse(*words):
        status, _, err = run(*words)
        assert status in (1, 2), err
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, err
        assert "Traceback" not in err
        return err[err.index("error: ") :].strip()

    return refuse


@pytest.fixture
def evaluated(succeed, tmp_path):
    """Runs `evaluate` -> (tables of its splits, stdout, stderr)."""

    def evaluated(*words):
        out, err = succeed("evaluate", *words, "--output", tmp_path / "tables.json")
        return json.loads((tmp_path / "tables.json").read_text())["splits"], out, err

    return evaluated


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """Rows made here stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        yield


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """Gives a task's checkpoint, and files of its examples: to validate and to test on."""

    @functools.cache
    def own(task):
        folder = tmp_path_factory.mktemp(task)
        files = [write_examples(folder / name, task, seed=seed) for seed, name in enumerate(("held", "new"))]
        return make_checkpoint(folder / "model", task), *files

    return own


@pytest.fixture
def wide(monkeypatch):
    """A terminal where nothing is wrapped."""
    monkeypatch.setattr(console.out, "_width", 300)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    with LoopbackHub() as hub, client_in_this_process(hub, tmp_path):
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub


@pytest.fixture
def run_folder(tmp_path):
    return Path(shutil.copytree(GUT_LISTOPS, tmp_path / "run", ignore=shutil.ignore_patterns("*.py")))
