"""The committed table has every architecture and every door, and says of each what is declared."""

import itertools
import re

import pytest

from hf_recurrent import ARCHITECTURES

from .catalogue import DOORS
from .door import WORKS
from .table import FILE, main, parse, render


@pytest.fixture(scope="module")
def rows():
    return parse(FILE.read_text())


def test_every_architecture_and_door_is_there(rows):
    assert list(rows) == [(door.group, door.name) for door in DOORS]
    assert all(list(row.outcomes) == list(ARCHITECTURES) for row in rows.values())
    assert len({door.name for door in DOORS}) == len(DOORS)
    # groups are not interrupted
    groups = [group for group, _ in itertools.groupby(DOORS, key=lambda door: door.group)]
    assert len(set(groups)) == len(groups)


@pytest.mark.parametrize("door", DOORS, ids=str)
def test_the_table_says_what_is_declared(rows, door):
    assert door.refusals.keys() <= ARCHITECTURES.keys()
    row = rows[door.group, door.name]
    assert re.sub(r" \d[^\s,]*", "", row.packages) == ", ".join(door.packages)
    for architecture, outcome in row.outcomes.items():
        refusal = door.refusals.get(architecture)
        assert outcome == WORKS if refusal is None else re.search(refusal.message, outcome), architecture


def test_the_table_is_as_it_is_written(rows):
    assert render({name: row for (_, name), row in rows.items()}) == FILE.read_text()


def test_no_traceback_is_quoted(rows):
    """Tools put what surrounds an error into its message."""
    assert not [name for name, row in rows.items() if "Traceback" in " ".join(row.outcomes.values())]


def test_unknown_doors_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["Trainer", "no-such-door"])
    assert "there is no door 'no-such-door': choose from AutoModel, " in capsys.readouterr().err
