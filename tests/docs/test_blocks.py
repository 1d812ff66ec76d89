"""The blocks of README and of the pages of docs/ run, in a folder that has what a checkout has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from written import NAMES, PAGES, README, ROOT, blocks

# what blocks read; checkpoints are copied, because commands write into them
LINKED = ("docs", "examples", "training", "perf", "upload.py", "constraints.txt")
RUN = [
    pytest.param(page, id=name, marks=pytest.mark.slow if page == README else pytest.mark.nightly)
    for page, name in zip(PAGES, NAMES, strict=True)
    if any(block.language in ("python", "sh") and not block.reason for block in blocks(page.read_text()))
]


@pytest.fixture
def checkout(tmp_path):
    for name in LINKED:
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("model_cards", "tests/checkpoints"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def run(command: list, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning",  # read by peft
)
@pytest.mark.parametrize("page", RUN)
def test_blocks_run(page, checkout, monkeypatch):
    """In their order; those of Python continue each other, those of the shell stop at the first command that fails."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    monkeypatch.chdir(checkout)
    names = {"__name__": "page"}
    for block in blocks(page.read_text()):
        if block.language == "python" and not block.reason:
            exec(compile(block.code, f"{page.name}, block of line {block.line}", "exec"), names)  # noqa: S102
        elif block.language == "sh" and not block.reason:
            run(["bash", "-e", "-o", "pipefail", "-c", block.code], checkout, environment)


def test_readme_s_example_prints_what_it_says(checkout, monkeypatch, capsys):
    """Each print of the example has its output beside it."""
    (example,) = [block.code for block in blocks(README.read_text()) if block.language == "python"]
    said = [line.partition("  # ")[2].partition(": ")[0] for line in example.splitlines() if line.startswith("print(")]
    monkeypatch.chdir(checkout)
    exec(example, {"__name__": "page"})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == said
    assert said
