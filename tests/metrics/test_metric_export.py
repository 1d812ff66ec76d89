import ast
import os
import re
import subprocess
import sys

import pytest
import yaml

import hf_recurrent.metrics
from hf_recurrent.metrics import export_metric, list_metrics, metric_info
from hf_recurrent.metrics.info import FOLDER

NAME = "bits_per_token"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", list_metrics())
def test_the_code_is_the_package_s_own(name, tmp_path):
    files, siblings = contents(export_metric(name, tmp_path / name)), metric_info(name).siblings
    assert {"bleu.py" if name == "translation_bleu" else "functional.py", "metric_base.py"} <= set(siblings)
    assert set(files) == {f"{name}.py", *siblings, "app.py", "requirements.txt", "README.md"}
    assert files[f"{name}.py"] == (FOLDER / f"metric_{name}.py").read_bytes()
    assert all(files[sibling] == (FOLDER / sibling).read_bytes() for sibling in siblings)


@pytest.mark.parametrize("name", list_metrics())
def test_the_code_needs_only_what_requirements_name(name, tmp_path):
    folder = export_metric(name, tmp_path / name)
    pinned = [line.partition("==") for line in (folder / "requirements.txt").read_text().splitlines()]
    assert all(version for _, _, version in pinned)
    known = {package for package, _, _ in pinned} | set(sys.stdlib_module_names)
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert (node.level, f"{node.module}.py") in {(1, sibling) for sibling in metric_info(name).siblings}
                assert path.name == f"{name}.py", "evaluate does not follow the imports of siblings"
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert {item.partition(".")[0] for item in names} <= known, ast.unparse(node)


@pytest.mark.parametrize("name", list_metrics())
def test_readme(name, tmp_path):
    text = (export_metric(name, tmp_path / name) / "README.md").read_text()
    _, front_matter, body = text.split("---\n", 2)
    data, info = yaml.safe_load(front_matter), metric_info(name)
    assert data["title"] == info.title
    assert (data["sdk"], data["app_file"], data["pinned"]) == ("gradio", "app.py", False)
    assert data["tags"][:2] == ["evaluate", "metric"]
    assert data["description"] == info.summary
    assert len(info.inputs) >= 3
    assert len(info.outputs) >= 3
    assert len(info.limits) >= 3
    for told in (*info.inputs.items(), *info.outputs.items()):
        assert "- `{}`: {}\n".format(*told) in body
    assert all(f"- {limit}\n" in body for limit in info.limits)
    assert info.citation in body
    assert not re.search(r"\{\{(?!The)|\{%|\n\n\n|hf_recurrent\.", body)


def test_the_readme_names_the_space(tmp_path):
    text = (export_metric(NAME, tmp_path / NAME, "org/bits_per_token") / "README.md").read_text()
    assert 'evaluate.load("org/bits_per_token")' in text
    assert 'evaluate.load("bits_per_token")' not in text


def test_an_earlier_export_is_replaced(tmp_path):
    folder = export_metric(NAME, tmp_path / "new" / NAME)
    first = contents(folder)
    (folder / "functional.py").write_text("old")
    assert contents(export_metric(NAME, os.path.relpath(folder))) == first
    assert [path.name for path in folder.parent.iterdir()] == [NAME]


def other_file(folder):
    (folder / ".git").mkdir()


def other_space(folder):
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("- hf_recurrent\n", ""))


def other_metric(folder):
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("title: Bits per token", "title: Something else"))


def fewer_files(folder):
    (folder / "bits_per_token.py").unlink()


def folder_for_file(folder):
    (folder / "app.py").unlink()
    (folder / "app.py").mkdir()


@pytest.mark.parametrize("change", [other_file, other_space, other_metric, fewer_files, folder_for_file])
def test_anything_else_is_refused_and_kept(change, tmp_path):
    folder = export_metric(NAME, tmp_path / NAME)
    change(folder)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match="exists and is not an earlier export of bits_per_token"):
        export_metric(NAME, folder)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("perplexity", "perplexity"), "unknown metric 'perplexity': expected one of .*'halting_statistics'"),
        ((NAME, "space"), "must be called 'bits_per_token'"),
        ((NAME, NAME, "bits_per_token"), "must be 'owner/bits_per_token'"),
        ((NAME, NAME, "org/bits"), "must be 'owner/bits_per_token'"),
        ((NAME, NAME, "a/b/bits_per_token"), "must be 'owner/bits_per_token'"),
    ],
)
def test_bad_arguments_write_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        export_metric(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_descriptions_need_no_heavy_import():
    code = (
        "import sys\nfrom hf_recurrent.metrics import list_metrics, metric_info\n"
        "[metric_info(name) for name in list_metrics()]\n"
        "print(*sorted({'evaluate', 'datasets', 'torch', 'transformers', 'jinja2', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_every_public_name_resolves():
    assert all(hasattr(hf_recurrent.metrics, name) for name in hf_recurrent.metrics.__all__)
    # a submodule of a function's name would replace the function once it is imported
    assert not {path.stem for path in FOLDER.glob("*.py")} & set(hf_recurrent.metrics.__all__)
