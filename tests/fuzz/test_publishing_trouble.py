"""A few seconds of the campaign against publishing, and planted faults that it finds at the first trial."""

import dataclasses
from types import SimpleNamespace

import pytest

from fuzz import publishing
from fuzz.publishing import TROUBLES, campaign

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_publishing_in_trouble_keeps_every_promise():
    found = campaign(seconds=5, seed=0)
    assert found.total > 0
    assert not found.faults, found


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_trouble_is_made(trouble):
    found = campaign(count=1, kinds=["space"], troubles=[trouble])
    assert found.total == 1
    assert not found.faults, found


def two_commits():
    """Send the first file by a commit of its own."""
    from hf_recurrent.hub import push

    send = push._send

    def planted(folder, target, message, api, parent, plan):
        first, *others = plan.add
        parent = send(folder, target, message, api, parent, dataclasses.replace(plan, add=[first], delete=[]))
        return send(folder, target, message, api, parent, dataclasses.replace(plan, add=others))

    push._send = planted


def no_way_back():
    """Leave what was made for a commit that failed, and say nothing."""
    from hf_recurrent.hub import push

    push._remove_repository = lambda *arguments: None


@pytest.mark.parametrize(
    ("plant", "trouble", "fault"),
    [(two_commits, "two", "half in a commit"), (no_way_back, "fault", "does not tell what was left")],
)
def test_a_planted_fault_is_found(plant, trouble, fault, monkeypatch):
    """Of two publishers one makes a commit; and a commit that is refused is not tried again."""
    monkeypatch.setattr(publishing, "ROUTES", [SimpleNamespace(name="commit")])
    monkeypatch.setattr(publishing, "EFFECTS", [{"status": 403}])
    found = campaign(count=1, kinds=["space"], troubles=[trouble], plant=plant)
    assert any(fault in each for each in found.faults), found
