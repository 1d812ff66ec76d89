"""How a card shows single examples of pixels and bytes, and that cards without them stay as they are."""

from dataclasses import replace

import pytest
from card_factory import FIGURE, make_card

from hf_recurrent.hub.card import CardData, Picture, Plot, lint_card, read_card, render_card, write_card
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.templating import NOTHING


def told(**changes):
    fields = {
        "path": "assets/test_picture.png",
        "kind": "pixels",
        "sizes": [16],
        "prediction": "connected",
        "probability": 0.875,
        "answer": "[not] connected",
        "unit": "token",
        "least": 1,
        "mean": 1.75,
        "most": 2,
        "steps": [{"taking": [1.0], "halting": None}, {"taking": [0.75], "halting": None}],
        "stage": "step",
        "reader": "the last token, [EOS]",
        "reads": [
            {"text": 0, "place": 6, "value": 255, "relative": 3.25, "bright": 1.5},
            {"text": 0, "place": -1, "value": 0, "relative": 0.0, "bright": None},
        ],
    }
    return Picture(**{**fields, **changes})


def of_bytes(**changes):
    read = {"text": 0, "place": 3, "value": ord("|"), "relative": 2.0, "bright": None}
    pair = {
        "kind": "bytes",
        "sizes": [4, 1],
        "unit": "sentence",
        "least": 0,
        "mean": 0.5,
        "steps": [{"taking": [0.0, 1.0], "halting": [0.97, 0.5]}, {"taking": [0.0, 0.0], "halting": [0.0, 0.96]}],
        "reads": [read, {**read, "text": 1, "place": 0, "value": ord("x")}],
        "path": "assets/pair_picture.png",
    }
    return told(**{**pair, **changes})


@pytest.fixture
def card_of(tmp_path):
    """Makes a card with these examples, whose figures lie in the folder."""

    def make(*pictures):
        for item in pictures:
            (tmp_path / item.path).parent.mkdir(exist_ok=True)
            (tmp_path / item.path).write_bytes(FIGURE)
        plots = [Plot("picture", item.path, split="test") for item in pictures]
        return replace(make_card(), plots=plots, pictures=list(pictures))

    return make


def section_of(text):
    return text.split("## What it attends to\n")[1].split("\n## Usage\n")[0]


def rows_of(body):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in body.splitlines() if line.startswith("| ")]


def test_a_card_shows_examples_and_can_be_published(card_of, tmp_path):
    card = card_of(told(), of_bytes())
    text = write_card(tmp_path, card).read_text()
    lint_card(tmp_path)
    assert render_card(read_card(tmp_path)) == text
    assert CardData.from_dict(card.to_dict()) == card
    assert text.count("## What it attends to") == 1
    first, second = section_of(text).split(f"]({told().path})")[1].split("](assets/pair_picture.png)")
    assert "The model answers `connected` (87.5%), and `[not] connected` is right" in first
    assert "Every pixel halts by itself, here after 1 to 2 steps, 1.75 on average over pixels." in first
    assert rows_of(first) == [
        ["Step", "Taken by"],
        ["1", "100.0%"],
        ["2", "75.0%"],
        ["Step", "The readout attends most to", "Times an even share", "Bright pixels, on average"],
        ["1", "row 1, column 2, of value 255", "3.25", "1.50"],
        ["2", NOTHING, NOTHING, NOTHING],
    ]
    assert "A dash is where the readout has stopped" in first
    assert rows_of(second)[:3] == [
        ["Step", *(f"{what}, text {number}" for number in "12" for what in ("Taken by", "Halting probability"))],
        ["1", "0.0%", "0.97", "100.0%", "0.50"],
        ["2", "0.0%", "0.00", "0.0%", "0.96"],
    ]
    assert rows_of(second)[4:] == [
        ["1", "byte 3 of text 1, `0x7c`", "2.00"],
        ["2", "byte 0 of text 2, `x`", "2.00"],
    ]
    assert "Bright" not in second
    assert "A dash" not in second


def test_every_table_row_has_as_many_cells_as_its_header(card_of):
    fixed = told(unit=None, least=None, mean=None, most=None, steps=[], stage="layer", probability=None, path="a.png")
    silent = told(reader=None, reads=[], path="b.png")
    body = section_of(render_card(card_of(told(), of_bytes(), fixed, silent)))
    width = None
    for line in body.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
    assert body.count("| Layer |") == 1
    assert "The depth is fixed." in body
    assert "None" not in body


def test_words_of_a_figure():
    assert phrase("picture_alt", told().__dict__) == (
        "A picture of 4 x 4 pixels: predicted connected with 87.5%, right is (not) connected; every pixel halts by "
        "itself, here after 1 to 2 steps, 1.75 on average over pixels; in step 1 the readout attends most to row 1, "
        "column 2, of value 255, 3.25 times an even share, and 1.50 times to pixels brighter than average"
    )
    assert phrase("picture_alt", of_bytes(least=2, most=2, probability=None).__dict__) == (
        "A text of 4 bytes and a text of 1 byte: predicted connected, right is (not) connected; each text of the pair "
        "halts as a whole, here after 2 steps; in step 2 the readout attends most to byte 0 of text 2, `x`, 2.00 times "
        "an even share"
    )
    assert phrase("picture_alt", told(unit="row", least=1, most=1, reads=[], reader=None).__dict__).endswith(
        "all pixels halt together, here after 1 step"
    )


@pytest.mark.parametrize("byte", [*b"`|[]\\ \n", 0, 127, 128, 255])
def test_letters_that_markdown_would_read_are_told_as_numbers(byte):
    read = {"text": 0, "place": 3, "value": byte, "relative": 1.0, "bright": None}
    assert phrase("picture_place", of_bytes(sizes=[9]).__dict__, read) == f"byte 3, `0x{byte:02x}`"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "how many steps each pixel takes and how much the readout attends to each pixel at each step"),
        ({"unit": "chunk", "kind": "bytes"}, "how many steps each chunk takes"),
        (
            {"unit": None, "kind": "bytes", "stage": "layer"},
            "how much the readout attends to each byte in the last layer",
        ),
        ({"unit": "row", "reader": None}, "after how many steps it halts"),
    ],
)
def test_captions_say_what_is_drawn(changes, expected):
    assert phrase("picture_caption", told(**changes).__dict__) == f"One test example: {expected}; darker is more."


def test_cards_without_it_are_as_they_were():
    assert "What it attends to" not in render_card(make_card())
