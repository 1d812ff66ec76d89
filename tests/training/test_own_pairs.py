"""`run_seq2seq.py` on a user's own sources and targets."""

import json

import pytest
from seq2seq_runs import SIZES
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_recurrent.hub import lint_card
from hf_recurrent.text_data.tokenizers import train_tokenizer
from hf_recurrent.training.arguments import PairArguments
from hf_recurrent.training.data import load_splits
from hf_recurrent.training.evaluate import Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.training.own_examples import OwnExamples
from hf_recurrent.training.recipes import with_mapping
from hf_recurrent.training.seq2seq_data import REFERENCE, PairSplit, encode_own_pairs
from hf_recurrent.training.seq2seq_evaluation import scores
from hf_recurrent.training.text_arguments import PAIR_METRICS
from support.other_tokenizers import OTHERS

UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FLAGS = {
    "model_type": "sut",
    "config": json.dumps(SIZES),
    "max_steps": 4,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "token_accuracy",
    "max_tokens": 300,
    "tokenizer": "bytes",
    "use_cpu": True,
    "disable_tqdm": True,
}


def digits(number: int) -> str:
    return " ".join(UNITS[int(digit)] for digit in str(number))


def pair(number: int) -> dict:
    return {"words": digits(number), "digits": str(number), "size": len(str(number))}


def write_lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path):
    return {
        "train_file": write_lines(tmp_path / "pairs.jsonl", map(pair, range(0, 300, 3))),
        "validation_file": write_lines(tmp_path / "held.jsonl", map(pair, range(1, 60, 3))),
    }


def command(folder, files, **changes):
    columns = {"source_column": "words", "target_column": "digits"}
    flags = {**FLAGS, **files, **columns, "output_dir": folder, **changes}
    words = [(f"--{name}", value) for name, value in flags.items() if value is not None]
    return [str(word) for name, value in words for word in (name, *(value if isinstance(value, list) else [value]))]


def arguments(files, **options) -> PairArguments:
    return PairArguments(**{**files, "source_column": "words", "target_column": "digits", **options})


@pytest.mark.slow
def test_from_lines_to_a_card(seq2seq_script, files, tmp_path):
    folder, more = tmp_path / "run", {"slice_by": ["size"], "metric_name": "bleu"}
    seq2seq_script.main([*command(folder, files, **more, num_beams=2, title="SUT on digits"), "--write_predictions"])
    lint_card(folder)
    table = json.loads((folder / "halting_stats.json").read_text())["splits"]["validation"]
    assert table["n"] == 20
    assert set(table["slices"]) == {"size", "length"}
    assert [row["n"] for row in table["slices"]["size"]["rows"]] == [3, 17]
    assert 0 <= table["bleu"] <= 100
    rows = [json.loads(line) for line in (folder / "predictions" / "validation.jsonl").read_text().splitlines()]
    assert {row["label"] for row in rows} == {str(number) for number in range(1, 60, 3)}
    # bytes and the end
    assert sorted(row["length"] for row in rows) == sorted(len(digits(int(row["label"]))) + 1 for row in rows)
    card = (folder / "README.md").read_text()
    assert "| Split | n | BLEU | Exact match |" in card
    assert "It was trained on `pairs` alone: how well it does on texts of another kind was not measured." in card
    assert "`source_column`" in card
    assert str(tmp_path) not in card
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["num_beams"] == 2
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.generate(**tokenizer("one two", return_tensors="pt"), max_new_tokens=3).shape[0] == 1
    # the same on a file that is named again
    settings = {"source_column": "words", "target_column": "digits", "slice_by": ["size"], "metric_name": "bleu"}
    request = Request(own=OwnExamples({"test": files["validation_file"]}, settings=settings))
    again = evaluate_checkpoint(load_checkpoint(folder, "cpu"), request, batch_size=3)["test"]
    assert again["target"] == pytest.approx(table["target"], rel=1e-5)
    assert again["bleu"] == pytest.approx(table["bleu"])
    assert again["slices"]["size"]["rows"][0]["n"] == 3


@pytest.mark.slow
def test_a_checkpoint_is_tuned_further_with_its_tokenizer(seq2seq_script, files, tmp_path):
    seq2seq_script.main(command(tmp_path / "first", files))
    changes = {"model_type": None, "config": None, "model_name_or_path": tmp_path / "first"}
    seq2seq_script.main(command(tmp_path / "second", files, **changes, tokenizer=None))
    first, second = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("first", "second"))
    assert first.get_vocab() == second.get_vocab()
    with pytest.raises(ValueError, match=r"tokenizer is 'bpe', but .*first has its own"):
        seq2seq_script.main(command(tmp_path / "third", files, **changes, tokenizer="bpe"))
    assert not (tmp_path / "third" / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_column": "words"}, "source_column and target_column are both 'words'"),
        ({"target_column": None}, "source_column is 'words' and target_column is not set"),
        ({"max_seq_length": 8}, "set max_source_length and max_target_length"),
        ({"metric_name": "rouge"}, "metric_name is 'rouge': expected one of exact_match, bleu"),
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model is 'bleu'"),
        ({"source_lang": "de"}, "source_lang is 'de': name both languages"),
        ({"source_lang": "de", "target_lang": "en"}, "source_lang is 'de' and source_column 'words'"),
    ],
)
def test_what_is_refused_leaves_nothing(seq2seq_script, files, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        seq2seq_script.main(command(tmp_path / "run", files, **changes))
    assert not (tmp_path / "run" / "run.json").exists()
    assert not list((tmp_path / "run").glob("*.safetensors"))


def test_own_columns_are_for_own_data():
    with pytest.raises(ValueError, match="source_prefix is 'x: ', which is for your own data"):
        PairArguments(benchmark="cfq", source_prefix="x: ")


def test_flags_of_transformers_examples(tmp_path):
    """Those of run_translation.py, whose files have a column `translation`, and of run_summarization.py."""
    rows = [{"translation": {"en": digits(number), "num": str(number)}} for number in range(20)]
    place = {"train_file": write_lines(tmp_path / "pairs.json", rows)}
    translated = PairArguments(**place, source_lang="en", target_lang="num", source_prefix="read: ")
    assert translated.own.splits["train"][0]["source"].startswith("read: ")
    assert translated.own.splits.keys() == {"train", "validation"}
    assert translated.own.facts["source_column"] == "translation.en"
    with pytest.raises(ValueError, match=r"translation.de is None, which is no text: translation has 'en', 'num'"):
        _ = PairArguments(**place, source_lang="de", target_lang="num").own.splits
    from hf_recurrent.training.arguments import SEQ2SEQ_ARGUMENT_TYPES
    from hf_recurrent.training.recipes import parse

    rows = [{"document": digits(number), "summary": str(number)} for number in range(20)]
    flags = ["--model_type", "sut", "--output_dir", "x", "--num_beams", "4", "--preprocessing_num_workers", "1"]
    columns = ["--text_column", "document", "--summary_column", "summary"]
    file = ["--train_file", write_lines(tmp_path / "summaries.jsonl", rows), "--max_target_length", "128"]
    (_, data, _, args), _ = parse([*flags, *columns, *file], SEQ2SEQ_ARGUMENT_TYPES)
    assert (data.source_column, data.target_column, data.max_target_length) == ("document", "summary", 128)
    assert args.generation_num_beams == 4


def encoded(files, tokenizer, **options):
    own = arguments(files, **options)
    return encode_own_pairs(own.own.splits["train"], own, tokenizer, own.own.place_name("train"))


def test_lengths_are_cut_and_counted(files):
    tokenizer = train_tokenizer("bytes", [], frame="seq2seq")
    with pytest.warns(UserWarning, match="were cut") as said:
        rows = encoded(files, tokenizer, max_source_length=8, max_target_length=3)
    messages = [str(warning.message) for warning in said]
    # three digits and the end; three words of three letters or more
    assert any("66 of 100 targets of pairs.jsonl have more than max_target_length=3" in text for text in messages)
    assert any("sources of pairs.jsonl have more than max_source_length=8" in text for text in messages)
    assert max(map(len, rows["input_ids"][:])) == 8
    assert max(map(len, rows["labels"][:])) == 3
    assert all(ids[-1] == tokenizer.eos_token_id for ids in rows["labels"][:])
    # lengths before the cut, and whole targets to compare with
    assert max(rows["length"][:]) == max(len(source) + 1 for source in rows["source"][:])
    assert rows[REFERENCE][:] == rows["target"][:]


def test_targets_with_unknown_words_cannot_be_written(files, tmp_path):
    tokenizer = train_tokenizer("words", ["one two three", "1", "- 2"], frame="seq2seq")
    rows = [{"words": "one", "digits": text} for text in ("1", "2-1", "5 1")]
    with pytest.warns(UserWarning, match="1 of 3 targets of some.jsonl have words that the tokenizer does not know"):
        found = encoded({**files, "train_file": write_lines(tmp_path / "some.jsonl", rows)}, tokenizer)
    # as the tokenizer spells it, or as it is
    assert found[REFERENCE][:] == [
        "1",
        tokenizer.decode(tokenizer("2-1")["input_ids"], skip_special_tokens=True),
        "5 1",
    ]


def test_one_token_for_the_end_and_for_what_is_unknown(files):
    """As of GPT-2, whose vocabulary has all bytes; a warning would be an error here."""
    tokenizer = train_tokenizer("bytes", [], frame="seq2seq")
    tokenizer.unk_token = tokenizer.eos_token
    assert encoded(files, tokenizer)[REFERENCE][:] == encoded(files, tokenizer)["target"][:]


def test_a_tokenizer_that_does_not_end_texts(files):
    with pytest.raises(ValueError, match=r"does not end a text with '<\|endoftext\|>'"):
        encoded(files, OTHERS["gpt2"]())


def test_scores_are_those_asked_for(files):
    texts = ["one two three four five", "six seven eight nine ten"]
    tokenizer = train_tokenizer("bytes", [], frame="seq2seq")
    forms = {
        name: load_splits(arguments(files, metric_name=name), tokenizer, PairSplit).evaluation[0].form
        for name in (None, *PAIR_METRICS)
    }
    assert forms == {None: None, "exact_match": None, "bleu": "plain"}
    assert scores(None, texts, texts) == {}
    found = scores("plain", texts, texts)
    assert found["bleu"] == pytest.approx(100)
    assert "tok:13a" in found["bleu_signature"]


def test_a_long_mapping_is_no_file():
    """Names of files are shorter."""
    fields = {f"field_{number}": number for number in range(100)}
    assert with_mapping("config", json.dumps(fields), dict | str | None) == fields
