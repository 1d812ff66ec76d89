"""Cards that set other models beside their own: runs with other seeds, and baselines."""

import re
from dataclasses import replace

import pytest
from card_factory import make_card, make_table

from hf_recurrent.cli import main
from hf_recurrent.hub import render_card, write_card
from hf_recurrent.hub.card import Compared, read_card
from hf_recurrent.hub.comparison import compared_cards
from support.card_text import section

ACCURACY = make_table()["accuracy"]


def with_accuracy(card, accuracy, seed=2, **changes):
    results = [replace(result, table={**result.table, "accuracy": accuracy}) for result in card.results]
    return replace(card, results=results, training=replace(card.training, seed=seed), **changes)


@pytest.fixture
def card():
    return make_card()


@pytest.fixture
def folders(card, tmp_path):
    """A run of the same model with another seed, and two of another model."""
    cards = {
        "again": with_accuracy(card, 0.4),
        "rival-1": with_accuracy(card, 0.3, model_name="Fixed depth"),
        "rival-2": with_accuracy(card, 0.2, seed=3, model_name="Fixed depth"),
    }
    for name, other in cards.items():
        (tmp_path / name).mkdir()
        write_card(tmp_path / name, other)
    return [tmp_path / name for name in cards]


def test_runs_of_one_title_are_one_model(card, folders):
    again, rival = compared_cards(card, folders)
    assert (again.same_model, rival.same_model) == (True, False)
    splits = [result.split for result in card.results]
    assert again.values == {split: [0.4] for split in splits}
    assert rival.values == {split: [0.3, 0.2] for split in splits}
    assert rival.num_parameters == card.training.num_parameters


def test_the_spread_over_seeds_takes_the_place_of_its_lack(card, folders):
    one = "One run with one seed: no spread over seeds is known."
    assert one in render_card(card)
    assert one in render_card(replace(card, compared=compared_cards(card, folders[1:])))
    text = render_card(replace(card, compared=compared_cards(card, folders)))
    assert one not in text
    mean, deviation = (ACCURACY + 0.4) / 2, abs(ACCURACY - 0.4) / 2**0.5
    assert (
        f"| the same with every seed | {card.training.num_parameters:,} | {100 * mean:.1f}% ± {100 * deviation:.1f} ("
        in text
    )
    assert "| Fixed depth |" in text
    assert "25.0% ± 7.1 (30.0%, 20.0%)" in text


@pytest.mark.parametrize(
    ("runs", "told"), [([0.99], True), ([0.99, 0.2], False), ([ACCURACY + 0.01], False), ([0.2], False)]
)
def test_a_model_that_is_measurably_better_is_a_limitation(card, runs, told):
    split = card.results[0].split
    text = render_card(replace(card, compared=[Compared("LSTM", 1234, {split: runs})]))
    said = f"- LSTM, with 1,234 parameters, gets more right on `{split}`: 99.0% instead of {100 * ACCURACY:.1f}%."
    assert (said in section(text, "Limitations")) is told
    assert "gets more right" not in render_card(
        replace(card, compared=[Compared("Again", 1234, {split: runs}, same_model=True)])
    )


def test_rows_are_as_wide_as_their_heading(card, folders):
    text = render_card(replace(card, compared=[*compared_cards(card, folders), Compared("X|Y", 3, {})]))
    rows = text.split("| Compared on the same examples")[1].split("\n\n")[0].splitlines()
    assert len({len(re.split(r"(?<!\\)\|", row.rstrip(" |"))) for row in rows[2:]}) == 1
    assert "| X\\|Y | 3 | not evaluated |" in text


OTHER_EXAMPLES = "was measured on other examples than this card: compare runs on the same ones"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda card: replace(card, benchmark=replace(card.benchmark, seed=5)), OTHER_EXAMPLES),
        (lambda card: replace(card, benchmark=replace(card.benchmark, name="flip_flop")), OTHER_EXAMPLES),
        (lambda card: card, "holds the run .*, which is compared already: leave it out"),
        (lambda card: replace(card, results=[replace(card.results[0], split="other")]), OTHER_EXAMPLES),
        (
            lambda card: replace(card, results=[replace(card.results[0], table=make_table(examples=80))]),
            OTHER_EXAMPLES,
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(card, tmp_path, change, message):
    write_card(tmp_path, change(card))
    with pytest.raises(ValueError, match=message):
        compared_cards(card, [tmp_path])


def test_runs_of_another_size_are_another_model_and_none_counts_twice(card, folders, tmp_path):
    wide = with_accuracy(card, 0.4)
    write_card(tmp_path, replace(wide, training=replace(wide.training, num_parameters=9)))
    assert [item.same_model for item in compared_cards(card, [tmp_path, folders[0]])] == [False, True]
    with pytest.raises(ValueError, match="again holds the run"):
        compared_cards(card, [folders[0], folders[0]])


def test_a_folder_without_a_card_is_refused(card, tmp_path):
    with pytest.raises(ValueError, match=r"has no card\.json: give the output folder of a finished run"):
        compared_cards(card, [tmp_path])


def test_the_command_writes_and_removes_comparisons(card, folders, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    write_card(own, card)
    command = ["card", "compare", str(own)]
    with pytest.raises(SystemExit, match="0"):
        main([*command, *map(str, folders)])
    assert [item.name for item in read_card(own).compared] == [card.model_name, "Fixed depth"]
    assert "| Fixed depth |" in (own / "README.md").read_text()
    with pytest.raises(SystemExit, match="0"):
        main(command)
    assert read_card(own) == card
