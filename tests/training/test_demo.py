"""`make demo`'s script, end to end on a recipe of a few steps."""

from pathlib import Path

import pytest
import yaml

from support.scripts import run_script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_demo_trains_chooses_an_exit_and_answers(tmp_path, capfd):
    recipe = yaml.safe_load((ROOT / "training/recipes/demo.yaml").read_text())
    recipe["benchmark_params"] |= {"max_depth": 2, "num_train": 6400, "num_validation": 400, "num_test": 40}
    # enough for answers to be sure of something
    recipe |= {"max_steps": 150, "save_steps": 150, "cache_dir": str(tmp_path / "cache")}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    places = ["--recipe", tmp_path / "tiny.yaml", "--output_dir", tmp_path / "run"]
    for _ in range(2):
        assert run_script(ROOT / "training" / "demo.py", *places) is None
        printed = capfd.readouterr()
        assert "Spearman" in printed.out
        assert "of 10 right" in printed.out
        assert sum("[M" in line for line in printed.out.splitlines()) == 10
        assert len((printed.out + printed.err).splitlines()) < 45, "a wall of logs"
    assert "calibrated_steps_depth.png" in (tmp_path / "run" / "README.md").read_text()
    assert (tmp_path / "run" / "assets" / "calibrated_steps_depth.png").is_file()
