"""The command line of campaigns, their table, and the run of all."""

from types import SimpleNamespace

import pytest

from fuzz import run
from fuzz.campaigns import Findings, main


def campaign(*, seconds, count, seed, faults=()):
    found = Findings(["good", "bad"], faults=list(faults), notes=[f"seed {seed}"])
    for _ in found.trials(seconds, count):
        found.counts["a longer row"]["good"] += 1
        found.counts["row"]["new"] += 10
    return found


def test_a_campaign_ends_with_its_table(capsys):
    assert main(campaign, "", ["--count", "30", "--seed", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "seed 2",
        "              good   bad   new",
        "a longer row     3     0     0",
        "row              0     0    30",
        "all              3     0    30",
        "33 cases, 0 faults",
    ]


def test_a_fault_or_an_empty_campaign_fails(capsys):
    assert main(lambda **flags: campaign(**flags, faults=["broken"]), "", ["--count", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "broken"
    assert main(lambda **flags: Findings(), "", []) == 1


def test_a_campaign_ends_at_a_time_a_number_or_a_fault():
    assert list(Findings().trials(seconds=0)) == [0]
    found = Findings(faults=["one"])
    assert next(found.trials(count=3, faults=1)) == 0
    assert len(list(found.trials(seconds=60, faults=1))) == 1


@pytest.mark.parametrize(("broken", "status"), [([], 0), (["load"], 1)])
def test_all_campaigns_are_run_and_any_fault_fails(broken, status, monkeypatch, capsys):
    def ended(command, **options):
        return SimpleNamespace(returncode=int(command[2].removeprefix("fuzz.") in broken))

    monkeypatch.setattr(run.subprocess, "run", ended)
    assert run.main(["--seconds", "6", "--seed", "3"]) == status
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "== invariances: 2 s, seed 3"
    assert shown[-1].endswith(f"failed: {', '.join(broken) or 'none'}")
