"""`hf-recurrent explain`."""

import re

import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from hf_recurrent.analysis.explain import explain, plots
from hf_recurrent.benchmarks import benchmark_info, build_tokenizer
from hf_recurrent.cli.explain import IDLE
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.families import BY_NAME, make_model
from support.symbols import picture, pixel_tokenizer, spelled

TEXT = "b a d 101"


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """A tiny Neural Data Router on compositional table lookup."""
    name = "compositional_table_lookup"
    tokenizer, labels = build_tokenizer(name), dict(enumerate(benchmark_info(name).label_names))
    config = AutoConfig.for_model(
        "ndr",
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_attention_heads=2,
        num_hidden_layers=6,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("router") / "ndr"
    return save_checkpoint(AutoModelForSequenceClassification.from_config(config), folder, tokenizer)


def cells_of(out):
    """The cells of each line of all printed tables."""
    return [[part.strip() for part in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]


def rows_of(out):
    """Token number -> its name and one cell a step, over all tables."""
    rows = {}
    for token, *cells in cells_of(out):
        number, name = token.split(maxsplit=1)
        rows.setdefault(int(number), [name]).extend(cells)
    return rows


def explained(folder, **options):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return explain(model, AutoTokenizer.from_pretrained(folder), TEXT, **options)


@pytest.mark.parametrize("head", [None, 1])
def test_every_cell_is_the_models_own(succeed, router, head):
    words = () if head is None else ("--head", head)
    out, _ = succeed("explain", router, TEXT, *words)
    found, rows = explained(router), rows_of(out)
    assert [row[0] for row in rows.values()] == ["[BOS]", *TEXT.split(), "[EOS]"]
    attention = found.head_attention(head)
    for place, (_, *cells) in rows.items():
        assert len(cells) == 6
        for step, shown in enumerate(cells):
            gate, source, weight = shown.split()
            assert int(gate) == int(found.gates[step, place] * 10)
            assert int(source) == attention[step, place].argmax()
            assert float(weight) == pytest.approx(attention[step, place].max(), abs=0.006)
    assert f"prediction: {found.prediction} ({found.probability:.1%})" in out
    assert ("head 1 of 0 to 1" in out) == (head == 1)
    assert not any(len(line) > 80 for line in out.splitlines())


def test_the_figure_is_written_only_if_asked(succeed, router, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeed("explain", router, TEXT)
    assert not list(tmp_path.iterdir())
    out, _ = succeed("explain", router, TEXT, "--output", tmp_path / "a" / "f.png", "--max-depth", 9, "--head", 0)
    assert f"wrote {tmp_path / 'a' / 'f.png'}" in out
    expected = plots.plot_explanation(explained(router, max_depth=9), tmp_path / "b.png", 0)
    assert (tmp_path / "a" / "f.png").read_bytes() == expected.read_bytes()
    with Image.open(expected) as image:
        assert image.format == "PNG"
    assert len(rows_of(out)[0]) == 1 + 9


def test_halting_and_pairs(succeed, tmp_path):
    tokenizer = build_tokenizer("logical_inference")
    model = make_model(BY_NAME["ut_siamese"])
    model.resize_token_embeddings(len(tokenizer))
    save_checkpoint(model, tmp_path / "ut", tokenizer)
    out, _ = succeed("explain", tmp_path / "ut", "( not a )", "--pair", "b")
    found, rows = explain(model.eval(), tokenizer, "( not a )", "b"), rows_of(out)
    for place, (_, steps, *cells) in rows.items():
        # every table of the same tokens begins with their steps
        cells = [shown for shown in cells if shown == IDLE or " " in shown]
        assert int(steps) == found.steps[place]
        assert [shown == IDLE for shown in cells] == [step >= int(steps) for step in range(found.num_steps)]
    assert len(set(found.steps.tolist())) > 1


def test_a_language_model(succeed, pytestconfig):
    folder = pytestconfig.rootpath / "model_cards" / "ut-flip-flop-cpu"
    out, _ = succeed("explain", folder, "w 1 i 0 i 0 r")
    assert re.search(r"^next token: 1 \(9\d\.\d+%\)$", out, re.MULTILINE)


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    return save_checkpoint(make_model(BY_NAME["ut"]), tmp_path_factory.mktemp("pixels") / "ut", pixel_tokenizer())


@pytest.mark.slow
def test_pixels(succeed, pixels, tmp_path):
    text = spelled(picture())
    out, _ = succeed("explain", pixels, text, "--output", tmp_path / "f.png")
    found = explain(make_model(BY_NAME["ut"]), pixel_tokenizer(), text)
    assert (tmp_path / "f.png").read_bytes() == plots.plot_explanation(found, tmp_path / "g.png").read_bytes()
    rows = cells_of(out)
    assert len(rows) == found.num_steps
    for step, (number, taken, *_) in enumerate(rows):
        assert (number, taken) == (str(step + 1), f"{(found.steps[1:-1] > step).mean():.1%}")
    place = int(found.reads[0, 1:-1].argmax())
    assert rows[0][2] == f"row {place // 4}, column {place % 4}, value {picture().ravel()[place]}"
    assert float(rows[0][3]) == pytest.approx(found.reads[0, place + 1], abs=0.006)
    assert f"prediction: {found.prediction} (" in out
    assert "4 x 4 pixels" in out
    assert f"attention: from {found.reader}, the mean over heads; 1 is an even share." in " ".join(out.split())


@pytest.mark.parametrize(
    ("checkpoint", "words", "message"),
    [
        (
            "router",
            ["b a x 101"],
            "text: word 3 of it, 'x' at character 5, is not in the vocabulary of this checkpoint",
        ),
        ("router", [""], "text is '': there is no word in it"),
        ("router", ["a " * 63], "text has 65 tokens, special tokens included: pass at most 64"),
        ("router", [TEXT, "--head", "2"], "head is 2: this model has heads 0 to 1"),
        ("router", [TEXT, "--output", "figure.pdf"], "output is 'figure.pdf': the figure is a PNG file"),
        ("router", [TEXT, "--device", "banana"], "device='banana' is not available here"),
        ("pixels", ["1 2 3"], "text has 3 pixels, which make no square: pass 4 or 9"),
        ("pixels", ["1 2 3 4", "--head", "0"], "head is 0: of pixels the mean over heads is shown, leave it"),
    ],
)
def test_bad_requests_are_named_and_nothing_is_written(
    refuse, request, tmp_path, monkeypatch, checkpoint, words, message
):
    folder = request.getfixturevalue(checkpoint)
    monkeypatch.chdir(tmp_path)
    output = [] if "--output" in words else ["--output", "figure.png"]
    line = refuse("explain", folder, *words, *output)
    assert message in line
    assert "\n" not in line
    assert not list(tmp_path.iterdir())
