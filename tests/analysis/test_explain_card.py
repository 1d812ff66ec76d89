"""How a card shows the routing of an example, and the steps and attention of pixels."""

import shutil

import pytest

from hf_recurrent.analysis.explain import explain
from hf_recurrent.analysis.explain.card import draw_example, examples_to_draw
from hf_recurrent.analysis.explain.plots import plot_explanation
from hf_recurrent.hub import lint_card, read_results, write_results
from support.checkpoints import GUT_LISTOPS
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_language_model, make_model
from support.symbols import picture, pixel_tokenizer, spelled, texts_of
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow  # draws or renders

TEXT = "w4 w9 w5 w21 w6"


def row_of(tokenizer, **more):
    return {**tokenizer(TEXT), "label": "not an input", **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a card, with the figures of a committed one."""
    folder = tmp_path_factory.mktemp("card")
    shutil.copytree(GUT_LISTOPS / "assets", folder / "assets")
    return folder


@pytest.fixture(scope="module")
def routing(folder):
    """Of a Neural Data Router, with its figure in the card's folder."""
    tokenizer = make_tokenizer()
    row = row_of(tokenizer, labels=2)
    return draw_example(folder, make_model(BY_NAME["ndr"]), tokenizer, row, prefix="ood/test", max_prompt=40)


def test_it_is_what_the_model_does(routing, folder):
    found = explain(make_model(BY_NAME["ndr"]), make_tokenizer(), TEXT)
    assert routing["path"] == "assets/ood_test_routing.png"
    assert (folder / routing["path"]).read_bytes().startswith(b"\x89PNG")
    assert routing["answer"] == "LABEL_2"
    assert (routing["prediction"], routing["tokens"]) == (found.prediction, found.tokens)


def test_a_language_model_is_shown_before_a_labelled_token(tmp_path):
    tokenizer = make_tokenizer()
    row = row_of(tokenizer, labels=[-100, 4, -100, 5, -100, 6, -100])
    model = make_language_model(LANGUAGE_BY_NAME["ut"])
    shown = {most: draw_example(tmp_path, model, tokenizer, row, prefix="t", max_prompt=most) for most in (40, 4, 0)}
    names = {most: (routing["tokens"][-1], routing["answer"]) for most, routing in shown.items()}
    assert names == {40: ("w21", "w6"), 4: ("w9", "w5"), 0: ("[BOS]", "w4")}


@pytest.mark.parametrize("name", ["xpos_transformer", "gutlb"])
def test_nothing_is_drawn_of_others(name, tmp_path):
    tokenizer = make_tokenizer()
    row = row_of(tokenizer, labels=0)
    assert draw_example(tmp_path, make_model(BY_NAME[name]), tokenizer, row, prefix="test", max_prompt=40) is None
    row = {**tokenizer(" ".join(["w4"] * 70)), "labels": 0}
    assert draw_example(tmp_path, make_model(BY_NAME["ndr"]), tokenizer, row, prefix="test", max_prompt=40) is None
    assert not list(tmp_path.iterdir())


def test_a_card_shows_it_and_can_be_published(routing, folder):
    committed = read_results(GUT_LISTOPS)
    drawn = {"kind": "routing", "path": routing["path"], "column": None, "split": "test"}
    figures = [*committed["figures"], drawn]
    text = write_results(folder, {**committed, "figures": figures, "routing": [routing]}).read_text()
    lint_card(folder)
    assert f"- Tokens: `[BOS] {TEXT} [EOS]`. Answer: " in text
    assert "; right: `LABEL_2`." in text
    assert text.count(f"]({routing['path']})") == 1


def test_a_picture_and_its_numbers(tmp_path):
    model, tokenizer = make_model(BY_NAME["ut"]), pixel_tokenizer()
    row = {**tokenizer(*texts_of("ut")), "labels": 2, "brightness": "not an input"}
    told = draw_example(tmp_path, model, tokenizer, row, prefix="lra/test 1", max_prompt=40)
    found = explain(model, tokenizer, *texts_of("ut"))
    assert told["path"] == "assets/lra_test_1_picture.png"
    expected = plot_explanation(found, tmp_path / "x.png").read_bytes()
    assert (tmp_path / told["path"]).read_bytes() == expected
    assert (told["kind"], "tokens" in told) == ("picture", False)
    assert (told["answer"], told["prediction"], told["probability"]) == ("LABEL_2", found.prediction, found.probability)


@pytest.mark.parametrize(("name", "text"), [("ut", spelled(picture()) + " 1"), ("rnn_lstm", spelled(picture()))])
def test_no_picture_is_drawn_of_others(name, text, tmp_path):
    tokenizer = pixel_tokenizer()
    row = {**tokenizer(text), "labels": 2}
    assert draw_example(tmp_path, make_model(BY_NAME[name]), tokenizer, row, prefix="test", max_prompt=40) is None
    assert not list(tmp_path.iterdir())


def test_which_pictures_are_drawn():
    lengths, labels = [10, 400, 900, 1200, 1250, 4000], [1, 0, 1, 0, 2, 1]
    assert examples_to_draw(lengths, labels) == [3, 2]
    assert examples_to_draw([66, 66, 66], [7, 3, 7]) == [1, 0]
