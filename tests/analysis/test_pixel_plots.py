"""The figures of pictures, on what matplotlib was told to draw and on the file."""

import numpy as np
import pytest
from sequence_rows import made_canvas, made_trace, picture

from hf_recurrent.analysis.explain import page, readout_plots
from hf_recurrent.analysis.explain.readout_plots import plot_pixels

pytestmark = pytest.mark.slow  # draws or renders

LENGTH = 18


@pytest.fixture
def drawn(monkeypatch):
    """Draws a reading -> the values of all maps, titles of the small ones by name, other axes and all text."""
    kept = []
    monkeypatch.setattr(page, "save", lambda figure, path: kept.append(figure))

    def draw(trace, canvas):
        plot_pixels(trace, canvas, "unused.png")
        figure = kept.pop()
        maps = [axes for axes in figure.axes if axes.images]
        named = {axes.get_title(): values(axes) for axes in maps if axes.get_title()}
        large = [values(axes) for axes in maps if not axes.get_title()]
        bars = [axes for axes in figure.axes if axes.get_xlabel() == "step"]
        return large, named, bars, [text.get_text() for text in figure.texts]

    return draw


def values(axes):
    return np.ma.filled(axes.images[0].get_array().astype(float), np.nan)


def test_pixels_that_halt_one_by_one(drawn):
    pixels = picture()
    steps = np.array([3, *np.arange(16) % 4, 3])
    attention = np.arange(3 * LENGTH).reshape(3, LENGTH) / 1000
    attention[2] = np.nan
    large, named, bars, texts = drawn(
        made_trace(LENGTH, unit="token", steps=steps, attention=attention), made_canvas(pixels)
    )
    np.testing.assert_array_equal(large[0], pixels)
    np.testing.assert_array_equal(large[1], steps[1:17].reshape(4, 4))
    assert list(named) == [
        "step 1: up to 0.288",
        "step 2: up to 0.612",
        "step 3",
    ]
    # weights of 18 tokens are told as multiples of an 18th
    np.testing.assert_allclose(named["step 2: up to 0.612"], attention[1, 1:17].reshape(4, 4) * LENGTH)
    assert np.isnan(named["step 3"]).all()
    assert not bars
    assert any("4 x 4 pixels; prediction yes (75.0%)" in text for text in texts)
    assert any("0 to 3, 1.50 on average" in text for text in texts)
    assert any("Attention from the readout, it; 1 is an even share" in text for text in texts)


def test_chunks_that_halt_as_a_whole(drawn):
    chunks = np.arange(LENGTH) // 5
    steps = np.array([1, 3, 0, 2])[chunks]
    large, _, _, texts = drawn(made_trace(LENGTH, unit="chunk", steps=steps, chunks=chunks), made_canvas(picture()))
    np.testing.assert_array_equal(large[1], steps[1:17].reshape(4, 4))
    assert any(text.startswith("Steps of the chunk of each pixel") for text in texts)


def test_pictures_of_a_pair_halt_and_are_drawn_apart(drawn):
    first, second = picture(0), picture(1, 3)
    steps, own = np.repeat([1, 2], [18, 11]), np.repeat([18, 11], [18, 11])
    halting = np.stack([np.where(steps == 1, 0.2, 0.3), np.where(steps == 1, 0.9, 0.5), np.where(steps == 1, 0, 0.8)])
    attention = np.array([steps / 100, np.where(steps == 1, np.nan, 0.05)])
    large, named, bars, texts = drawn(
        made_trace(29, unit="sentence", steps=steps, halting=halting, attention=attention, group_size=own),
        made_canvas(first, second),
    )
    np.testing.assert_array_equal(large[0], first)
    np.testing.assert_array_equal(large[1], second)
    assert [[bar.get_height() for bar in axes.patches] for axes in bars] == [[0.2, 0.9, 0], [0.3, 0.5, 0.8]]
    # that of the picture drawn last
    np.testing.assert_allclose(named["step 2: up to 0.55"], np.full((3, 3), 0.05 * 11))
    assert any("Picture 2, 3 x 3 pixels" in text for text in texts)


def test_a_fixed_depth_and_many_layers(drawn):
    attention = np.ones((20, LENGTH)) / LENGTH
    large, named, bars, texts = drawn(
        made_trace(LENGTH, attention=attention, stage="layer", probability=None), made_canvas(picture())
    )
    assert len(large) == 1
    assert len(named) == readout_plots.MAX_MAPS
    assert not bars
    assert any("first 16 of 20 layers" in text for text in texts)
    assert "A fixed depth: nothing halts" in texts
    assert any(text.endswith("; prediction yes") for text in texts)


def test_a_model_that_takes_no_step(drawn):
    nothing = np.full((1, LENGTH), np.nan)
    _, named, _, _ = drawn(
        made_trace(LENGTH, unit="token", steps=np.zeros(LENGTH, dtype=int), attention=nothing), made_canvas(picture())
    )
    assert list(named) == ["step 1"]
