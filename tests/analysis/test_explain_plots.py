"""The figures of explanations, on what matplotlib was told to draw and on the file."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hf_recurrent.analysis.explain import MAX_TOKENS, Explanation, explain, plots
from hf_recurrent.analysis.explain.canvas import NotDrawableError
from hf_recurrent.analysis.explain.explanation import explain_symbols
from hf_recurrent.analysis.explain.plots import LINE, letters_of, plot_explanation
from hf_recurrent.benchmarks.byte_text import decode_bytes
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer
from support.families import BY_NAME, make_model
from support.symbols import byte_model, made, made_canvas, picture
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow  # draws

TEXT = b"a caf\xc3\xa9\n\xff$x_1$"
PICTURE = made_canvas(picture())
LENGTH = 18


@pytest.fixture
def draw(monkeypatch):
    """Draws an explanation -> the figure, and all its text."""
    kept = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure))

    def draw(found, head=None):
        plot_explanation(found, "unused.png", head)
        return kept[-1], [text.get_text() for text in kept[-1].texts]

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


def of_bytes(name):
    texts = (decode_bytes(TEXT), "b") if "siamese" in name else (decode_bytes(TEXT),)
    found = explain_symbols(byte_model(name), framed_byte_tokenizer(), *texts)
    assert found.canvas.values[0].astype(np.uint8).tobytes() == TEXT
    return found


@pytest.mark.parametrize(
    ("find", "name"),
    [(of_text, "ndr"), (of_text, "tlb"), (of_bytes, "gut"), (of_bytes, "gutlb"), (of_bytes, "ut_siamese")],
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
    # names of maps this small would overlap: every other one is left out
    assert len(figure.axes[0].get_yticklabels()) == MAX_TOKENS // 2
    with pytest.raises(ValueError, match=f"has {MAX_TOKENS + 1} tokens, but only {MAX_TOKENS} can be drawn"):
        draw(tokens(length=MAX_TOKENS + 1))


def test_a_regression_and_a_continuation_are_called_so(draw):
    assert any(text.endswith("prediction 7") for text in draw(replace(tokens(), probability=None))[1])
    _, texts = draw(replace(tokens(heads=1), predicts_next=True))
    assert any("(one head); next token 7 (25.0%)" in text for text in texts)


def test_pixels_that_halt_one_by_one(draw):
    steps = np.array([3, *np.arange(16) % 4, 3])
    reads = np.arange(3 * LENGTH).reshape(3, LENGTH) / 1000
    reads[2] = np.nan
    figure, texts = draw(made(PICTURE, unit="token", steps=steps, reads=reads))
    small, (pixels, taken) = images(figure)
    np.testing.assert_array_equal(pixels, picture())
    np.testing.assert_array_equal(taken, steps[1:17].reshape(4, 4))
    assert list(small) == ["step 1: up to 0.288", "step 2: up to 0.612", "step 3"]
    # weights of 18 tokens are told as multiples of an 18th
    np.testing.assert_allclose(small["step 2: up to 0.612"], reads[1, 1:17].reshape(4, 4) * LENGTH)
    assert np.isnan(small["step 3"]).all()
    assert texts[:2] == [
        "Steps of each pixel:\n0 to 3, 1.50 on average",
        "Picture, 4 x 4 pixels; prediction yes (75.0%)",
    ]
    assert any("Attention from the readout, it; 1 is an even share" in text for text in texts)


def test_pictures_of_a_pair_halt_and_are_drawn_apart(draw):
    first, second = picture(0), picture(1, 3)
    steps = np.repeat([1, 2], [18, 11])
    reads = np.array([steps / 100, np.where(steps == 1, np.nan, 0.05)])
    fields = {"steps": steps, "reads": reads, "chunks": steps - 1}
    figure, texts = draw(made(made_canvas(first, second), unit="sentence", **fields))
    small, large = images(figure)
    np.testing.assert_array_equal(large[0], first)
    np.testing.assert_array_equal(large[1], second)
    assert [text for text in texts if text.startswith("halts")] == ["halts after 1 step", "halts after 2 steps"]
    # that of the picture drawn last
    np.testing.assert_allclose(small["step 2: up to 0.55"], np.full((3, 3), 0.05 * 11))
    assert any("Picture 2, 3 x 3 pixels" in text for text in texts)


def test_a_fixed_depth_and_many_layers(draw):
    found = made(PICTURE, reads=np.ones((20, LENGTH)) / LENGTH, stage="layer")
    figure, texts = draw(replace(found, probability=None))
    small, large = images(figure)
    assert (len(large), len(small)) == (1, plots.MAX_READS)
    assert any("first 16 of 20 layers" in text for text in texts)
    assert "A fixed depth: nothing halts" in texts
    assert any(text.endswith("; prediction yes") for text in texts)


def test_a_model_that_takes_no_step(draw):
    reads = np.full((1, LENGTH), np.nan)
    figure, _ = draw(made(PICTURE, unit="token", steps=np.zeros(LENGTH, dtype=int), reads=reads))
    assert list(images(figure)[0]) == ["step 1"]


def test_letters():
    content = np.frombuffer(b"a \xc3\xa9\n\t\xff\x00\xe4\xb8\xad\xc3", np.uint8)
    letters = letters_of(content)
    assert len(letters) == len(content)
    assert letters == [*"a é·", "\u21b5", "\u2192", *"\u25af\u25af\u25af\u00b7\u00b7\u25af"]
    assert len(letters_of(np.arange(256))) == 256


def texts_of(figure):
    """Of each text its cells, its letters by place, and the ends of its chunks."""
    for axes in figure.axes:
        if axes.images:
            places = ((letter.get_text(), letter.get_position()) for letter in axes.texts)
            letters = {round(y) * LINE + round(x): text for text, (x, y) in places}
            ends = [segment[0].tolist() for lines in axes.collections for segment in lines.get_segments()]
            yield values(axes).ravel(), letters, ends


def test_bytes_that_halt_one_by_one(draw):
    length = len(TEXT) + 2
    steps = np.arange(length) % 5
    figure, texts = draw(made(made_canvas(TEXT), unit="token", steps=steps, reads=np.ones((4, length))))
    ((cells, letters, ends),) = texts_of(figure)
    np.testing.assert_array_equal(cells[: len(TEXT)], steps[1:-1])
    assert np.isnan(cells[len(TEXT) :]).all()
    expected = enumerate(letters_of(np.frombuffer(TEXT, np.uint8)))
    assert letters == {place: letter for place, letter in expected if letter != " "}
    assert not ends
    assert f"Text, {len(TEXT)} bytes: steps; prediction yes (75.0%)" in texts


def test_chunks_have_ends(draw):
    content = bytes(range(65, 91)) * 8
    chunks = np.arange(len(content) + 2) // 60
    figure, texts = draw(made(made_canvas(content), unit="chunk", steps=chunks + 1, chunks=chunks))
    ((cells, _, ends),) = texts_of(figure)
    np.testing.assert_array_equal(cells[: len(content)], (chunks + 1)[1:-1])
    # after the bytes 58, 118 and 178, in lines of 100
    assert ends == [[58.5, -0.5], [18.5, 0.5], [78.5, 0.5]]
    assert any("steps of each chunk" in text for text in texts)


def test_bytes_of_a_fixed_depth_are_coloured_by_the_last_attention(draw):
    length = len(TEXT) + 2
    reads = np.stack([np.arange(length), np.arange(length)[::-1]]) / 100
    figure, texts = draw(made(made_canvas(TEXT), reads=reads, stage="layer"))
    ((cells, _, _),) = texts_of(figure)
    np.testing.assert_allclose(cells[: len(TEXT)], reads[1, 1:-1] * length)
    assert any("attention from the readout in layer 2, 1 is an even share" in text for text in texts)


def test_texts_that_halt_as_a_whole(draw):
    steps = np.repeat([1, 2], [3, 4])
    reads = np.array([[0.1, 0.2, 0.3] + [0.25] * 4, [np.nan] * 3 + [0.1, 0.6, 0.2, 0.1]])
    fields = {"steps": steps, "reads": reads, "chunks": steps - 1}
    figure, words = draw(made(made_canvas(b"x", b"yz"), unit="sentence", **fields))
    first, second = texts_of(figure)
    # each has its own last step
    assert first[0][:1] == pytest.approx([0.2 * 3])
    assert second[0][:2] == pytest.approx([0.6 * 4, 0.2 * 4])
    assert any("Text 1, 1 byte: halts after 1 step; attention from the readout in step 1" in text for text in words)
    assert any("Text 2, 2 bytes: halts after 2 steps; attention from the readout in step 2" in text for text in words)


def test_long_texts_are_cut(draw, monkeypatch):
    monkeypatch.setattr(plots, "MAX_BYTES", 120)
    figure, texts = draw(made(made_canvas(b"0123456789" * 400), unit="token", steps=np.arange(4002)))
    ((cells, letters, _),) = texts_of(figure)
    assert (len(cells), np.isnan(cells).sum(), len(letters)) == (200, 80, 120)
    assert any("the first 120 of 4,000 bytes" in text for text in texts)


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(NotDrawableError, match="have no colours"):
        plot_explanation(made(made_canvas(b"x")), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
