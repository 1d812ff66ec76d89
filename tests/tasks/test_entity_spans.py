"""Texts with marked spans, from reading to predictions."""

import json

import pytest

from hf_recurrent.tasks.arguments import EntityArguments
from hf_recurrent.tasks.entity_spans import EntitySpans, Span, spans_in, tags_of
from hf_recurrent.training.run import run

TEXT = "Ada Lovelace met Babbage, in London."
SPANS = [[0, 12, "PER"], [17, 24, "PER"], [29, 35, "LOC"]]
SIZES = "{hidden_size: 16, num_attention_heads: 2, intermediate_size: 16, num_hidden_layers: 2}"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_words_of_spans_are_labelled_and_found_again():
    tags = tags_of(TEXT, [Span(*span) for span in SPANS])
    assert tags == ["B-PER", "I-PER", "O", "B-PER", "O", "B-LOC"]
    # punctuation belongs to the word that it follows
    assert spans_in(TEXT, tags) == [(0, 12, "PER"), (17, 25, "PER"), (29, 36, "LOC")]


def test_neighbouring_spans_stay_apart_and_an_inside_label_alone_begins_one():
    assert spans_in("a b c d", ["B-X", "B-X", "I-X", "I-Y"]) == [(0, 1, "X"), (2, 5, "X"), (6, 7, "Y")]


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([[0, 3, "PER"], [1, 5, "LOC"]], "has a word that another span has"),
        ([[40, 50, "PER"]], "marks no word"),
        ([[0, 3]], "expected start, end and label"),
        ("none", "expected a list of spans"),
    ],
)
def test_spans_that_cannot_be_learned_are_refused(tmp_path, spans, problem):
    path = write(tmp_path / "train.jsonl", [{"text": TEXT, "spans": SPANS}, {"text": TEXT, "spans": spans}])
    with pytest.raises(ValueError, match=rf"train.jsonl.*{problem}"):
        EntitySpans(EntityArguments(train_file=path)).source  # noqa: B018


@pytest.mark.parametrize("form", [list, lambda span: dict(zip(("start", "end", "label"), span, strict=True))])
def test_a_run_learns_spans_and_writes_them(tmp_path, form):
    rows = [
        {"text": TEXT.replace("Ada", name), "spans": [form(span) for span in SPANS]} for name in ("Ada", "Eva")
    ] * 16
    folder, path = tmp_path / "run", write(tmp_path / "train.jsonl", rows)
    sizes = ("--model_type", "ut", "--config", SIZES, "--tokenizer", "words", "--use_cpu", "true")
    steps = ("--max_steps", "60", "--learning_rate", "0.01", "--write_predictions", "true", "--report_to", "none")
    run(["--task", "entity-spans", "--train_file", path, *sizes, *steps, "--output_dir", str(folder)])
    lines = (folder / "predictions" / "validation.jsonl").read_text().splitlines()
    assert lines
    for line in map(json.loads, lines):
        assert line["predicted_spans"] == line["spans"]
        assert [line["text"][span["start"] : span["end"]] for span in line["spans"]] == [
            line["text"][:12],
            "Babbage,",
            "London.",
        ]
