"""The repository's tests of models, with the models on the GPU (`pytest --device cuda`: tests/support/on_device.py).

A check is a file; what fails in it is named. The bounds are those of the CPU, which a GPU's sums, in another order, may
miss by a little: then the report says by how much, and no bound is changed for it.
"""

import functools
import importlib.util
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path

from perf.core import Table

from .checks import Check, NotHereError, Setting

TESTS = Path(__file__).parents[1] / "tests"
# recorded cases of the authors' code first
CASE = "::test_case_is_reproduced"
FILES = (
    f"test_parity.py{CASE}",
    f"test_parity_ndr.py{CASE}",
    f"test_parity_block_recurrent.py{CASE}",
    f"test_parity_sut.py{CASE}",
    "test_contract_invariance.py",
    "test_language_invariance.py",
    "test_depth_objectives.py",
)
# those of FlashAttention's replacement, whose tensors are a CPU's, and of the steps of a loop that counts at once
DESELECTED = "not test_kernels_agree and not test_loop_ends_with_the_last_live_unit"
SHOWN = 12


def results_of(path: Path) -> tuple[int, int, list[str]]:
    """Tests passed and skipped, and the names and messages of those that failed."""
    passed = skipped = 0
    failed = []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        if problem is not None:
            failed.append(f"{case.get('name')}: {' '.join((problem.get('message') or '').split())[:200]}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failed


def run_file(setting: Setting, name: str) -> list[Table]:
    if importlib.util.find_spec("pytest") is None:
        raise NotHereError("pytest is not installed")
    device = "imitated" if setting.device == "cpu" else setting.device
    # tests of one GPU share its time
    several = ["-n", "4"] if setting.device != "cpu" and importlib.util.find_spec("xdist") is not None else []
    timeout = ["-o", "timeout=0"] if importlib.util.find_spec("pytest_timeout") is not None else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = [
            "--device",
            device,
            "-q",
            "-k",
            DESELECTED,
            "-o",
            "processor_seconds=0",
            f"--junitxml={report}",
            # it warns where tests run in several processes, and warnings are errors here
            *("-p", "no:benchmark"),
            *several,
            *timeout,
        ]
        command = [sys.executable, "-m", "pytest", str(TESTS / name), *options]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
        if not report.is_file():
            raise AssertionError(f"pytest ended with status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        passed, skipped, failed = results_of(report)
    more = f"\nand {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    assert passed, f"no test of {name} passed: {done.stdout[-2000:]}"
    assert not failed, f"{len(failed)} of {passed + len(failed)} tests failed\n" + "\n".join(failed[:SHOWN]) + more
    return [Table("Tests with models on the GPU", [{"file": name, "passed": passed, "skipped": skipped}])]


def checks(setting: Setting) -> Iterator[Check]:
    for name in FILES[1:2] if setting.toy else FILES:
        yield Check(name, functools.partial(run_file, setting, name))
