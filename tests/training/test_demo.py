"""`make demo`'s script, end to end on a recipe of a few steps."""

from pathlib import Path

import pytest
import yaml

from support.scripts import run_script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_demo_trains_reloads_and_answers(tmp_path, capfd):
    recipe = yaml.safe_load((ROOT / "training/recipes/demo.yaml").read_text())
    recipe["benchmark_params"] |= {"num_train": 64, "num_validation": 8, "num_test": 16}
    recipe |= {"max_steps": 2, "eval_steps": 2, "save_steps": 2, "cache_dir": str(tmp_path / "cache"), "thresholds": []}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    places = ["--recipe", tmp_path / "tiny.yaml", "--output-dir", tmp_path / "run"]
    assert run_script(ROOT / "training" / "demo.py", *places) is None
    printed = capfd.readouterr().out
    assert "test by depth" in printed
    answers = [line for line in printed.splitlines() if line.startswith("[")]
    assert len(answers) == 6
    assert (tmp_path / "run" / "README.md").is_file()
