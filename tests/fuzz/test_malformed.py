"""Some seconds of the campaigns with malformed recipes, command lines and files, and what they count as a fault."""

import random

import pytest

from fuzz import damaged_files, malformed_commands, malformed_recipes
from fuzz.refusing.malformed import campaign_of
from fuzz.refusing.verdict import VERDICTS, Case


@pytest.mark.slow
@pytest.mark.parametrize("module", [malformed_recipes, malformed_commands, damaged_files], ids=lambda m: m.__name__)
def test_nearly_all_is_clear_and_nothing_worse_than_obscure(module):
    found = module.campaign(count=60, seed=1)
    assert not found.faults, found
    assert found.total == 60


def test_every_command_is_in_the_campaign():
    # flags of training are those of malformed_recipes
    others = {"metric list", "benchmark publish", "train", "demo"}
    assert malformed_commands.LINES.keys() | others == dict(malformed_commands.commands()).keys()


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("others", [1, 200])
def test_one_in_a_hundred_may_be_obscure_and_none_worse(verdict, others):
    verdicts = [verdict, *["clear"] * others]
    cases = iter([Case("run (at night)", "a", 1, each, "said") for each in verdicts])
    found = campaign_of(lambda rng: next(cases), seconds=60, count=len(verdicts), seed=0)
    assert bool(found.faults) == (verdict != "clear" and (verdict, others) != ("obscure", 200))
    assert found.counts["run"].total() == others + 1
    assert (f"{verdict}: run (at night) a=1\n  said" in str(found)) == (verdict != "clear")


def test_a_case_can_be_repeated():
    drawn = [], []
    for numbers in drawn:
        campaign_of(
            lambda rng, numbers=numbers: numbers.append(rng.random()) or Case("", "", 0, "clear", ""),
            seconds=60,
            count=3,
            seed=1,
        )
    assert drawn[0] == drawn[1] == [random.Random(f"1 {number}").random() for number in range(3)]
