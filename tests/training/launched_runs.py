"""Runs in processes of a launcher, the same in one process, and their comparison."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from task_runs import arguments
from tiny_run import ROOT, json_of, tables_of, weights

from hf_recurrent.hub import read_results
from hf_recurrent.training.documents import DocumentRun
from hf_recurrent.training.run import chosen_task
from hf_recurrent.training.stages import Run

SCRIPT, CONFIGS = Path(__file__).with_name("script_ranks.py"), ROOT / "training" / "accelerate"
TIMES = ("seconds", "relative_time")
# of the largest value of a tensor
TOLERANCE = 1e-5


def start(folder: Path, places: dict[str, str], engine: str, words: list[str], names: list[str], **changes: Any):
    """A launcher of runs, with flags `words` of its own."""
    (folder / "places.json").write_text(json.dumps(places))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    environment["HF_DATASETS_CACHE"] = str(folder / "cache")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / f"{engine}.yaml")]
    command = [*launcher, "--num_processes", "2", *words, str(SCRIPT), str(folder), json.dumps(changes), *names]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def launched(folder: Path, places: dict[str, str], engine: str, names: list[str], processes: int = 2, **changes: Any):
    """The folder of the runs of some processes."""
    words = ["--main_process_port", "0", "--num_processes", str(processes)]
    launcher = start(folder, places, engine, words, names, **changes)
    _, errors = launcher.communicate(timeout=1500)
    assert launcher.returncode == 0, errors[-3000:]
    return folder


def trained_alone(argv: list[str]) -> dict[str, Any]:
    """The weights before a run of this process."""
    task, start = chosen_task(argv), {}
    whole = (DocumentRun if task == "long-documents" else Run)(argv, task)
    train = whole.train

    def noted() -> None:
        model = whole.plain_model if isinstance(whole, DocumentRun) else whole.trainer.model
        start.update({key: value.clone() for key, value in model.state_dict().items()})
        train()

    whole.train = noted
    whole.execute()
    return start


def alone(name: str, folder: Path, places: dict[str, str], processes: int = 2) -> tuple[dict[str, Any], Path]:
    """The weights before a run that takes the batches of so many processes, and its folder."""
    share = "per_device_train_batch_size" if name == "segments" else "gradient_accumulation_steps"
    return trained_alone(arguments(name, folder / name, places, **{share: processes})), folder / name


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def assert_alike(ours: Any, theirs: Any, place: str = "") -> None:
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


def assert_same_weights(folder: Path, expected: Path, start: dict[str, Any]) -> None:
    """Of two runs that have learned something since `start`."""
    ours, theirs = weights(folder), weights(expected)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert (ours[key] - value).abs().max() <= TOLERANCE * value.abs().max(), key
    # one engine leaves out the one name of a tensor that has two, another the other
    assert max((theirs[key] - start[key]).abs().max() for key in theirs.keys() & start.keys()) > 1e-2


def assert_equal(folder: Path, name: str, start: dict[str, Any], expected: Path, processes: int = 2) -> None:
    """The run of some processes has the weights, tables and predictions of one process, and all have evaluated."""
    together = folder / name
    assert_same_weights(together, expected, start)
    assert_alike(*(without_times(tables_of(path)) for path in (together, expected)))
    written = [sorted(path.rglob("predictions/*.jsonl")) for path in (together, expected)]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]
    for pair in zip(*written, strict=True):
        assert_alike(*([json.loads(line) for line in path.read_text().splitlines()] for path in pair))
    assert all(json_of(folder / f"{name}.{rank}.json") > 0 for rank in range(2))
    assert f"{processes} processes" in read_results(together)["training"]["hardware"]


def go_on(folder: Path, name: str, straight: Path) -> Path:
    """A folder of a run that was killed after checkpoint 2 of another -> the checkpoint."""
    shutil.copytree(straight / "checkpoint-2", folder / name / "checkpoint-2")
    claim = {**json_of(straight / "run.json"), "evaluated": False, "finished": False}
    (folder / name / "run.json").write_text(json.dumps(claim))
    return folder / name / "checkpoint-2"
