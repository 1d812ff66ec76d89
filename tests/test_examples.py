"""Scripts under examples/ print what is stored beside them."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.scripts import run_script

EXAMPLES = Path(__file__).parents[1] / "examples"
# largest difference of numbers, relative to the larger one
TOLERANCES = {
    "adaptive_depth": 1e-3,
    # an iterative solver
    "bag_of_words": 0.02,
    "calibrate_with_guarantee": 1e-3,
    "flip_flop_memory": 1e-3,
    # reads a file of the Python at hand, whose versions differ
    "long_text": 0.02,
    # train: rounding, which processors differ in, adds up
    "translate": 0.1,
    "your_own_csv": 0.1,
}
# needs no process of its own to be quick
QUICK = "adaptive_depth"
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
# drawn from a number of its line
BAR = re.compile(r" *█+$")


def differences(found: str, stored: str, tolerance: float) -> list[str]:
    """The lines that differ in their words, or in a number by more than the `tolerance`."""
    new, old = found.splitlines(), stored.splitlines()
    if len(new) != len(old):
        return [f"{len(new)} lines instead of {len(old)}"]
    return [f"{a!r} instead of {b!r}" for a, b in zip(new, old, strict=True) if not alike(a, b, tolerance)]


def alike(found: str, stored: str, tolerance: float) -> bool:
    lines = [BAR.sub("", line) for line in (found, stored)]
    # numbers of other lengths move what follows
    words, other_words = ([part.split() for part in NUMBER.split(line)] for line in lines)
    numbers, other_numbers = ([float(text.replace(",", "")) for text in NUMBER.findall(line)] for line in lines)
    return words == other_words and all(
        abs(number - other) <= tolerance * max(number, other)
        for number, other in zip(numbers, other_numbers, strict=True)
    )


def test_every_example_is_tested_and_has_its_output():
    assert TOLERANCES.keys() == {path.stem for path in EXAMPLES.glob("*.py")}
    assert TOLERANCES.keys() == {path.stem for path in EXAMPLES.glob("*.txt")}


def stored(name: str) -> str:
    return (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """An empty folder with the checkpoints of the repository."""
    (tmp_path / "model_cards").symlink_to(EXAMPLES.parent / "model_cards")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("working_folder")
def test_quick_example_prints_what_is_stored():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run_script(EXAMPLES / f"{QUICK}.py") is None
    assert differences(printed.getvalue(), stored(QUICK), TOLERANCES[QUICK]) == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("working_folder")
@pytest.mark.parametrize("name", TOLERANCES)
def test_example_prints_what_is_stored(name):
    # sums are in another order with more threads
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], env=settings, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert differences(done.stdout, stored(name), TOLERANCES[name]) == []
