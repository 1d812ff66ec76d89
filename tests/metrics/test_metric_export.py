import ast
import html
import os
import re
import subprocess
import sys

import pytest
import yaml

import hf_recurrent.metrics
from hf_recurrent.metrics import export_metric, list_metrics, metric_info
from hf_recurrent.metrics.export import FOLDER
from hf_recurrent.metrics.metric_base import CITATION

NAME = "bits_per_token"
ITEM = re.compile(r"^- ", re.MULTILINE)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", list_metrics())
def test_the_code_is_the_package_s_own(name, tmp_path):
    files, siblings = contents(export_metric(name, tmp_path / name)), metric_info(name).siblings
    assert siblings == ["bleu.py" if name == "translation_bleu" else "functional.py", "metric_base.py"]
    assert set(files) == {f"{name}.py", *siblings, "index.html", "README.md"}
    assert files[f"{name}.py"] == (FOLDER / f"metric_{name}.py").read_bytes()
    assert all(files[sibling] == (FOLDER / sibling).read_bytes() for sibling in siblings)


@pytest.mark.parametrize("name", list_metrics())
def test_the_code_needs_only_what_the_readme_names(name, tmp_path):
    folder = export_metric(name, tmp_path / name)
    named = set(re.findall(r"`(\w+)`", (folder / "README.md").read_text().partition("## Use")[2]))
    assert {"evaluate", "numpy", "scipy", "sacrebleu"} <= named
    # `evaluate` is built on `datasets`
    known = named | {"datasets"} | set(sys.stdlib_module_names)
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
    assert (data["sdk"], data["pinned"]) == ("static", False)
    assert data["tags"][:2] == ["evaluate", "metric"]
    assert data["description"] == info.summary
    assert info.documentation.partition("## Example")[0] in body
    for section in ("Inputs", "Outputs", "Limits"):
        assert len(ITEM.findall(body.partition(f"\n## {section}\n\n")[2].partition("\n## ")[0])) >= 3
    assert CITATION in body
    assert not re.search(r"\{\{(?!The)|\{%|\n\n\n|hf_recurrent\.", body)


def test_readme_and_page_name_the_space(tmp_path):
    folder = export_metric(NAME, tmp_path / NAME, "org/bits_per_token")
    for text in ((folder / "README.md").read_text(), html.unescape((folder / "index.html").read_text())):
        assert 'evaluate.load("org/bits_per_token")' in text
        assert 'evaluate.load("bits_per_token")' not in text


@pytest.mark.parametrize("name", list_metrics())
def test_the_page_is_the_documentation(name, tmp_path):
    """The file that the Hub shows for a static Space; texts are escaped."""
    page = (export_metric(name, tmp_path / name) / "index.html").read_text()
    (shown,) = re.findall(r"<pre>(.*?)</pre>", page, flags=re.DOTALL)
    assert "<" not in shown
    assert html.unescape(shown) == metric_info(name).documentation


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
    (folder / "index.html").unlink()
    (folder / "index.html").mkdir()


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
        "heavy = {'evaluate', 'datasets', 'torch', 'transformers', 'jinja2', 'scipy', 'huggingface_hub'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_every_public_name_resolves():
    assert all(hasattr(hf_recurrent.metrics, name) for name in hf_recurrent.metrics.__all__)
    # a submodule of a function's name would replace the function once it is imported
    assert not {path.stem for path in FOLDER.glob("*.py")} & set(hf_recurrent.metrics.__all__)
