"""Runs of all tasks in several processes: the weights, tables and predictions of one process that takes their batches.

A run goes on in another number of processes, with another engine, and after one of them was killed.
"""

import os
import socket
import subprocess
import sys
import time
from functools import cache

import psutil
import pytest
from launched_runs import (
    CONFIGS,
    alone,
    assert_alike,
    assert_equal,
    assert_same_weights,
    go_on,
    launched,
    start,
    trained_alone,
)
from task_runs import BLOCKS, CHUNKS, RUNS, SEGMENTS, TOKEN_RUNS, WITHOUT, arguments, write_files
from tiny_run import json_of, weights

from hf_recurrent.training.run import run
from support.compare import assert_close
from support.own_data import write_file

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")

# two stacks share their embeddings
SHARDED = [name for name in RUNS if name != "pairs"]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where the data of all runs are."""
    return write_files(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def single(places, tmp_path_factory):
    """A function from a run and a number of processes to what one process makes of their batches."""
    return cache(lambda name, processes=2: alone(name, tmp_path_factory.mktemp("alone"), places, processes))


@pytest.mark.slow
def test_two_processes_equal_one_in_documents_and_batches_of_other_sizes(places, single, tmp_path):
    names = ["segments", *TOKEN_RUNS]
    launched(tmp_path, places, "cpu", names)
    for name in names:
        assert_equal(tmp_path, name, *single(name))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("engine", "names"), [("cpu", [*RUNS]), ("fsdp2", SHARDED)])
def test_two_processes_equal_one(places, single, tmp_path, engine, names):
    launched(tmp_path, places, engine, names)
    for name in names:
        assert_equal(tmp_path, name, *single(name))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["cpu", "fsdp2"])
def test_four_processes_equal_one(places, single, tmp_path, engine):
    # whose epochs consist of whole steps: to fill a last one accelerate takes examples again
    names = ("classes", "answers", "words", "segments")
    launched(tmp_path, places, engine, names, processes=4)
    for name in names:
        assert_equal(tmp_path, name, *single(name, 4), processes=4)


@pytest.mark.nightly
def test_sharded_weights_need_no_checkpoint(places, single, tmp_path):
    launched(tmp_path, places, "fsdp2", ["classes"], save_strategy="no")
    assert not list((tmp_path / "classes").glob("checkpoint-*"))
    assert_equal(tmp_path, "classes", *single("classes"))


@pytest.mark.nightly
def test_two_machines_equal_one(places, single, tmp_path):
    """Each with a launcher and one process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = ["--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    words = ([*meeting, "--machine_rank", str(rank)] for rank in range(2))
    machines = [start(tmp_path, places, "ddp_nodes", each, ["classes"]) for each in words]
    errors = [machine.communicate(timeout=300)[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], errors[0][-3000:]
    assert_equal(tmp_path, "classes", *single("classes"))


# epochs of 5 batches
EPOCHS = {"benchmark_params": {**RUNS["classes"]["benchmark_params"], "num_train": 60}}
KEPT = {"save_steps": 2, "save_total_limit": 9, "keep_checkpoints": True}


@pytest.mark.nightly
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
    changes = {**changes, **KEPT}
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    straight.mkdir()
    launched(straight, places, before, [name], per_device_train_batch_size=6, **changes)
    checkpoint = go_on(resumed, name, straight / name)
    if after == "alone":
        run(arguments(name, resumed / name, places, per_device_train_batch_size=12, **changes))
    else:
        launched(resumed, places, after, [name], processes=3, per_device_train_batch_size=4, **changes)
    kept = [path / name / "checkpoint-2" / "model.safetensors" for path in (straight, resumed)]
    assert kept[0].stat().st_mtime_ns == kept[1].stat().st_mtime_ns
    assert_same_weights(resumed / name, straight / name, weights(checkpoint))


# ---- documents, which end at other steps in each sequence, validation longer in one process than in the other

LENGTHS = {"train": (40, 9, 130, 21, 55, 3, 77, 34, 18, 90), "validation": (70, 20, 5), "test": (60, 33)}
SMALL = {**CHUNKS, **WITHOUT, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
MODELS = {
    "blocks": {},
    # the paper's optimiser, of matrices that it factors and of others
    "factored": {
        "config": {**BLOCKS, **WITHOUT, "hidden_size": 128, "intermediate_size": 131},
        **{"optim": "adafactor", "learning_rate": 0.05},
    },
    "feedback": {"config": {**SEGMENTS["config"], "feedback": True}},
    "memory": {"model_type": "tlb", "config": SMALL},
    "halting": {"model_type": "gutlb", "config": {**SMALL, "halting": "global", "depth_objective": "mixture"}},
}
# an engine and its processes, each of so many sequences in so many groups
ALONE, GROUPS = ("alone", 1, 6, 1), ("alone", 1, 3, 2)
TWO, THREE = ("cpu", 2, 3, 1), ("cpu", 3, 2, 1)
TWO_SHARDED, THREE_SHARDED = ("fsdp2", 2, 3, 1), ("fsdp2", 3, 1, 2)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for split, lengths in LENGTHS.items():
        for number, length in enumerate(lengths):
            write_file(folder / split / f"{number}.txt", (f"window {number} of state " * 10)[:length])
    return {"TEXTS": str(folder)}


def read_documents(folder, texts, shares, model):
    """The folder of a run over documents with an engine."""
    engine, processes, batch, groups = shares
    changes = {**MODELS[model], **KEPT, "eval_steps": 2, "warmup_steps": 1}
    changes |= {"per_device_train_batch_size": batch, "gradient_accumulation_steps": groups}
    if engine != "alone":
        return launched(folder, texts, engine, ["segments"], processes, **changes) / "segments"
    trained_alone(arguments("segments", folder / "segments", texts, **changes))
    return folder / "segments"


@pytest.fixture(scope="module")
def straight(texts, tmp_path_factory):
    """A function from an engine and a model to the folder of an undisturbed run."""
    return cache(lambda shares, model: read_documents(tmp_path_factory.mktemp("straight"), texts, shares, model))


def assert_same_reading(ours, theirs, start):
    assert_same_weights(ours, theirs, weights(start))
    logs = [json_of(path / "training_log.json") for path in (ours, theirs)]
    assert [entry["step"] for entry in logs[0]] == [1, 2, 2, 3, 4, 4, 5, 5]
    assert_alike(*logs)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shares", [TWO, TWO_SHARDED], ids=["parallel", "sharded"])
def test_two_processes_read_documents_as_one(straight, shares, model):
    expected = straight(ALONE, model)
    assert_same_reading(straight(shares, model), expected, expected / "checkpoint-2")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("before", "after", "model"),
    [
        (TWO, THREE, "memory"),
        (TWO, GROUPS, "blocks"),
        (ALONE, TWO, "blocks"),
        (GROUPS, ALONE, "memory"),
        (TWO_SHARDED, TWO, "blocks"),
        (TWO_SHARDED, ALONE, "factored"),
        (TWO, TWO_SHARDED, "factored"),
        (ALONE, THREE_SHARDED, "blocks"),
        (TWO_SHARDED, THREE_SHARDED, "halting"),
    ],
)
def test_reading_goes_on_with_another_engine_and_number_of_processes(straight, texts, tmp_path, before, after, model):
    progress = go_on(tmp_path, "segments", straight(before, model)) / "progress.json"
    copied = progress.stat().st_mtime_ns
    resumed = read_documents(tmp_path, texts, after, model)
    assert progress.stat().st_mtime_ns == copied
    assert_same_reading(resumed, straight(ALONE, model), progress.parent)


# ---- a process that is killed

# seconds
PATIENCE, START = 60, 120
LONG = {"max_steps": 80, "save_steps": 5, **EPOCHS}


def launch(argv, processes=2):
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / "cpu.yaml")]
    command = [sys.executable, *launcher, "--num_processes", str(processes), "-m", "hf_recurrent.train", *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


@pytest.mark.nightly
@pytest.mark.parametrize(("rank", "processes"), [(0, 2), (1, 3)])
def test_others_end_and_the_run_is_resumed(tmp_path, places, rank, processes):
    def of_batches(folder, size):
        return arguments("classes", folder, places, **LONG, per_device_train_batch_size=size)

    folder, end = tmp_path / "together", time.monotonic() + START
    launcher = launch(of_batches(folder, 6))
    while not (folder / "checkpoint-10").is_dir():
        assert launcher.poll() is None, launcher.communicate()[1][-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)
    children = psutil.Process(launcher.pid).children()
    next(child for child in children if child.environ().get("RANK") == str(rank)).kill()
    launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode != 0
    assert not (folder / "model.safetensors").exists()

    launcher = launch(of_batches(folder, 12 // processes), processes)
    out, errors = launcher.communicate(timeout=300)
    assert launcher.returncode == 0, errors[-3000:]
    printed = run(of_batches(tmp_path / "alone", 12))
    assert_close(weights(folder), weights(tmp_path / "alone"), 1e-4)
    assert printed in out
