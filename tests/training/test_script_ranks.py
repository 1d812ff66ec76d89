"""Every training script in two processes of `accelerate launch`: the weights, tables and predictions of one process.

That one accumulates as many batches.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file
from script_runs import RUNS, arguments, write_files
from tiny_run import ROOT

from hf_recurrent.hub import lint_card
from hf_recurrent.training.objectives import DOCUMENT_SCRIPT
from hf_recurrent.training.run import run_class

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")]

SCRIPT, CONFIGS = Path(__file__).with_name("script_ranks.py"), ROOT / "training" / "accelerate"
# two stacks share their embeddings
SHARDED = [name for name in RUNS if name != "pairs"]
TIMES = ("seconds", "relative_time")
# of the largest value of a tensor
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where the data of all runs are."""
    return write_files(tmp_path_factory.mktemp("data"))


def launched(folder, places, engine, names, processes=2, **changes):
    """The folder of the runs of some processes."""
    flags = ["--main_process_port", "0", "--num_processes", str(processes)]
    launcher = start(folder, places, engine, flags, names, **changes)
    _, errors = launcher.communicate(timeout=1500)
    assert launcher.returncode == 0, errors[-3000:]
    return folder


def start(folder, places, engine, flags, names, **changes):
    (folder / "places.json").write_text(json.dumps(places))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    environment["HF_DATASETS_CACHE"] = str(folder / "cache")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / f"{engine}.yaml")]
    command = [*launcher, "--num_processes", "2", *flags, str(SCRIPT), str(folder), json.dumps(changes), *names]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def parallel(places, tmp_path_factory):
    return launched(tmp_path_factory.mktemp("parallel"), places, "cpu", RUNS)


@pytest.fixture(scope="module")
def sharded(places, tmp_path_factory):
    return launched(tmp_path_factory.mktemp("sharded"), places, "fsdp2", SHARDED)


@pytest.fixture(scope="module")
def alone(places, tmp_path_factory):
    """A function from a run and a number of processes, whose batches it takes, to the weights before and the folder."""

    @cache
    def run(name, processes=2):
        share = "per_device_train_batch_size" if name == "segments" else "gradient_accumulation_steps"
        folder = tmp_path_factory.mktemp("alone") / name
        return trained_alone(name, arguments(name, folder, places, **{share: processes})), folder

    return run


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def assert_alike(ours, theirs, place=""):
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), place
        for name in ours:
            assert_alike(ours[name], theirs[name], f"{place}/{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), place
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_alike(*pair, f"{place}/{number}")
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-6), (place, ours, theirs)
    else:
        assert ours == theirs, place


def trained_alone(name, argv):
    """The weights before a run of this process."""
    script, recipe = RUNS[name]
    whole, start = run_class(script, "train_file" in recipe)(argv), {}
    train = whole.train

    def noted():
        model = whole.session.plain_model if script == DOCUMENT_SCRIPT else whole.trainer.model
        start.update({key: value.clone() for key, value in model.state_dict().items()})
        train()

    whole.train = noted
    whole.execute()
    return start


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(parallel, alone, name):
    assert_equal(parallel, name, *alone(name))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SHARDED)
def test_two_processes_with_sharded_parameters_equal_one(sharded, alone, name):
    assert_equal(sharded, name, *alone(name))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["cpu", "fsdp2"])
def test_four_processes_equal_one(places, alone, tmp_path, engine):
    # whose epochs consist of whole steps: to fill a last one accelerate takes examples again
    names = ("classes", "answers", "words", "segments")
    folder = launched(tmp_path, places, engine, names, processes=4)
    for name in names:
        assert_equal(folder, name, *alone(name, 4), processes=4)


# epochs of 5 batches
EPOCHS = {"benchmark_params": {**RUNS["classes"][1]["benchmark_params"], "num_train": 60}}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "before", "after", "changes"),
    [
        ("classes", "fsdp2", "fsdp2", EPOCHS),
        ("classes", "fsdp2", "cpu", EPOCHS),
        ("classes", "cpu", "fsdp2", EPOCHS),
        ("stream", "cpu", "cpu", {}),
        ("stream", "fsdp2", "alone", {}),
    ],
)
def test_two_processes_are_resumed_in_another_number_and_with_another_engine(
    places, tmp_path, name, before, after, changes
):
    changes = {**changes, "save_steps": 2, "save_total_limit": 9, "keep_checkpoints": True}
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    straight.mkdir()
    launched(straight, places, before, [name], per_device_train_batch_size=6, **changes)
    # as if killed after it
    shutil.copytree(straight / name / "checkpoint-2", resumed / name / "checkpoint-2")
    run = json.loads((straight / name / "run.json").read_text())
    (resumed / name / "run.json").write_text(json.dumps({**run, "evaluated": False, "finished": False}))
    if after == "alone":
        trained_alone(name, arguments(name, resumed / name, places, per_device_train_batch_size=12, **changes))
    else:
        launched(resumed, places, after, [name], processes=3, per_device_train_batch_size=4, **changes)
    kept = [path / name / "checkpoint-2" / "model.safetensors" for path in (straight, resumed)]
    assert kept[0].stat().st_mtime_ns == kept[1].stat().st_mtime_ns
    start, ours, theirs = (
        load_file(path / "model.safetensors")
        for path in (resumed / name / "checkpoint-2", resumed / name, straight / name)
    )
    assert max((start[key] - ours[key]).abs().max() for key in ours) > 1e-2
    for key, value in theirs.items():
        assert (ours[key] - value).abs().max() <= TOLERANCE * value.abs().max(), key


def test_two_machines_equal_one(places, tmp_path, alone):
    """Each with a launcher and one process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = ["--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    flags = ([*meeting, "--machine_rank", str(rank)] for rank in range(2))
    machines = [start(tmp_path, places, "ddp_nodes", each, ["classes"]) for each in flags]
    errors = [machine.communicate(timeout=300)[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], errors[0][-3000:]
    assert_equal(tmp_path, "classes", *alone("classes"))


def assert_equal(folder, name, start, expected, processes=2):
    together = folder / name
    ours, theirs = (load_file(path / "model.safetensors") for path in (together, expected))
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert (ours[key] - value).abs().max() <= TOLERANCE * value.abs().max(), key
    assert max((theirs[key] - start[key]).abs().max() for key in theirs) > 1e-2
    tables = [json.loads(next(path.glob("*_stats.json")).read_text()) for path in (together, expected)]
    assert_alike(*map(without_times, tables))
    written = [sorted(path.rglob("predictions/*.jsonl")) for path in (together, expected)]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]
    for pair in zip(*written, strict=True):
        assert_alike(*([json.loads(line) for line in path.read_text().splitlines()] for path in pair))
    assert all(json.loads((folder / f"{name}.{rank}.json").read_text()) > 0 for rank in range(2))
    lint_card(together)
    assert f"{processes} processes" in json.loads((together / "card.json").read_text())["training"]["hardware"]
