"""Examples as tokens and labels: windows of contexts, tokens of words, choices, masks, blocks, sources and targets."""

import sys
import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers.normalizers import Replace
from transformers import AutoModelForQuestionAnswering, ByT5Tokenizer

from hf_recurrent import AlbertRecurrentConfig, GUTConfig, UTConfig
from hf_recurrent.data.batches import SpanCollator
from hf_recurrent.data.tokenizers import train_tokenizer
from hf_recurrent.models.ops.losses import NO_TARGET
from hf_recurrent.tasks.base import Split
from hf_recurrent.tasks.fill_mask import MASK
from hf_recurrent.tasks.question_answering import best_spans, span_columns
from hf_recurrent.tasks.translation import REFERENCE, scores
from hf_recurrent.training.arguments import ModelArguments
from support.other_tokenizers import OTHERS
from support.own_data import IOB, choice, question, spoken, tagged, task_on


def of_bytes(frame):
    return train_tokenizer("bytes", [], frame=frame)


# ---- questions


@pytest.fixture
def windows(write):
    """The task and a split of long contexts, in windows."""
    rows = [question(number) for number in range(48) if number % 3 < 2]
    options = {"max_seq_length": 44, "doc_stride": 8, "validation_split_percentage": 25}
    task = task_on("question-answering", write("spans.jsonl", rows), **options)
    return task, task.load_splits(of_bytes("classification")).evaluation[0]


def test_windows_cover_long_contexts(windows):
    task, split = windows
    assert len(split.dataset) > len(task.questions(split)) == 8
    seen, answered = {}, set()
    for row in split.dataset:
        assert len(row["input_ids"]) <= 44 < row["length"]
        kept = [pair for pair in row["offsets"] if pair[1] > pair[0]]
        seen.setdefault(row["number"], set()).update(range(kept[0][0], kept[-1][1]))
        first, last = row["start_positions"], row["end_positions"]
        if first:
            found = row["context"][row["offsets"][first][0] : row["offsets"][last][1]]
            assert found == row["answers"]["text"][0]
            answered.add(row["number"])
    assert all(seen[row["number"]] == set(range(len(row["context"]))) for row in split.dataset)
    assert answered == set(seen), "some window has the whole answer"


@pytest.mark.parametrize("side", ["right", "left"])
def test_questions_have_the_steps_of_all_their_windows(side, windows):
    task, split = windows
    tokenizer = of_bytes("classification")
    tokenizer.padding_side = side
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
    sizes |= {"halting": "global", "depth_objective": "mixture", "type_vocab_size": 2}
    config = GUTConfig(**sizes, vocab_size=len(tokenizer))
    model = AutoModelForQuestionAnswering.from_config(config).eval()
    examples, table = split.measure(model, tokenizer, 4)
    steps = [[] for _ in range(8)]
    for row, owner in zip(split.dataset, task.owners(split), strict=True):
        inputs = SpanCollator(tokenizer)([{name: row[name] for name in ("input_ids", "token_type_ids")}])
        with torch.no_grad():
            steps[owner].append(model(**inputs).ponder_steps.item())
    assert examples["steps"].tolist() == pytest.approx([np.mean(own) for own in steps])
    assert (table["n"], sum(table["steps_histogram"])) == (8, len(split.dataset))
    assert sum(table["halting_mass"]) == pytest.approx(1)
    for answer, row in zip(examples["answer"], task.questions(split), strict=True):
        assert answer
        assert answer in row["context"]
    tokenizer.padding_side = "right"
    again, _ = split.measure(model, tokenizer, 4)
    assert examples["answer"].tolist() == again["answer"].tolist()
    assert examples["confidence"].tolist() == pytest.approx(again["confidence"].tolist())


def test_the_best_span_is_that_of_all_pairs():
    start, end, allowed = torch.randn(4, 9), torch.randn(4, 9), torch.rand(4, 9) < 0.7
    best, first, last = best_spans(start, end, allowed, 3)
    for row in range(4):
        pairs = {
            (i, j): (start[row, i] + end[row, j]).item()
            for i in range(9)
            for j in range(i, min(i + 3, 9))
            if allowed[row, i] and allowed[row, j]
        }
        assert (first[row].item(), last[row].item()) == max(pairs, key=pairs.get)
        assert best[row].item() == pytest.approx(max(pairs.values()))


@pytest.mark.parametrize(
    ("offsets", "answer", "columns"),
    [
        (None, ("ab cd", 5), (3, 4)),
        (None, ("b", 8), (4, 4)),
        # beyond the window, before it, and none
        (None, ("x" * 6, 12), (0, 0)),
        ([(-1, -1), (5, 9)], ("xx", 2), (0, 0)),
        (None, None, (0, 0)),
    ],
)
def test_columns_of_an_answer(offsets, answer, columns):
    offsets = offsets or [(-1, -1), (-1, -1), (0, 4), (5, 7), (7, 9), (10, 14)]
    answers = {"text": [], "answer_start": []} if answer is None else {"text": answer[:1], "answer_start": answer[1:]}
    assert span_columns(offsets, answers) == columns


# ---- words and choices


@pytest.mark.parametrize("everywhere", [False, True])
def test_words_are_labelled_at_their_first_token_or_at_all(everywhere, write):
    rows = [{"tokens": ["don't", "stop", "é!"], "ner_tags": ["B-PER", "O", "I-PER"]}] * 2
    # of which nothing is measured
    rows.append({"tokens": ["a"], "ner_tags": [-100]})
    files = {"train_file": write("a.jsonl", rows), "validation_file": write("v.jsonl", rows)}
    task = task_on("token-classification", **files, label_all_tokens=everywhere)
    splits = task.load_splits(of_bytes("classification"))
    row = splits.train[0]
    assert len(splits.evaluation[0].dataset) == 2
    assert row["word_ids"] == [-1, *[0] * 5, -1, *[1] * 4, -1, *[2] * 3, -1]
    rest = [NO_TARGET] * 4
    words = ([0, *[1] * 4], [2] * 4, [1] * 3) if everywhere else ([0, *rest], [2, *rest[1:]], [1, *rest[2:]])
    expected = [NO_TARGET, *words[0], NO_TARGET, *words[1], NO_TARGET, *words[2], NO_TARGET]
    assert row["labels"] == expected, IOB


def test_words_are_scored_alone_without_seqeval(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "seqeval", None)
    task = task_on("token-classification", write("words.jsonl", map(tagged, range(40))))
    assert set(task.scores) == {"accuracy", "macro_f1", "matthews_correlation"}
    with pytest.warns(UserWarning, match=r"need the package seqeval: pip install 'hf-recurrent\[entities\]'"):
        task.load_splits(of_bytes("classification"))


def test_choices_follow_their_context(write):
    task = task_on("multiple-choice", write("choices.jsonl", map(choice, range(40))))
    tokenizer = of_bytes("classification")
    splits = task.load_splits(tokenizer)
    row = splits.train[0]
    assert row["choices"][0].split()[1] == "always"
    assert row["input_ids"] == tokenizer([row["context"]] * 3, row["choices"])["input_ids"]
    assert row["length"] == max(map(len, row["input_ids"]))


# ---- blocks


def speeches(write):
    rows = [{"text": f"Fellow citizens, {i} years of work.\n" * (1 + i % 5), "year": 1900 + i % 3} for i in range(40)]
    return write("speeches.jsonl", rows)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.filterwarnings("ignore:.* documents of .* have more than block_size")
def test_a_stream_has_the_blocks_of_a_copy_and_leaves_none(write, tmp_path, pack):
    options = {"train_file": speeches(write), "block_size": 32, "pack": pack}
    copied = task_on("text-generation", **options).load_splits(of_bytes("language"))
    options |= {"streaming": True, "cache_dir": str(tmp_path / "cache")}
    streamed = task_on("text-generation", **options).load_splits(of_bytes("language"))
    expected = copied.train["input_ids"][:]
    found = [list(block["input_ids"]) for block in islice(streamed.train, 2 * len(expected))]
    assert found == [*expected, *expected]
    assert streamed.validation["validation"].to_list() == copied.validation["validation"].to_list()
    assert not list((tmp_path / "cache").rglob("*.arrow"))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_data_set_is_read_by_its_splits_and_sliced_by_columns(write, tmp_path, streaming):
    for split, number in (("train", 30), ("validation", 4)):
        rows = [{"text": f"Line {place} of {split}.", "genre": "ab"[place % 2]} for place in range(number)]
        write(f"lines/{split}.jsonl", rows)
    options = {"dataset_name": str(tmp_path / "lines"), "streaming": streaming, "cache_dir": str(tmp_path / "cache")}
    task = task_on("text-generation", **options, pack=False, slice_by=["genre"])
    (split,) = task.load_splits(of_bytes("language")).evaluation
    assert split.slices == {"length": [len("Line 0 of validation.") + 1] * 4, "genre": ["a", "b", "a", "b"]}
    with pytest.raises(ValueError, match="text_column is 'txt': data set lines, train has the columns 'text', 'genre'"):
        task_on("text-generation", **options, text_column="txt").load_splits(of_bytes("language"))
    # numbers where all values are
    task = task_on("text-generation", speeches(write), pack=False, slice_by=["year"])
    assert task.load_splits(of_bytes("language")).evaluation[0].slices["year"] == [1900, 1902]


def test_unknown_words_to_evaluate_on_are_said(write):
    texts = {"train": "one two three\n" * 9, "validation": "one four two five\n"}
    files = {f"{split}_file": write(f"{split}.txt", text) for split, text in texts.items()}
    for kind, message in {"words": "validation: 2 of 5 tokens stand for words", "bytes": None}.items():
        tokenizer = train_tokenizer(kind, ["one two three"], frame="language")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            task_on("text-generation", **files, block_size=3).load_splits(tokenizer)
        assert [message in str(item.message) for item in said] == ([] if message is None else [True])


def test_labels_are_all_tokens_but_padding(write):
    """Also where padding is the end-of-text token."""
    tokenizer = of_bytes("language")
    tokenizer.pad_token = tokenizer.eos_token
    collate = task_on("text-generation", speeches(write)).collator(tokenizer)
    batch = collate([{"input_ids": [7, 8, 3]}, {"input_ids": np.array([9])}])
    assert batch["input_ids"].tolist() == [[7, 8, 3], [3, 3, 9]]
    assert batch["labels"].tolist() == [[7, 8, 3], [-100, -100, 9]]


def test_masks_follow_from_tokens_and_seed(write):
    tokenizer = of_bytes("language")
    tokenizer.add_special_tokens({"mask_token": MASK})
    task = task_on("fill-mask", speeches(write), mlm_probability=0.4)
    collate, other = task.collator(tokenizer), task.collator(tokenizer, seed=1)
    rows = [{"input_ids": tokenizer(text)["input_ids"]} for text in ("of the people " * 20, "by it")]
    batch = collate(rows)
    torch.testing.assert_close(collate(rows), batch, rtol=0, atol=0)
    chosen = batch["labels"] != NO_TARGET
    assert 0.25 < chosen[0].float().mean() < 0.55
    assert not chosen[batch["attention_mask"] == 0].any()
    original = torch.tensor(rows[0]["input_ids"])
    assert torch.where(chosen[0], batch["labels"][0], batch["input_ids"][0]).equal(original)
    assert (batch["input_ids"][chosen] == tokenizer.mask_token_id).float().mean() > 0.6
    assert not collate(rows[:1])["labels"].equal(batch["labels"][:1]), "another batch has other masks"
    assert not other(rows)["labels"].equal(batch["labels"]), "another seed has other masks"
    ready = [{"input_ids": [5, 6], "labels": [NO_TARGET, 9]}]
    assert collate(ready)["labels"].tolist() == [[NO_TARGET, 9]], "what has labels has its masks"


def test_a_masked_example_has_words_on_both_sides(write):
    """Of the masked tokens the one that has as many before it as are shown after it."""
    tokenizer = of_bytes("language")
    tokenizer.add_special_tokens({"mask_token": MASK})
    task, ids = task_on("fill-mask", speeches(write)), tokenizer("abcdefghijklmnopqrstuvwxyz")["input_ids"]
    labels = [number if place in (0, 11, 25) else NO_TARGET for place, number in enumerate(ids)]
    split = Split(task, "test", Dataset.from_list([{"input_ids": ids, "labels": labels}]))
    assert task.card_example(split, tokenizer) == {"text": f"abcdefghijk{MASK}mnopqrstuvw", "answer": "l"}


def test_documents_are_encoded_by_threads(write):
    with pytest.raises(ValueError, match="num_proc is 2: the tokenizer encodes documents with threads of its own"):
        task_on("text-generation", speeches(write), num_proc=2)
    assert task_on("text-generation", benchmark="flip_flop", num_proc=2).data.num_proc == 2


def test_names_of_the_length_of_blocks(write):
    data = task_on("fill-mask", speeches(write), max_seq_length=64).data
    assert (data.block_size, data.max_seq_length, data.pack) == (64, None, True)
    assert not task_on("fill-mask", speeches(write), line_by_line=True).data.pack


@pytest.mark.filterwarnings("ignore:texts are cut to 16 tokens")
@pytest.mark.parametrize(("given", "expected"), [(None, 16), (8, 8), (32, 16)])
def test_texts_are_cut_to_the_positions_that_there_are(given, expected, write):
    task = task_on("text-classification", write("a.csv", "text,label\na,b\n"), max_seq_length=given)
    for config, limit in ((UTConfig(), given), (AlbertRecurrentConfig(max_position_embeddings=16), expected)):
        if (most := config.capabilities.positions) is not None:
            task.limit_length(most)
        assert task.data.max_seq_length == limit


# ---- sources and targets


def pairs(write, rows=None, **options):
    rows = map(spoken, range(0, 300, 3)) if rows is None else rows
    columns = {"source_column": "words", "target_column": "digits"}
    return task_on("translation", write("pairs.jsonl", rows), **columns, **options)


def encoded(task, tokenizer):
    return task.load_splits(tokenizer).train


def test_lengths_are_cut_and_counted(write):
    tokenizer = of_bytes("seq2seq")
    with pytest.warns(UserWarning, match="were cut") as said:
        rows = encoded(pairs(write, max_source_length=8, max_target_length=3), tokenizer)
    messages = [str(warning.message) for warning in said]
    # three digits and the end; three words of three letters or more
    for what in (r"targets of pairs.jsonl have more than max_target_length=3", "sources of pairs.jsonl have more than"):
        assert any(what in text for text in messages)
    assert max(map(len, rows["input_ids"][:])) == 8
    assert max(map(len, rows["labels"][:])) == 3
    assert all(ids[-1] == tokenizer.eos_token_id for ids in rows["labels"][:])
    # lengths before the cut, and whole targets to compare with
    assert max(rows["length"][:]) == max(len(source) + 1 for source in rows["source"][:])
    assert rows[REFERENCE][:] == rows["target"][:]


def test_targets_with_unknown_words_cannot_be_written(write):
    tokenizer = train_tokenizer("words", ["one two three", "1", "- 2"], frame="seq2seq")
    rows = [{"words": "one", "digits": text} for text in ("1", "2-1", "5 1")] * 2
    with pytest.warns(UserWarning, match="2 of 6 targets of .* have words that the tokenizer does not know"):
        splits = pairs(write, rows, validation_file=write("other.jsonl", rows)).load_splits(tokenizer)
    spelled = tokenizer.decode(tokenizer("2-1")["input_ids"], skip_special_tokens=True)
    for row in splits.train:
        # as the tokenizer spells it, or as it is
        assert row[REFERENCE] == {"2-1": spelled}.get(row["target"], row["target"])


def test_ends_of_targets(write):
    tokenizer = of_bytes("seq2seq")
    # as of GPT-2, whose vocabulary has all bytes; a warning would be an error here
    tokenizer.unk_token = tokenizer.eos_token
    assert encoded(pairs(write), tokenizer)[REFERENCE][:] == encoded(pairs(write), tokenizer)["target"][:]
    with pytest.raises(ValueError, match="does not end a text with an end-of-text token"):
        encoded(pairs(write), OTHERS["gpt2"]())


def test_flags_of_transformers_examples(write):
    """Those of run_translation.py, whose files have a column `translation`."""
    rows = [{"translation": {"en": row["words"], "num": row["digits"]}} for row in map(spoken, range(20))]
    place = write("pairs.json", rows)
    data = task_on("translation", place, source_lang="en", target_lang="num", source_prefix="read: ").source
    assert data.splits["train"][0]["source"].startswith("read: ")
    assert data.splits.keys() == {"train", "validation"}
    assert data.facts["source_column"] == "translation.en"
    with pytest.raises(ValueError, match=r"translation.de is None, which is no text: translation has 'en', 'num'"):
        _ = task_on("translation", place, source_lang="de", target_lang="num").source


def test_bleu_of_plain_texts(write, monkeypatch):
    texts = ["one two three four five", "six seven eight nine ten"]
    assert [pairs(write, metric_name=name).metric for name in (None, "exact_match", "bleu")] == [
        *("exact_match", "exact_match", "bleu")
    ]
    assert scores(None, texts, texts) == {}
    found = scores("plain", texts, texts)
    assert found["bleu"] == pytest.approx(100)
    assert "tok:13a" in found["bleu_signature"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"metric_name is 'bleu', which needs .*'hf-recurrent\[translation\]'"):
        pairs(write, metric_name="bleu").check()


# ---- tokenizers


BLANK = {
    "text-classification": [{"text": text, "label": text} for text in ("a", "\u200b")],
    "token-classification": [{"tokens": [text], "ner_tags": [tag]} for text, tag in (("\u200b", "O"), ("a", "B-PER"))],
    "question-answering": [{"question": "who", "context": "\u200b", "answers": {"text": [], "answer_start": []}}],
    "translation": [{"source": "one", "target": "\u200b"}],
}


@pytest.mark.parametrize("tag", BLANK)
def test_texts_of_which_a_tokenizer_keeps_nothing_are_refused(tag, write):
    frames = {"translation": "seq2seq", "text-classification": "language"}
    tokenizer = of_bytes(frames.get(tag, "classification"))
    tokenizer.backend_tokenizer.normalizer = Replace("\u200b", "")
    options = {"version_2_with_negative": True} if tag == "question-answering" else {}
    task = task_on(tag, write("blank.jsonl", BLANK[tag] * 40), **options)
    with pytest.raises(ValueError, match=r"blank.jsonl has a text without any token, .*u200b.*: choose another"):
        task.encode(task.source.splits["train"], tokenizer, "blank.jsonl")


def test_a_checkpoint_that_is_trained_further_pads_on_the_side_of_its_task(tmp_path, write):
    (tmp_path / "config.json").write_text('{"model_type": "gut"}')
    of_bytes("seq2seq").save_pretrained(tmp_path)
    model = ModelArguments(model_name_or_path=str(tmp_path))
    for task, side in (
        (task_on("text-generation", benchmark="flip_flop"), "left"),
        (task_on("text-generation", speeches(write)), "left"),
        (task_on("text-classification", benchmark="listops"), "right"),
    ):
        assert task.load_tokenizer(model).padding_side == side


def test_a_tokenizer_that_does_not_suit_documents_is_refused(write, tmp_path):
    bare = train_tokenizer("words", ["a b"], frame="language")
    bare.eos_token = None
    for name, tokenizer, message in (
        ("words", bare, "has no eos_token, which stands after each document"),
        ("byt5", ByT5Tokenizer(), "a ByT5Tokenizer, which is written in Python and .*: take a fast one"),
    ):
        tokenizer.save_pretrained(tmp_path / name)
        task = task_on("text-generation", speeches(write), tokenizer=str(tmp_path / name))
        with pytest.raises(ValueError, match=message):
            task.load_tokenizer(ModelArguments(model_type="gut"))
