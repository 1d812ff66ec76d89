"""Short campaigns against the training scripts: runs that are killed, and folders that are damaged afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUN = """
from fuzz.{module} import campaign
found = campaign(count={count}, seed={seed}, scripts=[{script!r}])
print(found)
exit(bool(found.faults))
"""


# the second seed keeps checkpoints
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("script", "seed"), [("run_clm", 0), ("run_glue_style", 0), ("run_clm_accelerate", 1), ("run_seq2seq", 0)]
)
def test_disturbed_runs_end_as_one_that_nothing_befell(script, seed):
    check_campaign("training_kills", script, count=4, seed=seed)


@pytest.mark.nightly
@pytest.mark.parametrize(("script", "seed"), [("run_glue_style", 0), ("run_clm_accelerate", 1), ("run_seq2seq", 1)])
def test_damaged_runs_end_as_one_that_nothing_befell_or_name_the_file(script, seed):
    check_campaign("damaged_runs", script, count=3, seed=seed)


def check_campaign(module, script, **options):
    command = [sys.executable, "-c", RUN.format(module=module, script=script, **options)]
    # a process of its own: forks of this one would have its threads' locks, but not its threads
    done = subprocess.run(
        command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert script in done.stdout
