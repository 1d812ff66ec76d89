"""`hf-recurrent demo`, end to end on a recipe of a few steps."""

import pytest
import yaml

from hf_recurrent.cli import main
from hf_recurrent.recipes import find_recipe

pytestmark = pytest.mark.slow


def test_demo_trains_chooses_an_exit_and_answers(tmp_path, capfd):
    recipe = yaml.safe_load(find_recipe("demo").read_text())
    recipe["benchmark_params"] |= {"max_depth": 2, "num_train": 6400, "num_validation": 400, "num_test": 40}
    # enough for answers to be sure of something
    recipe |= {"max_steps": 150, "save_steps": 150, "cache_dir": str(tmp_path / "cache")}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    places = ["--recipe", str(tmp_path / "tiny.yaml"), "--output_dir", str(tmp_path / "run")]
    for _ in range(2):
        with pytest.raises(SystemExit) as finished:
            main(["demo", *places])
        assert finished.value.code == 0
        printed = capfd.readouterr()
        assert "Spearman" in printed.out
        assert "of 10 right" in printed.out
        assert sum("[M" in line for line in printed.out.splitlines()) == 10
        assert len((printed.out + printed.err).splitlines()) < 45, "a wall of logs"
    assert "calibrated_steps_depth.png" in (tmp_path / "run" / "README.md").read_text()
    assert (tmp_path / "run" / "assets" / "calibrated_steps_depth.png").is_file()
