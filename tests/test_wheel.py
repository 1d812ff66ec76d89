"""What is built for those who install this package: complete, and enough in an environment that has nothing else."""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from hf_recurrent import __version__
from hf_recurrent.recipes import FOLDER
from support.client import must_succeed
from support.loopback_hub import LoopbackHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hf_recurrent"
BESIDE = {
    *("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "setup.py", "MANIFEST.in"),
    # written by setuptools
    *("PKG-INFO", "setup.cfg"),
}
RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)")
SMALL = (
    *("--config", "{hidden_size: 16, num_attention_heads: 2, intermediate_size: 24}"),
    *("--max_steps", "4", "--save_steps", "4", "--per_device_train_batch_size", "8"),
    *("--benchmark_params", "{num_train: 32, num_validation: 8, num_test: 8, max_depth: 3}"),
    *("--use_cpu", "true", "--disable_tqdm", "true"),
)


def run(*words: str | os.PathLike, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed, without what this process would lend it to import."""
    given = {name: value for name, value in (environment or os.environ).items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=900, env=given, check=False, cwd=cwd
    )
    return must_succeed(done)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel that is built from it."""
    place = tmp_path_factory.mktemp("dist")
    # without a network: setuptools is here already
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place, ROOT]
    must_succeed(subprocess.run(build, capture_output=True, text=True, timeout=300, check=False))
    (source,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return source, wheel


def files_of(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}" for path in paths}


def test_what_is_built_is_the_package_and_nothing_else(built):
    source, wheel = built
    check = [sys.executable, "-m", "twine", "check", "--strict", source, wheel]
    must_succeed(subprocess.run(check, capture_output=True, text=True, timeout=120, check=False))
    package = files_of(PACKAGE)
    assert "hf_recurrent/recipes/cpu/listops_gut.yaml" in package
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = message_from_bytes(archive.read(f"hf_recurrent-{__version__}.dist-info/METADATA"))
    assert names == package
    assert metadata["Version"] == __version__
    assert not RELATIVE_LINK.search(metadata.get_payload())
    assert "[Dynamic Halt](https://" in metadata.get_payload()
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()}
    names = {name for name in names if ".egg-info/" not in name}
    assert names == BESIDE | {f"src/{name}" for name in package}


@pytest.mark.nightly
def test_an_empty_environment_trains_evaluates_and_publishes(built, tmp_path):
    """Each command as a user types it, in a folder with nothing in it."""
    # its gigabyte goes at once
    with tempfile.TemporaryDirectory() as place, LoopbackHub() as hub:
        venv.create(place, with_pip=True)
        bin_ = Path(place) / "bin"
        run(bin_ / "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", built[1], cwd=tmp_path)
        environment = {**hub.environment(place), "PATH": f"{bin_}:{os.environ['PATH']}"}
        environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

        def command(line: str, *more: str) -> str:
            first, *words = line.split()
            return run(bin_ / first, *words, *more, cwd=tmp_path, environment=environment)

        where = command("python -c", "import hf_recurrent; print(hf_recurrent.__file__)")
        assert Path(where.strip()).is_relative_to(Path(place).resolve())
        assert command("hf-recurrent --version") == f"hf-recurrent {__version__}\n"
        assert "cpu/listops_gut" in command("hf-recurrent recipes list")
        assert command("hf-recurrent recipes show demo") == (FOLDER / "demo.yaml").read_text()
        command("hf-recurrent recipes copy demo mine.yaml")
        command("hf-recurrent train demo --output_dir run", *SMALL)
        assert "accelerate launch -m hf_recurrent.train demo" in (tmp_path / "run" / "README.md").read_text()
        command("accelerate launch --cpu -m hf_recurrent.train mine.yaml --output_dir launched", *SMALL)
        assert (tmp_path / "launched" / "model.safetensors").is_file()
        sizes = ["--benchmark_params", "{num_train: 8, num_validation: 8, num_test: 16}"]
        assert "test" in command("hf-recurrent evaluate run listops", *sizes)
        (tmp_path / "new.csv").write_text("text\n[MIN 1 2 ]\n")
        command("hf-recurrent predict run --file new.csv --output predictions.csv")
        assert (tmp_path / "predictions.csv").read_text().startswith("prediction,probability,steps\n")
        assert "published" in command("hf-recurrent publish run org/gut-demo")
        assert "model.safetensors" in hub.repository("org/gut-demo").head().files
