"""Every training script in two processes: the weights, tables and predictions of one that accumulates."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from script_runs import RUNS, arguments, write_files

from hf_recurrent.hub import lint_card
from hf_recurrent.training.objectives import DOCUMENT_SCRIPT
from hf_recurrent.training.run import run_class

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")]

SCRIPT = Path(__file__).with_name("script_ranks.py")
TIMES = ("seconds", "relative_time")
# of the largest value of a tensor
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder of the runs of two processes, and where their data are."""
    folder = tmp_path_factory.mktemp("ranks")
    places = write_files(folder)
    (folder / "places.json").write_text(json.dumps(places))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    environment["HF_DATASETS_CACHE"] = str(folder / "cache")
    command = [sys.executable, str(SCRIPT), str(folder), "2", *RUNS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, places


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
def test_two_processes_equal_one(ranks, tmp_path, name):
    (folder, places), script = ranks, RUNS[name][0]
    together, alone = folder / name, tmp_path / name
    share = "per_device_train_batch_size" if script == DOCUMENT_SCRIPT else "gradient_accumulation_steps"
    start = trained_alone(name, arguments(name, alone, places, **{share: 2}))
    ours, theirs = (load_file(path / "model.safetensors") for path in (together, alone))
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        assert (ours[key] - expected).abs().max() <= TOLERANCE * expected.abs().max(), key
    assert max((theirs[key] - start[key]).abs().max() for key in theirs) > 1e-2
    tables = [json.loads(next(path.glob("*_stats.json")).read_text()) for path in (together, alone)]
    assert_alike(*map(without_times, tables))
    written = [sorted(path.rglob("predictions/*.jsonl")) for path in (together, alone)]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]
    for pair in zip(*written, strict=True):
        assert_alike(*([json.loads(line) for line in path.read_text().splitlines()] for path in pair))
    assert all(json.loads((folder / f"{name}.{rank}.json").read_text()) > 0 for rank in range(2))
    lint_card(together)
    assert "2 processes" in json.loads((together / "card.json").read_text())["training"]["hardware"]
