"""How a checkpoint's task reads a user's own examples: as training read its own, unless options say otherwise."""

from types import SimpleNamespace

import pytest

from hf_recurrent.data.tokenizers import train_tokenizer
from hf_recurrent.tasks import get_task
from hf_recurrent.tasks.checkpoints import COLUMNS, Checkpoint, Request, holds_examples, own_task
from support.own_data import choice, question, tagged, task_on


def checkpoint(tag, **settings):
    model = SimpleNamespace(config=SimpleNamespace(id2label={}, problem_type=None))
    return Checkpoint("run", model, train_tokenizer("bytes", [], frame="classification"), get_task(tag), settings)


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        ({"line_by_line": True, "pack": False}, {}, (True, False)),
        ({"line_by_line": True, "pack": False}, {"pack": False}, (True, False)),
        ({"line_by_line": True, "pack": False}, {"pack": True}, (False, True)),
        ({"line_by_line": True, "pack": False}, {"line_by_line": True}, (True, False)),
        ({"line_by_line": True, "pack": False}, {"line_by_line": False}, (False, True)),
        ({"pack": False}, {"line_by_line": False}, (False, False)),
        ({"pack": True}, {"line_by_line": True}, (True, False)),
    ],
)
def test_documents_are_read_as_in_training(trained, given, expected, write):
    request = Request(files={"test": write("a.txt", "a text")}, arguments=given)
    data = own_task(checkpoint("text-generation", **trained), request).data
    assert (data.line_by_line, data.pack) == expected


def renamed(row):
    return {f"my_{name}": value for name, value in row.items()}


@pytest.mark.parametrize(
    ("tag", "row", "columns"),
    [
        (
            "question-answering",
            question,
            {"question_column": "my_question", "context_column": "my_context", "answer_column": "my_answers"},
        ),
        (
            "multiple-choice",
            choice,
            {
                **{"context_column": "my_sent1", "start_column": "my_sent2", "label_column": "my_label"},
                "ending_columns": tuple(f"my_ending{number}" for number in range(3)),
            },
        ),
        ("token-classification", tagged, {"text_column": "my_tokens", "label_column": "my_ner_tags"}),
    ],
)
def test_columns_of_training_are_read_again(tag, row, columns, write):
    """A card names them by their flags."""
    place = write("rows.jsonl", [renamed(row(number)) for number in range(60) if number % 3 < 2])
    trained = task_on(tag, place, **columns).source
    settings = {name: trained.facts[name] for name in COLUMNS if trained.facts.get(name)}
    assert settings == columns
    model = checkpoint(tag, **settings)
    model.model.config.id2label = dict(enumerate(trained.label_names))
    read = own_task(model, Request(files={"test": place})).source
    assert read.splits["test"].column_names == trained.splits["train"].column_names


def test_places_of_examples(write, tmp_path):
    assert [holds_examples(place) for place in ("listops", write("a.csv", "text,label\n"), str(tmp_path))] == [
        *(False, True, True)
    ]
    with pytest.raises(ValueError, match=r"b.csv': there is no such file or folder; did you mean a\.csv"):
        holds_examples(str(tmp_path / "b.csv"))
    with pytest.raises(ValueError, match="'org/reviews': there is no such file or folder; pass a data set of the Hub"):
        holds_examples("org/reviews")
