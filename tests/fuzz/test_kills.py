"""A few trials of the campaign of kills, and a planted fault that it finds."""

import pytest

from fuzz.kills import PUBLISH, Command, campaign
from support.families import nightly

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["card render", PUBLISH, *map(nightly, ("sweep", "train classifier", "train documents"))]
)
def test_what_is_killed_is_as_before_or_whole_and_completed(name):
    found = campaign(count=3, names=(name,))
    assert found.total == 3
    assert not found.faults, found


def test_a_half_that_is_left_is_found(tmp_path, monkeypatch):
    command = Command("card render", tmp_path)
    begin = command.contents
    monkeypatch.setattr(command, "contents", lambda: {**begin(), "checkpoint/README.md": b"half"})
    faults = command.trial("kill", 1, None)
    assert any("neither as before nor whole: ['checkpoint/README.md']" in fault for fault in faults)
