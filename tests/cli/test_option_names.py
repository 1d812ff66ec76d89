"""Options of the commands in both spellings: with dashes, and with underscores as transformers' scripts have flags."""

import subprocess
import sys

import click
import pytest
import typer

from hf_recurrent.cli.app import app


def leaves(command, context):
    """All commands of a tree, each with the context that it is called in."""
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, click.Context(child, info_name=name, parent=context, **child.context_settings))
    if not hasattr(command, "commands"):
        yield context


ROOT = typer.main.get_command(app)
CONTEXTS = {context.command_path: context for context in leaves(ROOT, click.Context(ROOT, **ROOT.context_settings))}


@pytest.mark.parametrize("path", CONTEXTS)
def test_an_option_has_one_meaning_in_both_spellings(path):
    context = CONTEXTS[path]
    for option in context.command.params:
        for name in getattr(option, "opts", []):
            if not name.startswith("--") or not set(name[2:]) & set("-_"):
                continue
            value = [] if option.is_flag or option.count else ["1"] * option.nargs
            spellings = [f"--{name[2:].replace(*pair)}" for pair in ("-_", "_-")]
            first, second = (context.command.make_parser(context).parse_args([text, *value]) for text in spellings)
            assert first == second
            assert option.name in first[0]


@pytest.mark.parametrize("path", CONTEXTS)
def test_help_is_short_and_the_rest_of_it_there(succeed, path, monkeypatch):
    # a tree that has shown everything once would go on to do so
    monkeypatch.setattr(typer.main, "get_command", typer.main.get_command.__wrapped__)
    words = path.split()
    short, whole = (succeed(*words, flag)[0] for flag in ("--help", "--help_all"))
    assert len(short.splitlines()) <= 60
    assert len(short) <= len(whole)
    assert "--help_all" in short or short == whole


@pytest.mark.parametrize(
    "words",
    [
        *([command, "runs/mien", "listops"] for command in ("evaluate", "sweep", "fit-probe", "explain")),
        ["convert", "./missing", "new"],
        ["predict", "./missing", "--file", "x.csv", "--output", "y.csv"],
        ["calibrate", "runs/mine", "held_out.csv"],
        ["calibrate", "runs/mine", "held_in.csv", "--test-file", "held_out.csv"],
        ["evaluate", "runs/mine", "listops", "--data-dir", "missing"],
        ["evaluate", "runs/mine", "listop"],
        ["evaluate", "runs/mine", "listops", "--benchmark_params", "num_test=3"],
        ["evaluate", "runs/mine", "listops", "--dtype", "half"],
        ["train", "--train_file", "held_in.csv", "--text_column", "review"],
        ["train", "--model_type", "gutt"],
        ["train", "mine.yaml"],
        ["train", "--train_file", "reviews.csv", "--output_dir", "runs/new"],
        ["train", "--model-name-or-path=./missing"],
    ],
)
def test_what_is_mistyped_is_refused_before_anything_heavy_is_imported(words, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "held_in.csv").write_text("text,label\n")
    code = (
        "import sys; from hf_recurrent.cli.console import run; from hf_recurrent.cli.app import app\n"
        f"status = run(lambda: app({words!r}, standalone_mode=False))\n"
        "print(status, *{'torch', 'transformers.trainer', 'datasets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout in ("1\n", "2\n"), done
    messages = ("does not exist", "there is no recipe", "expected ", "is not one of", "text_column is 'review'")
    assert any(message in done.stderr for message in messages), done.stderr
