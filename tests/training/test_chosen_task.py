"""The task of a command line, the scripts, and what is printed at the end of a run."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT, TINY, write_recipe

from hf_recurrent.tasks import TASKS, get_task
from hf_recurrent.training import run as run_module
from hf_recurrent.training.results import summary
from hf_recurrent.training.run import chosen_task
from support.scripts import run_script

# one of entities is that of words
SCRIPTS = {get_task(tag).script: tag for tag in TASKS if tag != "entity-spans"}


def test_each_task_has_a_script(monkeypatch):
    called = []
    monkeypatch.setattr(run_module, "run_and_print", lambda argv, task=None: called.append(task))
    for script in sorted((ROOT / "training").glob("run_*.py")):
        monkeypatch.setattr(sys, "argv", [str(script)])
        runpy.run_path(str(script), run_name="__main__")
        assert called.pop() == SCRIPTS.pop(f"training/{script.name}")
    assert not SCRIPTS


@pytest.mark.parametrize(
    ("argv", "given", "expected", "reason"),
    [
        ("--benchmark listops", "text-generation", "text-classification", "has labels"),
        ("", "text-generation", None, ""),
        ("--benchmark=flip_flop", "text-classification", "text-generation", "has no labels"),
        ("--benchmark cfq --max_steps 1", "text-classification", "translation", "has sources and targets"),
        ("--benchmark long_documents", "text-generation", "long-documents", "has documents"),
        ("--benchmark listops", "long-documents", "text-classification", "has labels"),
    ],
)
def test_a_script_gives_way_to_that_of_the_benchmark(argv, given, expected, reason):
    if expected is None:
        # and keeps its own default without one
        assert chosen_task(argv.split(), given) == given
        return
    message = rf"{reason}.*: running {get_task(expected).script} instead of {get_task(given).script}"
    with pytest.warns(UserWarning, match=message):
        assert chosen_task(argv.split(), given) == expected
    assert chosen_task(argv.split(), expected) == expected


OWN = "--train_file a.txt "


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("demo", "text-classification"),
        ("--max_steps 3", "text-classification"),
        ("--help", "text-classification"),
        ("flip_flop_tlb --max_steps 3", "text-generation"),
        ("cfq_ut.yaml", "translation"),
        ("cpu/long_documents_slide", "long-documents"),
        *((OWN + f"--task {tag}", tag) for tag in TASKS),
        ("--dataset-name=a/b --task=text-generation", "text-generation"),
        (OWN, "text-classification"),
        (OWN + "--block-size 64", "text-generation"),
        (OWN + "--segment_length 64", "long-documents"),
        (OWN + "--doc_stride 64 --max_seq_length 128", "question-answering"),
        (OWN + "--ending_columns a b", "multiple-choice"),
        (OWN + "--text_column_name tokens --label_column_name tags --label_all_tokens true", "token-classification"),
        (OWN + "--mlm_probability 0.2", "fill-mask"),
        (OWN + "--source_column a --target_column b", "translation"),
    ],
)
def test_a_command_for_any_task_finds_it(argv, expected, recwarn):
    assert chosen_task(argv.split()) == expected
    assert not recwarn.list


def test_no_task(tmp_path):
    with pytest.raises(ValueError, match=r"task is 'fill-mask', but training/run_qa.py is for question-answering"):
        chosen_task((OWN + "--task fill-mask").split(), "question-answering")
    with pytest.raises(ValueError, match=r"task is 'fill-masks': .*did you mean fill-mask"):
        chosen_task((OWN + "--task fill-masks").split())
    with pytest.raises(ValueError, match="unknown benchmark 'listop'"):
        chosen_task(["--benchmark", "listop"], "text-generation")
    with pytest.raises(FileNotFoundError, match="there is no recipe"):
        chosen_task([str(tmp_path / "absent.yaml")], "text-generation")


@pytest.mark.parametrize("column", ["n", "steps", "p95", "mean", "size"])
def test_a_column_called_as_a_number_of_the_table_is_shown_beside_it(column):
    numbers = {"accuracy": 0.5, "majority_baseline": 0.25, "steps": {"mean": 2.0, "p95": 3.0, "max": 3.0}}
    rows = [{"value": value, "n": 70 + value, **numbers} for value in (8, 9)]
    table = {**numbers, "n": 151, "slices": {column: {"rows": rows, "spearman": None}}, "fixed_depth": True}
    lines = summary({"test": table}, "accuracy").split(f"test by {column}\n")[1].splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["8", "78"], ["9", "79"]]


@pytest.mark.slow
def test_accelerate_launch_and_errors_in_one_line(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    script = ROOT / "training" / "run_glue_style.py"
    launch = [str(Path(sys.executable).parent / "accelerate"), "launch", "--cpu", "--num_processes", "1", str(script)]
    recipe = write_recipe(tmp_path / "tiny.yaml", {**TINY, "max_steps": 2, "eval_steps": 2, "save_steps": 2})
    run = subprocess.run(
        [*launch, recipe, "--output_dir", str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "test by depth" in run.stdout
    message = "error: unknown argument '--modl_type'; did you mean model_type?"
    assert run_script(script, recipe, "--modl_type", "gut") == message
