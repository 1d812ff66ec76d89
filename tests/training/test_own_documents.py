"""`run_clm_accelerate.py` on documents of one's own."""

import json
import re
import shutil
import sys
from unittest import mock

import pytest
from document_runs import TINY_DOCUMENTS
from transformers import AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.training.arguments import DocumentArguments
from hf_recurrent.training.document_run import DocumentRun
from hf_recurrent.training.run import as_command, run_and_print

OPTIONS = {name: value for name, value in TINY_DOCUMENTS.items() if name != "benchmark_config"}


@pytest.fixture(scope="module")
def novels(tmp_path_factory):
    """Thirty documents as JSONL, in a column of their own."""
    path = tmp_path_factory.mktemp("novels") / "novels.jsonl"
    rows = [
        {"title": str(number), "body": f"It was a dark night, the {number}th of May.\n" * 3} for number in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def flags(folder, **options):
    chosen = {**OPTIONS, "config": json.dumps(OPTIONS["config"]), "output_dir": folder, **options}
    return [part for name, value in chosen.items() if value is not None for part in (f"--{name}", str(value))]


def trained(folder, **options):
    DocumentRun(flags(folder, **options)).execute()
    return json.loads((folder / "recurrence_stats.json").read_text())["splits"]


@pytest.mark.slow
def test_rows_are_documents_and_some_are_held_out(novels, tmp_path):
    tables = trained(tmp_path / "run", train_file=novels, text_column="body")
    texts = [json.loads(line)["body"] for line in novels.read_text().splitlines()]
    assert list(tables) == ["validation"]
    assert tables["validation"]["documents"] == 2
    assert tables["validation"]["tokens"] == sum(len(texts[number].encode()) - 1 for number in (0, 20))
    assert [row["carry"] for row in tables["validation"]["carries"]] == ["document", "segment", "state"]
    lint_card(tmp_path / "run")
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["benchmark"]["parameters"]["documents"] == {"train": 28, "validation": 2}
    assert "It has read the documents of `novels` alone" in card["limitations"][0]
    assert "validation examples" in card["limitations"][1]


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["bpe", "words"])
def test_a_test_file_and_a_trained_tokenizer(tmp_path, tokenizer):
    book = tmp_path / "book.txt"
    book.write_text("It was a dark night, and nobody came.\n" * 20)
    shutil.copy(book, tmp_path / "other.txt")
    size = 270 if tokenizer == "bpe" else 12
    options = {"tokenizer": tokenizer, "vocab_size": size, "eval_steps": None, "max_steps": 2}
    tables = trained(tmp_path / "run", train_file=book, test_file=tmp_path / "other.txt", **options)
    assert list(tables) == ["test"]
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run")) == size
    assert json.loads((tmp_path / "run" / "config.json").read_text())["vocab_size"] == size


def test_the_size_of_the_tokenizer_has_two_names(novels):
    for name in ("vocab_size", "tokenizer_vocab_size"):
        data = DocumentArguments(train_file=str(novels), tokenizer="bpe", **{name: 300})
        assert (data.tokenizer_vocab_size, data.vocab_size) == (300, None)
    assert DocumentArguments(tokenizer="bpe", vocab_size=300).tokenizer_vocab_size == 300
    with pytest.raises(ValueError, match="vocab_size is 300 and tokenizer_vocab_size 301"):
        DocumentArguments(tokenizer="bpe", vocab_size=300, tokenizer_vocab_size=301)


@pytest.mark.slow
def test_a_folder_with_a_tokenizer_and_embeddings(novels, tmp_path, monkeypatch):
    from transformers import GPT2Config, GPT2Model

    from hf_recurrent.text_data.tokenizers import train_tokenizer

    monkeypatch.setenv("HOME", str(tmp_path))
    source = GPT2Model(GPT2Config(vocab_size=260, n_embd=OPTIONS["config"]["hidden_size"], n_layer=1, n_head=1))
    source.save_pretrained(tmp_path / "gpt")
    train_tokenizer("bytes", (), frame="language").save_pretrained(tmp_path / "gpt")
    for number, place in enumerate((tmp_path / "gpt", "~/gpt")):
        folder, both = tmp_path / f"run{number}", {"tokenizer": place, "embeddings_from": place}
        with pytest.warns(UserWarning, match="260 of 260 token embeddings started as those of gpt"):
            trained(folder, train_file=novels, text_column="body", **both, eval_steps=None, max_steps=1)
        lint_card(folder)
        card = json.loads((folder / "card.json").read_text())
        assert card["benchmark"]["parameters"]["tokenizer"] == "gpt"
        assert card["limitations"][-1] == "260 of 260 token embeddings started as those of gpt."
    start = {"model_type": None, "config": None, "model_name_or_path": tmp_path / "run0"}
    trained(tmp_path / "fine", train_file=novels, text_column="body", **start, eval_steps=None, max_steps=1)
    card = json.loads((tmp_path / "fine" / "card.json").read_text())
    assert card["benchmark"]["parameters"]["tokenizer"] == "that of run0"


@pytest.mark.parametrize("split", ["train", "test"])
def test_documents_of_one_token_are_refused_before_training(novels, tmp_path, split):
    letters = tmp_path / "letters.jsonl"
    letters.write_text('{"body": "a"}\n' * 3)
    files = {"train_file": novels, "test_file": novels, f"{split}_file": letters}
    run = DocumentRun(flags(tmp_path / "run", **files, text_column="body"))
    with pytest.raises(ValueError, match=rf"the {split} documents \(3\) have one token each at most"):
        run.prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "novels.jsonl has the columns title, body: name the one with the texts with --text_column"),
        ({"text_column": "body", "slice_by": "title"}, r"slice_by is \['title'\]: documents are read to their ends"),
        ({"text_column": "body", "vocab_size": 9}, "tokenizer is None and tokenizer_vocab_size 9: bpe and words have"),
        ({"train_file": None, "text_column": "body"}, "text_column is 'body', which is for your own data"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(novels, tmp_path, options, message):
    before = sorted(tmp_path.rglob("*"))
    command = ["run", *flags(tmp_path / "new" / "run", **{"train_file": novels, **options})]
    with mock.patch.object(sys, "argv", command), pytest.raises(SystemExit) as refused:
        as_command(lambda argv: run_and_print(argv, "training/run_clm_accelerate.py"))
    assert sorted(tmp_path.rglob("*")) == before
    assert len(refused.value.code.splitlines()) == 1
    assert re.search(message, refused.value.code)
