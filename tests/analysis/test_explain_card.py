"""How a card shows the routing of an example, and the steps and attention of pixels."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from hf_recurrent.analysis.explain import Explanation, explain
from hf_recurrent.analysis.explain.card import draw_picture, draw_routing, examples_to_draw, routing_facts
from hf_recurrent.analysis.explain.explanation import explain_symbols
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
    return draw_routing(folder, make_model(BY_NAME["ndr"]), tokenizer, row, prefix="ood/test", max_prompt=40)


def test_it_is_what_the_model_does(routing, folder):
    found = explain(make_model(BY_NAME["ndr"]), make_tokenizer(), TEXT)
    assert routing["path"] == "assets/ood_test_routing.png"
    assert (folder / routing["path"]).read_bytes().startswith(b"\x89PNG")
    assert routing["answer"] == "LABEL_2"
    assert (routing["prediction"], routing["tokens"]) == (found.prediction, found.tokens)
    assert len(routing["steps"]) == len(found.attention) == 6
    for step, told in enumerate(routing["steps"]):
        assert told["gate"] == pytest.approx(found.gates[step].mean())
        assert told["open_gate"] == pytest.approx(found.gates[step, told["open"]]) == found.gates[step].max()
        assert told["reader"] == found.readout == 6
        assert (
            told["weight"]
            == pytest.approx(found.head_attention()[step, 6, told["read"]])
            == found.head_attention()[step, 6].max()
        )


def test_a_language_model_is_shown_before_a_labelled_token(tmp_path):
    tokenizer = make_tokenizer()
    row = row_of(tokenizer, labels=[-100, 4, -100, 5, -100, 6, -100])
    model = make_language_model(LANGUAGE_BY_NAME["ut"])
    shown = {most: draw_routing(tmp_path, model, tokenizer, row, prefix="t", max_prompt=most) for most in (40, 4, 0)}
    names = {most: (routing["tokens"][-1], routing["answer"]) for most, routing in shown.items()}
    assert names == {40: ("w21", "w6"), 4: ("w9", "w5"), 0: ("[BOS]", "w4")}
    assert shown[40]["stops"] is not None


@pytest.mark.parametrize("name", ["xpos_transformer", "gutlb"])
def test_nothing_is_drawn_of_others(name, tmp_path):
    tokenizer = make_tokenizer()
    row = row_of(tokenizer, labels=0)
    assert draw_routing(tmp_path, make_model(BY_NAME[name]), tokenizer, row, prefix="test", max_prompt=40) is None
    row = {**tokenizer(" ".join(["w4"] * 70)), "labels": 0}
    assert draw_routing(tmp_path, make_model(BY_NAME["ndr"]), tokenizer, row, prefix="test", max_prompt=40) is None
    assert not list(tmp_path.iterdir())


def test_tokens_that_stopped_are_not_told_of():
    attention, gates = np.zeros((2, 1, 3, 3)), np.array([[0.5, 0.2, 0.2], [0.9, 0.4, 0.2]])
    attention[:, 0, 0, 1], attention[:, 0, 1, 2], attention[:, 0, 2, 0] = 0.9, 0.6, 0.3
    explanation = Explanation(["a", "b", "c"], "0", 0.5, attention, gates, np.array([1, 2, 1]), readout=2)
    first, second = routing_facts(explanation)["steps"]
    assert (first["reader"], first["read"], first["weight"], first["open"]) == (2, 0, 0.3, 0)
    assert (second["reader"], second["read"], second["weight"], second["open"]) == (1, 2, 0.6, 1)
    assert first["gate"] == pytest.approx(0.3)
    assert second["gate"] == pytest.approx(0.4 / 3)
    assert routing_facts(replace(explanation, readout=None))["steps"][0]["reader"] == 0
    still = routing_facts(replace(explanation, steps=np.array([0, 0, 0])))["steps"]
    assert [step["weight"] for step in still] == [0.0]


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
    told = draw_picture(tmp_path, model, tokenizer, row, prefix="lra/test 1")
    found = explain_symbols(model, tokenizer, *texts_of("ut"))
    assert told["path"] == "assets/lra_test_1_picture.png"
    expected = plot_explanation(found, tmp_path / "x.png").read_bytes()
    assert (tmp_path / told["path"]).read_bytes() == expected
    assert (told["kind"], told["sizes"], told["answer"]) == ("pixels", [16], "LABEL_2")
    assert (told["prediction"], told["probability"]) == (found.prediction, found.probability)
    steps, pixels = found.steps[1:-1], found.canvas.values[0]
    assert (told["least"], told["mean"], told["most"]) == (steps.min(), steps.mean(), steps.max())
    assert [step["taking"] for step in told["steps"]] == [[(steps > step).mean()] for step in range(max(steps))]
    assert len(told["reads"]) == len(found.reads)
    for relative, facts in zip(found.relative[:, 1:-1], told["reads"], strict=True):
        assert facts["place"] == relative.argmax()
        assert facts["value"] == pixels[facts["place"]]
        assert facts["relative"] == pytest.approx(relative.max())
        assert facts["bright"] == pytest.approx(relative[pixels > pixels.mean()].mean())


@pytest.mark.parametrize(
    ("make", "tokenizer", "text", "labels"),
    [
        (lambda: make_model(BY_NAME["ut"]), make_tokenizer(), "w4 w5 w6 w7", 2),
        (lambda: make_model(BY_NAME["ut"]), pixel_tokenizer(), spelled(picture()) + " 1", 2),
        (lambda: make_model(BY_NAME["rnn_lstm"]), pixel_tokenizer(), spelled(picture()), 2),
        (lambda: make_language_model(LANGUAGE_BY_NAME["ut"]), pixel_tokenizer(), spelled(picture()), [-100] * 18),
    ],
)
def test_no_picture_is_drawn_of_others(make, tokenizer, text, labels, tmp_path):
    row = {**tokenizer(text), "labels": labels}
    assert draw_picture(tmp_path, make(), tokenizer, row, prefix="test") is None
    assert not list(tmp_path.iterdir())


def test_which_pictures_are_drawn():
    lengths, labels = [10, 400, 900, 1200, 1250, 4000], [1, 0, 1, 0, 2, 1]
    assert examples_to_draw(lengths, labels) == [3, 2]
    assert examples_to_draw([66, 66, 66], [7, 3, 7]) == [1, 0]
