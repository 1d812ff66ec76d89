"""The script that compares objectives, on runs of a few steps."""

import json
from pathlib import Path

import pytest
import yaml

from hf_recurrent.recipes import find_recipe
from support.scripts import run_script

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "training" / "compare_objectives.py"


@pytest.fixture
def places(tmp_path):
    recipe = yaml.safe_load(find_recipe("objectives").read_text())
    recipe["benchmark_params"] |= {"num_train": 64, "num_validation": 8, "num_test": 16}
    recipe |= {"max_steps": 2, "cache_dir": str(tmp_path / "cache")}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    names = {"recipe": "tiny.yaml", "output_dir": "runs", "results_dir": "results", "document": "objectives.md"}
    return [part for name, place in names.items() for part in (f"--{name}", tmp_path / place)]


def test_every_objective_leaves_a_file_and_a_row(tmp_path, places, capfd):
    assert run_script(SCRIPT, *places, "--model_types", "gut", "--seeds", "1") is None
    assert run_script(SCRIPT, *places, "--model_types", "gut", "--seeds", "1", "2", "--objectives", "final") is None
    files = sorted((tmp_path / "results").glob("*.json"))
    assert len(files) == 7
    for path in files:
        results = json.loads(path.read_text())
        exits = results["exits"]
        assert ("learned" in exits) == (results["objective"] in ("mixture", "expected"))
        assert exits["full depth"]["mean_steps"] == 10
        for found in exits.values():
            assert [row["depth"] for row in found["by_depth"]] == [1, 2, 3, 4]
            assert 1 <= found["mean_steps"] <= 10
    assert run_script(SCRIPT, *places, "--report") is None
    rows = [line for line in (tmp_path / "objectives.md").read_text().splitlines() if line.startswith("| `")]
    cells = next(line for line in rows if line.startswith("| `final` | agreement")).strip("|").split(" | ")
    assert cells[2] == "2"
    assert "±" in cells[3]


def test_finished_runs_are_not_repeated(tmp_path, places, capfd):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "ut-final-3.json").write_text("{}")
    chosen = ["--model_types", "ut", "--objectives", "final", "--seeds", "3"]
    assert run_script(SCRIPT, *places, *chosen) is None
    assert not (tmp_path / "runs").exists()


def test_an_unknown_objective_is_named(places):
    with pytest.raises(ValueError, match="expected one of mixture"):
        run_script(SCRIPT, *places, "--objectives", "finale")
