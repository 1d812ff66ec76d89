"""Cards that set other models beside their own: runs with other seeds, and baselines."""

import pytest

from hf_recurrent.cli import main
from hf_recurrent.hub import read_results, write_results
from hf_recurrent.hub.comparison import compared
from support.results import make_results, make_table


def run(accuracy, seed=2, **changes):
    splits = {split: make_table(accuracy=accuracy) for split in ("test", "deep")}
    return make_results(splits=splits, **{"training": {"seed": seed}, **changes})


@pytest.fixture
def folders(tmp_path):
    """A run of the same model with another seed, and two of another model."""
    runs = {"again": run(0.4), "rival-1": run(0.3, title="Fixed"), "rival-2": run(0.2, seed=3, title="Fixed")}
    for name, results in runs.items():
        (tmp_path / name).mkdir()
        write_results(tmp_path / name, results)
    return [tmp_path / name for name in runs]


def test_runs_of_one_title_and_size_are_one_model(folders, tmp_path):
    again, rival = compared(make_results(), folders)
    assert (again["same_model"], rival["same_model"], rival["parameters"]) == (True, False, 234_567)
    assert again["values"] == {"test": [0.4], "deep": [0.4]}
    assert rival["values"] == {"test": [0.3, 0.2], "deep": [0.3, 0.2]}
    write_results(tmp_path, run(0.4, model={"parameters": 9}))
    assert [item["same_model"] for item in compared(make_results(), [tmp_path, folders[0]])] == [False, True]
    with pytest.raises(ValueError, match="again holds the run"):
        compared(make_results(), [folders[0], folders[0]])


OTHER = "was measured on other examples than this card: compare runs on the same ones"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"seed": 5}}, OTHER),
        ({"data": {"name": "flip_flop"}}, OTHER),
        ({"splits": {"other": make_table()}}, OTHER),
        ({"splits": {"test": make_table(examples=80)}}, OTHER),
        ({}, "holds the run .*, which is compared already: leave it out"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=r"has no results\.json of a run: give the output folder of a finished run"):
        compared(make_results(), [tmp_path])
    write_results(tmp_path, make_results(**changes))
    with pytest.raises(ValueError, match=message):
        compared(make_results(), [tmp_path])


def test_the_command_writes_and_removes_comparisons(folders, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    write_results(own, make_results())
    command = ["card", "compare", str(own)]
    with pytest.raises(SystemExit, match="0"):
        main([*command, *map(str, folders)])
    assert [item["name"] for item in read_results(own)["compared"]] == ["GUT on ListOps", "Fixed"]
    assert "| Fixed | 234,567 | 25.0% ± 7.1 (2 runs) |" in (own / "README.md").read_text()
    with pytest.raises(SystemExit, match="0"):
        main(command)
    assert read_results(own) == make_results()
