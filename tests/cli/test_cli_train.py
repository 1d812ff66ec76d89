"""`hf-recurrent train` and `recipes`, version, help and completion, and what is said of wrong command lines."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import hf_recurrent
from hf_recurrent.cli.train import FLAGS
from hf_recurrent.recipes import FOLDER, recipe_files
from hf_recurrent.tasks import TASKS
from hf_recurrent.training.recipes import defaults_of
from hf_recurrent.training.stages import argument_types

SETTINGS = {task: defaults_of(argument_types(task)) for task in TASKS}


def test_the_version(run):
    assert run("--version") == (0, f"hf-recurrent {hf_recurrent.__version__}\n", "")


@pytest.mark.parametrize("words", [["train"], ["train", "--help"], ["train", "-h"]])
def test_help_names_flags_in_groups(succeed, words):
    printed, _ = succeed(*words)
    for title, flags in FLAGS.items():
        assert f"\n{title}:\n" in printed
        assert all(f"  --{name} " in printed for name in flags)
    assert "accelerate launch -m hf_recurrent.train" in printed


def test_help_names_no_flag_that_there_is_not():
    for flags in FLAGS.values():
        assert [name for name in flags if not any(name in settings for settings in SETTINGS.values())] == []


@pytest.mark.parametrize(
    ("words", "task"),
    [
        (["demo"], "text-classification"),
        (["cfq_ut"], "translation"),
        (["cpu/long_documents_slide"], "long-documents"),
        (["--task", "question-answering"], "question-answering"),
    ],
)
def test_help_names_every_flag_of_a_task(succeed, words, task):
    printed, _ = succeed("train", *words, "--help_all")
    assert printed.startswith("usage: hf-recurrent train [RECIPE] [--flag value ...]")
    assert [name for name in SETTINGS[task] if f"  --{name}" not in printed] == []
    # transformers' own come last
    assert printed.index("  --model_type ") < printed.index("  --lr_schedule ") < printed.index("  --max_steps ")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"], ["recipes", "list"]])
def test_what_answers_at_once_loads_nothing_heavy(words):
    code = (
        "import sys\n"
        "from hf_recurrent.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'evaluate', 'huggingface_hub', 'pandas'}\n"
        "heavy |= {'matplotlib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL, timeout=120)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["listops_gutt"], "there is no recipe listops_gutt; did you mean listops_gut"),
        (["zzz.yaml"], "there is no recipe zzz.yaml; `hf-recurrent recipes list` names them"),
        (["demo"], "output_dir is not set"),
        (["demo", "--max_steps"], "max_steps"),
        (["demo", "--max_step", "3", "--output_dir", "x"], "did you mean max_steps"),
        (["--benchmark", "listop"], "benchmark is 'listop': expected one of listops"),
        (["--output_dir", "x"], "set exactly one of model_type and model_name_or_path"),
    ],
)
def test_wrong_command_lines_of_training(refuse, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("train", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning:hf_recurrent")
def test_a_zip_file_is_a_folder_of_texts(refuse, tmp_path):
    with zipfile.ZipFile(tmp_path / "films.zip", "w") as archive:
        archive.writestr("films/good/1.txt", "a film")
    words = ("--train_file", tmp_path / "films.zip", "--model_type", "gut", "--output_dir", tmp_path / "run")
    assert "all training examples have the label good" in refuse("train", *words)


@pytest.mark.slow
def test_training_finds_the_objective(succeed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = "{hidden_size: 16, num_attention_heads: 2, intermediate_size: 24, chunk_size: 4, num_memory_slots: 4}"
    params = "{num_train: 16, num_validation: 4, num_test: 4}"
    short = ["--max_steps", "2", "--eval_steps", "2", "--save_steps", "2", "--per_device_train_batch_size", "4"]
    printed, _ = succeed(
        *("train", "cpu/flip_flop_tlb", "--output_dir", "run", "--config", sizes, "--benchmark_params", params),
        *("--use_cpu", "true", "--disable_tqdm", "true", *short),
    )
    assert "test" in printed
    card = (tmp_path / "run" / "README.md").read_text()
    assert "hf_recurrent.train cpu/flip_flop_tlb --config" in card


def test_recipes_are_listed_with_what_they_train(run, succeed, monkeypatch):
    monkeypatch.setattr("hf_recurrent.cli.console.out.width", 200)
    printed, _ = succeed("recipes", "list")
    assert all(name in printed for name in recipe_files())
    assert "GUT on ListOps (CPU-size)" in printed
    _, some, _ = run("recipes", "list", "cpu/")
    assert "cpu/listops_gut" in some
    assert "lra_text_tlb" not in some


def test_a_recipe_is_copied_and_never_over_a_file(run, succeed, refuse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("recipes", "copy", "cpu/listops_gut")[:2] == (0, "wrote listops_gut.yaml\n")
    mine = tmp_path / "listops_gut.yaml"
    assert mine.read_bytes() == (FOLDER / "cpu" / "listops_gut.yaml").read_bytes()
    mine.write_text("title: mine")
    # its own name does not stand for the file here
    assert "listops_gut.yaml exists: name another file, or replace it with --overwrite" in refuse(
        "recipes", "copy", "listops_gut.yaml"
    )
    assert mine.read_text() == "title: mine"
    succeed("recipes", "copy", "listops_gut", "--overwrite")
    assert yaml.safe_load(mine.read_text())["title"] == "GUT on ListOps"
    succeed("recipes", "copy", "demo", "new/folder/own.yaml")
    assert (tmp_path / "new" / "folder" / "own.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "zzz"], "no recipe has 'zzz' in its name"),
        (["show", "demoo"], "no recipe demoo; did you mean demo?"),
        (["copy", "demo", "."], "is a directory"),
    ],
)
def test_wrong_command_lines_of_recipes(refuse, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("recipes", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        (
            "hf-recurrent train cpu/listops",
            [
                "cpu/listops_depth_gut",
                "cpu/listops_depth_ndr",
                "cpu/listops_gut",
                "cpu/listops_lstm",
                "cpu/listops_ndr",
                "cpu/listops_tlb",
                "cpu/listops_ut",
                "cpu/listops_xpos_transformer",
            ],
        ),
        ("hf-recurrent recipes show demo", ["demo"]),
    ],
)
def test_shells_complete_commands_and_recipes(run, line, completed, monkeypatch):
    monkeypatch.setenv("_HF_RECURRENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert run()[1].split() == completed


PACKAGE = f"{Path(hf_recurrent.__file__).parent}/"


def importing(frame):
    """Whether a function is called while a module is imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")
def test_few_modules_take_part_in_a_training(succeed, tmp_path):
    """A newcomer who follows the rows of a CSV file through a run opens these files, and those of the model."""
    rows = [f"a film {i} that is {('bad', 'good')[i % 2]},{('neg', 'pos')[i % 2]}" for i in range(60)]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]))
    passed = set()

    def watch(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and not importing(frame):
            passed.add(path.removeprefix(PACKAGE))

    words = ("--train_file", tmp_path / "films.csv", "--output_dir", tmp_path / "run", "--model_type", "gut")
    sys.setprofile(watch)
    try:
        succeed("train", *words, "--config", "{preset: tiny}", "--max_steps", "2", "--use_cpu")
    finally:
        sys.setprofile(None)
    modules = {path for path in passed if path.endswith(".py") and not path.startswith("models/")}
    assert len(modules) <= 40, sorted(modules)
