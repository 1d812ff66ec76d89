"""The figures of explanations, on what matplotlib was told to draw and on the file."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hf_recurrent.analysis.explain import MAX_TOKENS, Explanation, explain, plots
from hf_recurrent.analysis.explain.plots import plot_explanation
from support.families import BY_NAME, make_model
from support.symbols import made, picture, pixel_tokenizer
from support.symbols import texts_of as pixel_texts
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow  # draws


@pytest.fixture
def draw(monkeypatch):
    """Draws an explanation -> the figure, and all its text."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))

    def draw(found, head=None):
        plot_explanation(found, "unused.png", head)
        return kept[-1], [text.get_text() for part in kept[-1].subfigs for text in part.texts]

    return draw


def values(axes):
    return np.ma.filled(axes.images[0].get_array().astype(float), np.nan)


def images(figure):
    """Values of the images with a title, by title; and of the others."""
    panels = [axes for axes in figure.axes if axes.images]
    named = {axes.get_title(): values(axes) for axes in panels if axes.get_title()}
    return named, [values(axes) for axes in panels if not axes.get_title()]


def tokens(count=3, length=4, heads=2, **changes):
    generator = np.random.default_rng(0)
    attention = generator.random((count, heads, length, length)) / length
    fields = {"gates": generator.random((count, length))} | changes
    return Explanation([f"t${i}_" for i in range(length)], "7", 0.25, attention, **fields)


def of_text(name):
    return explain(make_model(BY_NAME[name]), make_tokenizer(), "w4 w9 w5 w21 w6 w4")


def of_pixels(name):
    return explain(make_model(BY_NAME[name]), pixel_tokenizer(), *pixel_texts(name))


@pytest.mark.parametrize(
    ("find", "name"),
    [(of_text, "ndr"), (of_text, "tlb"), (of_pixels, "gut"), (of_pixels, "gutlb"), (of_pixels, "ut_siamese")],
)
def test_models_give_a_figure_of_the_same_bytes(find, name, tmp_path):
    found = find(name)
    first, second = (plot_explanation(found, tmp_path / place / "x.png") for place in "ab")
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert (image.format, image.width) == ("PNG", 968)
        assert "Software" not in image.info
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.png"]


@pytest.mark.parametrize("head", [None, 1])
def test_a_map_for_each_step_and_gates_below(draw, head):
    found = tokens()
    figure, texts = draw(found, head)
    maps, (low,) = images(figure)
    assert list(maps) == ["step 1", "step 2", "step 3"]
    for shown, attention in zip(maps.values(), found.attention, strict=True):
        np.testing.assert_array_equal(shown, attention.max(0) if head is None else attention[head])
    np.testing.assert_array_equal(low, found.gates)
    panel = next(axes for axes in figure.axes if axes.get_ylabel() == "step")
    assert [label.get_text() for label in panel.get_xticklabels()] == found.tokens
    assert not panel.collections
    which = "greatest of 2 heads" if head is None else "(head 1)"
    assert any(which in text and text.endswith("; prediction 7 (25.0%)") for text in texts)
    assert any(text.startswith("Gates") for text in texts)
    with pytest.raises(ValueError, match="head is 2"):
        draw(found, head=2)


def test_where_tokens_stopped(draw):
    found = tokens(4, 3, steps=np.array([0, 1, 3]))
    figure, _ = draw(found)
    maps, (low,) = images(figure)
    # nobody goes beyond the third of four steps
    assert len(maps) == 3
    assert np.isnan(maps["step 2"]).all(-1).tolist() == [True, True, False]
    assert np.isnan(low).tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    lines = next(axes.collections[0] for axes in figure.axes if axes.get_ylabel() == "step")
    assert [segment[0, 1] for segment in lines.get_segments()] == [0.5, 1.5, 3.5]
    maps, _ = images(draw(replace(found, freezes=False))[0])
    assert not np.isnan(maps["step 3"]).any()


def test_halting_where_there_are_no_gates(draw):
    halting = np.array([[0.1, 0.2], [0.9, 0.0]])
    figure, texts = draw(tokens(2, 2, gates=None, halting=halting, steps=np.array([2, 1])))
    np.testing.assert_array_equal(images(figure)[1], [halting])
    assert any(text.startswith("Halting probability") for text in texts)
    figure, texts = draw(tokens(2, 2, gates=None))
    assert (len(images(figure)[0]), images(figure)[1], len(texts)) == (2, [], 1)


def test_many_steps_and_many_tokens(draw):
    figure, texts = draw(tokens(40, 2))
    maps, (low,) = images(figure)
    assert (len(maps), low.shape) == (plots.MAX_MAPS, (plots.MAX_MAPS, 2))
    assert any("first 32 of 40 steps" in text for text in texts)
    figure, _ = draw(tokens(1, MAX_TOKENS))
    # names of maps this small would overlap: some are left out
    assert 16 <= len(figure.axes[0].get_yticklabels()) <= MAX_TOKENS // 2
    with pytest.raises(ValueError, match=f"has {MAX_TOKENS + 1} tokens, but only {MAX_TOKENS} can be drawn"):
        draw(tokens(length=MAX_TOKENS + 1))


def test_a_regression_and_a_continuation_are_called_so(draw):
    assert any(text.endswith("prediction 7") for text in draw(replace(tokens(), probability=None))[1])
    _, texts = draw(replace(tokens(heads=1), predicts_next=True))
    assert any("(one head); next token 7 (25.0%)" in text for text in texts)


def test_pixels_that_halt_one_by_one(draw):
    steps, length = np.array([3, *np.arange(16) % 4, 3]), 18
    attention = np.arange(3 * length * length).reshape(3, 1, length, length) / 1000
    found = made(picture(), steps=steps, attention=attention)
    figure, texts = draw(found)
    small, others = images(figure)
    assert not others
    np.testing.assert_array_equal(small["pixels"], picture())
    np.testing.assert_array_equal(small["steps: 0 to 3, mean 1.50"], steps[1:17].reshape(4, 4))
    # the first token is read out, and its weights to 18 tokens are multiples of an 18th
    np.testing.assert_allclose(small["step 2: up to 6.12"], attention[1, 0, 0, 1:17].reshape(4, 4) * length)
    assert texts == ["Picture, 4 x 4 pixels; prediction yes (75.0%); attention from ?, 1 is an even share"]


def test_pictures_of_a_pair_are_drawn_apart(draw):
    texts = np.repeat([0, 1], [18, 11])
    readers, steps = np.isin(np.arange(29), (0, 18)), np.repeat([1, 2], [18, 11])
    apart = np.where(texts[:, None] == texts, 1 / 29, 0.0)
    fields = {"steps": steps, "texts": texts, "readers": readers}
    fields["attention"] = np.tile(apart, (3, 2, 1, 1))
    figure, words = draw(made(picture(0), picture(1, 3), **fields))
    drawn = [(axes.get_title(), values(axes)) for axes in figure.axes]
    names = ["pixels", "steps: 1 to 1, mean 1.00", "step 1: up to 0.621", "step 2"]
    assert [name for name, _ in drawn[:4]] == names
    assert np.isnan(drawn[3][1]).all()
    np.testing.assert_array_equal(drawn[4][1], picture(1, 3))
    # both steps of the second text
    np.testing.assert_allclose(drawn[7][1], np.full((3, 3), 11 / 29))
    assert words[1] == "Picture 2, 3 x 3 pixels; attention from ? and ?, 1 is an even share"


def test_a_memory_and_many_layers(draw):
    many = np.ones((20, 2, 18, 18)) / 18
    small, _ = images(draw(made(picture(), attention=many, stage="layer"))[0])
    assert len(small) == 1 + plots.MAX_READS
    assert "layer 16: up to 1" in small
    # memory is read out, and nothing halts
    figure, texts = draw(made(picture(), readers=np.zeros(18, dtype=bool)))
    assert list(images(figure)[0]) == ["pixels"]
    assert texts == ["Picture, 4 x 4 pixels; prediction yes (75.0%)"]
