"""The figure of an explanation, on what matplotlib was told to draw and on the file."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from hf_recurrent.analysis.explain import MAX_TOKENS, Explanation, explain, page, plots
from support.families import BY_NAME, make_model
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow  # draws or renders

TEXT = "w4 w9 w5 w21 w6 w4"


def made(count=3, length=4, heads=2, **changes):
    generator = np.random.default_rng(0)
    attention = generator.random((count, heads, length, length)) / length
    fields = {"gates": generator.random((count, length))} | changes
    return Explanation([f"t${i}_" for i in range(length)], "7", 0.25, attention, **fields)


@pytest.fixture
def drawn(monkeypatch):
    """Draws an explanation -> its maps, its low panel (None if there is none) and all its text."""
    kept = []
    monkeypatch.setattr(page, "save", lambda figure, path: kept.append(figure))

    def draw(explanation, head=None):
        plots.plot_explanation(explanation, "unused.png", head)
        figure = kept.pop()
        panels = [axes for axes in figure.axes if axes.images]
        maps = [axes for axes in panels if axes.get_title().startswith("step ")]
        low = [axes for axes in panels if axes not in maps]
        return maps, low[0] if low else None, [text.get_text() for text in figure.texts]

    return draw


def values(axes):
    return np.ma.filled(axes.images[0].get_array(), np.nan)


@pytest.mark.parametrize("name", ["ndr", "ut", "tlb"])
def test_models_give_a_picture_of_the_same_bytes(name, tmp_path):
    explanation = explain(make_model(BY_NAME[name]), make_tokenizer(), TEXT)
    first, second = (plots.plot_explanation(explanation, tmp_path / place / "x.png") for place in "ab")
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert image.format == "PNG"
        assert image.width == 968
        assert "Software" not in image.info
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.png"]


def test_a_map_for_each_step_and_gates_below(drawn):
    explanation = made()
    maps, low, texts = drawn(explanation)
    assert [axes.get_title() for axes in maps] == ["step 1", "step 2", "step 3"]
    for step, axes in enumerate(maps):
        np.testing.assert_array_equal(values(axes), explanation.attention[step].max(0))
        assert axes.images[0].get_clim() == (0, 1)
    np.testing.assert_array_equal(values(low), explanation.gates)
    assert [label.get_text() for label in low.get_xticklabels()] == explanation.tokens
    assert not low.collections
    assert any("greatest of 2 heads" in text and "prediction 7 (25.0%)" in text for text in texts)
    assert any(text.startswith("Gates") for text in texts)


def test_one_head(drawn):
    explanation = made()
    maps, _, texts = drawn(explanation, head=1)
    np.testing.assert_array_equal(values(maps[2]), explanation.attention[2, 1])
    assert any("(head 1)" in text for text in texts)
    with pytest.raises(ValueError, match="head is 2"):
        drawn(explanation, head=2)


def test_where_tokens_stopped(drawn):
    explanation = made(4, 3, steps=np.array([0, 1, 3]))
    maps, low, _ = drawn(explanation)
    # nobody goes beyond the third of four steps
    assert len(maps) == 3
    assert np.isnan(values(maps[1])).all(-1).tolist() == [True, True, False]
    assert np.isnan(values(low)).tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    (lines,) = low.collections
    assert [segment[0, 1] for segment in lines.get_segments()] == [-0.5, 0.5, 2.5]
    maps, low, _ = drawn(dataclasses.replace(explanation, freezes=False))
    assert not np.isnan(values(maps[2])).any()
    assert len(low.collections[0].get_segments()) == 3


def test_halting_where_there_are_no_gates(drawn):
    halting = np.array([[0.1, 0.2], [0.9, 0.0]])
    maps, low, texts = drawn(made(2, 2, gates=None, halting=halting, steps=np.array([2, 1])))
    np.testing.assert_array_equal(values(low), halting)
    assert any(text.startswith("Halting probability") for text in texts)
    maps, low, texts = drawn(made(2, 2, gates=None))
    assert len(maps) == 2
    assert low is None
    assert len(texts) == 1


def test_many_steps_and_many_tokens(drawn):
    maps, low, texts = drawn(made(40, 2))
    assert len(maps) == plots.MAX_MAPS
    assert values(low).shape == (plots.MAX_MAPS, 2)
    assert any("first 32 of 40 steps" in text for text in texts)
    maps, low, _ = drawn(made(1, MAX_TOKENS))
    # names of maps this small would overlap: every other one is left out
    assert len(maps[0].get_yticklabels()) == MAX_TOKENS // 2
    with pytest.raises(ValueError, match=f"has {MAX_TOKENS + 1} tokens, but only {MAX_TOKENS} can be drawn"):
        drawn(made(length=MAX_TOKENS + 1))


def test_a_regression_and_a_continuation_are_called_so(drawn):
    _, _, texts = drawn(dataclasses.replace(made(), probability=None))
    assert any(text.endswith("prediction 7") for text in texts)
    _, _, texts = drawn(dataclasses.replace(made(heads=1), predicts_next=True))
    assert any("(one head); next token 7 (25.0%)" in text for text in texts)
