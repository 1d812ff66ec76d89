"""The campaign of commands that are killed finds nothing, and finds what is planted."""

import pytest

from fuzz import kept_folders
from fuzz.killing.faults import NO_FAULT, Fault
from hf_recurrent import changes
from support.families import nightly

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return kept_folders.Bench("card render", tmp_path_factory.mktemp("bench") / "work")


@pytest.mark.parametrize("kind", ["kill", nightly("tear"), nightly("fill")])
def test_a_card_is_rendered_or_not(bench, kind):
    states = set()
    for at in range(1, bench.changes + 1, 4):
        state, faults = kept_folders.trial(bench, Fault(kind, at))
        assert not faults, (at, faults)
        states.add(state)
    assert "as before" in states


def test_files_that_are_put_in_place_one_by_one_are_found(bench, monkeypatch):
    def carry_out(folder):
        place = folder / changes.DECIDED
        for path in (place / "new").glob("*.*"):
            path.replace(folder / path.name)
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(changes, "_carry_out", carry_out)
    monkeypatch.setattr(changes, "_undo", lambda change: None)
    _, faults = kept_folders.trial(bench, NO_FAULT)
    assert any("refused, and left" in fault for fault in faults)
