"""Every door with every architecture ends as it is declared; `python -m doors.table` writes what it did."""

import pytest

from hf_recurrent import ARCHITECTURES
from support.families import slow

from .catalogue import DOORS
from .door import EXTRA, WORKS, Door, Refusal


@pytest.mark.nightly
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("door", DOORS, ids=str)
def test_door(door, architecture, record_property):
    if door.missing:
        pytest.skip(f"{', '.join(door.missing)} not installed: pip install '{EXTRA}'")
    record_property("door", (door.name, architecture, door.outcome(architecture)))


# the caches of growing models, and heads that are handed to their base model
@pytest.mark.parametrize("name", ["offload to disk", slow("device_map='auto', beyond max_memory")])
def test_offloaded_models(name):
    (door,) = (door for door in DOORS if door.name == name)
    assert door.outcome("gut") == WORKS


def refuse(architecture, folder):
    raise ValueError("`depth` is -1:\n    pass at least 1")


HERE = __name__.partition(".")[0]


@pytest.mark.parametrize(
    ("enter", "refusals", "message"),
    [
        (refuse, {}, "Door is declared to work with gut"),
        (refuse, {"gut": Refusal("at least 2", HERE)}, "'at least 2', not by doors with '`depth` is -1: pass"),
        (refuse, {"gut": Refusal("at least 1")}, "by hf_recurrent with 'at least 1', not by doors with"),
        (lambda *_: None, {"gut": Refusal("at least 1")}, "Door works with gut, but is declared to be refused"),
    ],
)
def test_an_end_that_is_not_declared_fails(enter, refusals, message):
    with pytest.raises(AssertionError, match=message):
        Door("Group", "Door", enter, refusals).outcome("gut")


def test_ends_that_are_declared():
    door = Door("Group", "Door", refuse, {"gut": Refusal("pass at .*", HERE)}, ("torch", "no-such-package"))
    assert door.outcome("gut") == "pass at least 1"
    assert door.missing == ["no-such-package"]
    assert Door("Group", "Door", lambda *_: None).outcome("gut") == "✓"
