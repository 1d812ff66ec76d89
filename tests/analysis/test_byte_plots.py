"""The figures of texts of bytes, on what matplotlib was told to draw and on the file."""

import numpy as np
import pytest
from PIL import Image
from sequence_rows import byte_model, made_canvas, made_trace

from hf_recurrent.analysis.explain import page, readout_plots
from hf_recurrent.analysis.explain.canvas import NotDrawableError
from hf_recurrent.analysis.explain.readout import trace_readout
from hf_recurrent.analysis.explain.readout_plots import LINE, MAX_BYTES, bytes_to_draw, letters_of, plot_bytes
from hf_recurrent.benchmarks.byte_text import decode_bytes
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer

TEXT = b"a caf\xc3\xa9\n\xff$x_1$"


@pytest.fixture
def drawn(monkeypatch):
    """Draws a reading -> of each text its cells, letters and lines; the bars; and all other text."""
    kept = []
    monkeypatch.setattr(page, "save", lambda figure, path: kept.append(figure))

    def draw(trace, canvas):
        plot_bytes(trace, canvas, "unused.png")
        figure = kept.pop()
        texts = []
        for axes in figure.axes:
            if axes.images:
                cells = np.ma.filled(axes.images[0].get_array().astype(float), np.nan).ravel()
                letters = {
                    round(y) * LINE + round(x): letter.get_text()
                    for letter in axes.texts
                    for x, y in [letter.get_position()]
                }
                ends = [segment[0].tolist() for lines in axes.collections for segment in lines.get_segments()]
                texts.append((cells, letters, ends))
        bars = [axes for axes in figure.axes if axes.get_xlabel() == "step"]
        return texts, bars, [text.get_text() for text in figure.texts]

    return draw


def test_letters():
    content = np.frombuffer(b"a \xc3\xa9\n\t\xff\x00\xe4\xb8\xad\xc3", np.uint8)
    letters = letters_of(content)
    assert len(letters) == len(content)
    assert [letter for letter, _ in letters] == [*"a é·", "\u21b5", "\u2192", "ff", "00", "e4", "b8", "ad", "c3"]
    assert [kind for _, kind in letters] == ["text"] * 3 + ["mark"] * 3 + ["hex"] * 6
    every = np.arange(256)
    assert len(letters_of(every)) == 256


@pytest.mark.parametrize("name", ["gut", "gutlb", "ut_siamese"])
def test_models_give_a_picture_of_the_same_bytes(name, tmp_path):
    texts = (decode_bytes(TEXT), "b") if "siamese" in name else (decode_bytes(TEXT),)
    trace, canvas = trace_readout(byte_model(name), framed_byte_tokenizer(), *texts)
    assert canvas.values[0].astype(np.uint8).tobytes() == TEXT
    first, second = (plot_bytes(trace, canvas, tmp_path / place / "x.png") for place in "ab")
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert (image.format, image.width) == ("PNG", 968)
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.png"]


def test_bytes_that_halt_one_by_one(drawn):
    length = len(TEXT) + 2
    steps = np.arange(length) % 5
    [(cells, letters, ends)], bars, texts = drawn(
        made_trace(length, unit="token", steps=steps, attention=np.ones((4, length))), made_canvas(TEXT)
    )
    np.testing.assert_array_equal(cells[: len(TEXT)], steps[1:-1])
    assert np.isnan(cells[len(TEXT) :]).all()
    assert letters == {
        place: letter for place, (letter, _) in enumerate(letters_of(np.frombuffer(TEXT, np.uint8))) if letter != " "
    }
    assert not ends
    assert not bars
    assert f"Text, {len(TEXT)} bytes: steps; prediction yes (75.0%)" in texts


def test_chunks_have_ends(drawn):
    content = bytes(range(65, 91)) * 8
    length = len(content) + 2
    chunks = np.arange(length) // 60
    [(cells, _, ends)], _, texts = drawn(
        made_trace(length, unit="chunk", steps=chunks + 1, chunks=chunks), made_canvas(content)
    )
    np.testing.assert_array_equal(cells[: len(content)], (chunks + 1)[1:-1])
    # after the bytes 58, 118 and 178, in lines of 100
    assert ends == [[58.5, -0.5], [18.5, 0.5], [78.5, 0.5]]
    assert any("steps of each chunk" in text for text in texts)


def test_a_fixed_depth_is_coloured_by_the_last_attention(drawn):
    length = len(TEXT) + 2
    attention = np.stack([np.arange(length), np.arange(length)[::-1]]) / 100
    [(cells, _, ends)], bars, texts = drawn(
        made_trace(length, attention=attention, stage="layer", chunks=np.arange(length) // 8), made_canvas(TEXT)
    )
    np.testing.assert_allclose(cells[: len(TEXT)], attention[1, 1:-1] * length)
    assert [x for x, _ in ends] == [6.5]
    assert not bars
    assert any("attention from the readout in layer 2, 1 is an even share" in text for text in texts)


def test_texts_that_halt_as_a_whole(drawn):
    steps, beside = np.repeat([1, 2], [3, 4]), np.repeat([3, 4], [3, 4])
    halting = np.stack([steps / 10, steps / 5, np.where(steps == 1, 0, 0.9)])
    attention = np.array([[0.1, 0.2, 0.3] + [0.25] * 4, [np.nan] * 3 + [0.1, 0.6, 0.2, 0.1]])
    texts, bars, words = drawn(
        made_trace(7, unit="sentence", steps=steps, halting=halting, attention=attention, group_size=beside),
        made_canvas(b"x", b"yz"),
    )
    # each has its own last step
    assert texts[0][0][:1] == pytest.approx([0.2 * 3])
    assert texts[1][0][:2] == pytest.approx([0.6 * 4, 0.2 * 4])
    assert [[bar.get_height() for bar in axes.patches] for axes in bars] == [[0.1, 0.2, 0], [0.2, 0.4, 0.9]]
    assert any("Text 1, 1 byte: attention from the readout in step 1" in text for text in words)
    assert any("Text 2, 2 bytes: attention from the readout in step 2" in text for text in words)


def test_long_texts_are_cut(drawn, monkeypatch):
    assert bytes_to_draw([10]) == [10]
    assert bytes_to_draw([9000]) == [MAX_BYTES]
    assert bytes_to_draw([9000, 300]) == [MAX_BYTES - 300, 300]
    assert bytes_to_draw([1500, 9000]) == [1000, 1000]
    monkeypatch.setattr(readout_plots, "MAX_BYTES", 120)
    content = b"0123456789" * 400
    steps = np.arange(len(content) + 2)
    [(cells, letters, _)], _, texts = drawn(made_trace(len(steps), unit="token", steps=steps), made_canvas(content))
    assert len(cells) == 200
    assert np.isnan(cells).sum() == 80
    assert len(letters) == 120
    assert any("the first 120 of 4,000 bytes" in text for text in texts)


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(NotDrawableError, match="have no colours"):
        plot_bytes(made_trace(3), made_canvas(b"x"), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
