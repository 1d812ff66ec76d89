"""What a card and the command line tell of pixels and bytes."""

import numpy as np
import pytest
from sequence_rows import byte_model, picture, pixel_tokenizer, spelled, texts_of

from hf_recurrent.analysis.explain.card import draw_picture, examples_to_draw
from hf_recurrent.analysis.explain.readout import trace_readout
from hf_recurrent.analysis.explain.readout_plots import plot_readout
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer
from hf_recurrent.cli import main
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_language_model, make_model
from support.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow  # draws or renders


@pytest.fixture
def run(capsys):
    """Runs a command line -> (exit status, stdout, stderr)."""

    def run(*words):
        with pytest.raises(SystemExit) as finished:
            main([str(word) for word in words])
        return finished.value.code, *capsys.readouterr()

    return run


def row_of(tokenizer, *texts, labels=2):
    return {**tokenizer(*texts), "labels": labels, "brightness": "not an input"}


def test_a_figure_and_its_numbers(tmp_path):
    name = "ut"
    model, tokenizer = make_model(BY_NAME[name]), pixel_tokenizer()
    told = draw_picture(tmp_path, model, tokenizer, row_of(tokenizer, *texts_of(name)), prefix="lra/test 1")
    trace, canvas = trace_readout(model, tokenizer, *texts_of(name))
    assert told["path"] == "assets/lra_test_1_picture.png"
    expected = plot_readout(trace, canvas, tmp_path / "x.png").read_bytes()
    assert (tmp_path / told["path"]).read_bytes() == expected
    assert (told["kind"], told["sizes"], told["answer"]) == ("pixels", [16], "LABEL_2")
    assert (told["prediction"], told["probability"]) == (trace.prediction, trace.probability)
    steps = trace.steps[1:-1]
    assert (told["least"], told["mean"], told["most"]) == (steps.min(), steps.mean(), steps.max())
    assert [step["taking"] for step in told["steps"]] == [[(steps > step).mean()] for step in range(max(steps))]
    assert len(told["reads"]) == len(trace.attention)
    bright = np.append(False, canvas.values[0] > canvas.values[0].mean())
    for stage, facts in enumerate(told["reads"]):
        relative = trace.relative[stage, 1:-1]
        assert facts["place"] == relative.argmax()
        assert facts["value"] == canvas.values[0][facts["place"]]
        assert facts["relative"] == pytest.approx(relative.max())
        assert facts["bright"] == pytest.approx(trace.relative[stage, :-1][bright].mean())


def test_nothing_is_drawn_of_others(tmp_path):
    pixels, words = pixel_tokenizer(), make_tokenizer()
    square = spelled(picture())
    nothing = [
        (make_model(BY_NAME["ut"]), words, row_of(words, "w4 w5 w6 w7")),
        (make_model(BY_NAME["ut"]), pixels, row_of(pixels, square + " 1")),
        (make_model(BY_NAME["rnn_lstm"]), pixels, row_of(pixels, square)),
        (make_language_model(LANGUAGE_BY_NAME["ut"]), pixels, row_of(pixels, square, labels=[-100] * 18)),
    ]
    for model, tokenizer, row in nothing:
        assert draw_picture(tmp_path, model, tokenizer, row, prefix="test") is None
    assert not list(tmp_path.iterdir())


def test_which_rows_are_drawn():
    lengths, labels = [10, 400, 900, 1200, 1250, 4000], [1, 0, 1, 0, 2, 1]
    assert examples_to_draw(lengths, labels) == [3, 2]
    assert examples_to_draw([66, 66, 66], [7, 3, 7]) == [1, 0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    tokenizer = pixel_tokenizer()
    return save_checkpoint(make_model(BY_NAME["ut"]), tmp_path_factory.mktemp("pixels") / "ut", tokenizer)


def test_the_command_shows_pixels(run, checkpoint, tmp_path):
    text = spelled(picture())
    status, out, err = run("explain", checkpoint, text, "--output", tmp_path / "f.png")
    assert status == 0, err
    model, tokenizer = make_model(BY_NAME["ut"]), pixel_tokenizer()
    trace, canvas = trace_readout(model, tokenizer, text)
    assert (tmp_path / "f.png").read_bytes() == plot_readout(trace, canvas, tmp_path / "g.png").read_bytes()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    taken = [[str(step + 1), f"{(trace.steps[1:-1] > step).mean():.1%}"] for step in range(trace.num_steps)]
    assert rows[: len(taken)] == taken
    place = int(trace.relative[0, 1:-1].argmax())
    assert rows[len(taken)][1].startswith(f"row {place // 4}, column {place % 4}, of value {canvas.values[0][place]}")
    assert f"prediction: {trace.prediction} (" in out
    assert "every pixel halts by itself" in out
    assert f"wrote {tmp_path / 'f.png'}" in out


def test_the_command_shows_bytes(run, tmp_path):
    save_checkpoint(byte_model("gut_siamese"), tmp_path / "gut", framed_byte_tokenizer())
    status, out, err = run("explain", tmp_path / "gut", "a text", "--pair", "another")
    assert status == 0, err
    assert "a text of 6 bytes and a text of 7 bytes: each text of the pair halts as a whole" in out
    assert "halting 2" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1 2 3"], "text has 3 pixels, which make no square: pass 2 x 2 = 4 or 3 x 3 = 9"),
        (["1 2 3 x"], "text: word 4 of it, 'x' at character 7, is not in the vocabulary"),
        (["1 2 3 4", "--head", "0"], "head is 0: of pixels and bytes the mean over heads is shown, leave it out"),
    ],
)
def test_bad_requests_are_named_and_nothing_is_written(run, checkpoint, tmp_path, words, message):
    status, _, err = run("explain", checkpoint, *words, "--output", tmp_path / "f.png")
    assert status == 1
    assert f"error: {message}" in err
    assert not list(tmp_path.iterdir())
