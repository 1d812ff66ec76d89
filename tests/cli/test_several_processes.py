"""Commands in two processes of a launcher: the results of one process, written and told once."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "gut-listops-cpu"
DATA = ["listops", "--benchmark_params", "{num_test: 60, num_validation: 100}"]
PROCESSES = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]

pytestmark = pytest.mark.nightly


def command(words, folder, processes: int) -> subprocess.CompletedProcess:
    launcher = PROCESSES if processes > 1 else []
    return subprocess.run(
        [sys.executable, "-m", *launcher, "hf_recurrent", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_an_evaluation_of_two_is_that_of_one(tmp_path):
    words = ["evaluate", str(CHECKPOINT), *DATA, "--split", "test", "--batch-size", "8"]
    alone, together = (command([*words, "--output", f"{number}.json"], tmp_path, number) for number in (1, 2))
    assert together.returncode == 0, together.stderr
    assert together.stdout == alone.stdout
    tables = [json.loads((tmp_path / f"{number}.json").read_text())["splits"]["test"] for number in (1, 2)]
    assert tables[0]["accuracy"] == tables[1]["accuracy"]
    assert tables[0]["steps"] == pytest.approx(tables[1]["steps"])


def test_a_calibration_of_two_chooses_as_that_of_one(tmp_path):
    chosen = []
    for number in (1, 2):
        folder = shutil.copytree(CHECKPOINT, tmp_path / f"of_{number}")
        options = [
            "--tolerance",
            "0.2",
            "--criterion",
            "agreement",
            "--repeats",
            "1",
            "--limit",
            "100",
            "--only_exits",
            "--in_place",
        ]
        done = command(["calibrate", str(folder), *DATA, *options], tmp_path, number)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("wrote") >= 1
        found = json.loads((folder / "calibration.json").read_text())
        chosen.append((found["chosen"]["criterion"], found["chosen"]["threshold"], found["full_depth"]["accuracy"]))
        assert not list(tmp_path.glob("*/.making*"))
    assert chosen[0] == chosen[1]


def test_predictions_of_two_and_errors_told_once(tmp_path):
    rows = [f"[MAX {row % 10} {(row * 3) % 10} ]" for row in range(40)]
    (tmp_path / "new.csv").write_text("text\n" + "\n".join(rows) + "\n")
    words = ["predict", str(CHECKPOINT), "--file", "new.csv", "--batch-size", "8", "--output"]
    for number in (1, 2):
        done = command([*words, f"{number}.csv"], tmp_path, number)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("40 rows") == 1
    tables = [list(csv.DictReader((tmp_path / f"{number}.csv").read_text().splitlines())) for number in (1, 2)]
    assert [row["prediction"] for row in tables[0]] == [row["prediction"] for row in tables[1]]
    again = command([*words, "2.csv"], tmp_path, 2)
    assert again.returncode != 0
    assert again.stderr.count("error: 2.csv exists: pass overwrite to replace it") == 1


def test_other_commands_are_for_one_process(tmp_path):
    done = command(["publish", str(CHECKPOINT), "org/name"], tmp_path, 2)
    assert done.returncode != 0
    assert done.stderr.count("error: `publish` runs in one process: call it without a launcher") == 1
