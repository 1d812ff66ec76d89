"""The command line of campaigns, their table, and the run of all."""

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


# what stands for campaigns -> what the last table shows of it
PLANTED = {
    "good": ("print('7 cases, 0 faults')", "7 0 ok"),
    "faulty": ("print('8 cases, 2 faults'); exit(1)", "8 2 FAILED (status 1)"),
    "mute": ("print('done')", "- - FAILED (status 0)"),
    "crashed": ("raise MemoryError", "- - FAILED (status 1)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("names", [["good"], ["good", "faulty"], ["crashed", "good"], ["mute"], []])
def test_all_campaigns_are_run_and_any_fault_fails(names, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "fuzz"
    folder.mkdir()
    for name, (text, _) in PLANTED.items():
        (folder / f"{name}.py").write_text(f"{text}\ndef campaign(): ...\n")
    (folder / "helper.py").write_text("")
    (folder / "test_good.py").write_text("def campaign(): ...")
    monkeypatch.setattr(run, "FOLDER", folder)
    assert run.main([*names, "--seconds", "6", "--seed", "3"]) == int(names != ["good"])
    chosen = names or sorted(PLANTED)
    shown = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("== ") for line in shown) == len(chosen) + 1
    ends = [line.split() for line in shown[-len(chosen) :]]
    assert [[line[0], *line[2:]] for line in ends] == [[name, *PLANTED[name][1].split()] for name in chosen]


def test_a_campaign_that_there_is_not_is_named(capsys):
    assert {"invariances", "publishing"} <= set(run.campaign_names())
    with pytest.raises(SystemExit, match="2"):
        run.main(["invariance"])
    assert "there is no campaign 'invariance': choose from" in capsys.readouterr().err
