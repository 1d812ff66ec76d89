"""Some seconds of the campaigns with malformed recipes, command lines and files."""

import pytest

from fuzz import damaged_files, malformed_commands, malformed_recipes
from fuzz.campaigns import report
from fuzz.verdict import Case, counts


@pytest.mark.slow
@pytest.mark.parametrize("module", [malformed_recipes, malformed_commands, damaged_files], ids=lambda m: m.__name__)
def test_nearly_all_is_clear_and_nothing_silent(module):
    cases = module.campaign(count=60, seed=1)
    found = counts(cases)
    assert found["silent"] == 0, report(cases)
    assert found["obscure"] <= len(cases) // 30, report(cases)
    assert not any("Traceback" in case.message for case in cases), report(cases)


def test_every_command_is_in_the_campaign():
    asks_nobody = {"metric list", "benchmark publish"}
    assert malformed_commands.LINES.keys() | asks_nobody == dict(malformed_commands.commands()).keys()


def test_a_report_lists_what_is_not_clear():
    cases = [Case("run", "a", 1, "clear", "m"), Case("run", "b", 2, "silent", "")]
    assert report(cases) == "silent: run b=2\n  \n{'clear': 1, 'obscure': 0, 'silent': 1}"
