"""`run_token_classification.py` and `run_mlm.py` on a user's own data, from files to a folder that can be published."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer, pipeline

from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.hub import lint_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.metrics.entities import entity_scores, is_iob
from hf_recurrent.models.common.token_targets import NO_TARGET
from hf_recurrent.text_data.tokenizers import train_tokenizer
from hf_recurrent.training.evaluate import OF_TOKENS, Request, evaluate_checkpoint, load_checkpoint
from hf_recurrent.training.masked_data import MASK, MaskingCollator
from hf_recurrent.training.metrics import masked_statistics, tag_scores
from hf_recurrent.training.own_examples import OwnExamples
from hf_recurrent.training.reevaluation import prepare_reevaluation
from hf_recurrent.training.run import matching_script, run_class
from hf_recurrent.training.token_arguments import MaskedDataArguments
from hf_recurrent.training.token_data import all_labels, first_labels, words_of_tokens
from support.compare import assert_close
from support.families import BY_NAME
from support.token_heads import MASKED, TOKENS, make_head, make_head_batch, without_targets

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")

SIZES = '{"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}'
HALTING = SIZES.replace("}", ', "halting": "token"}')
OPTIONS = ["--use_cpu", "true", "--disable_tqdm", "true", "--per_device_train_batch_size", "8", "--config", HALTING]
IOB = ("B-PER", "I-PER", "O")


def examples(count):
    """Words and labels of names that stand in texts, by a word that has both labels."""
    people = [[("Anna", "B-PER"), ("May", "I-PER")], [("May", "B-PER")]]
    return [
        {"tokens": [*words, "went", "in", "May", "."], "ner_tags": [*tags, "O", "O", "O", "O"], "year": i % 3}
        for i, (words, tags) in ((i, zip(*people[i % 2], strict=True)) for i in range(count))
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of words with labels, and of text, by their names."""
    folder = tmp_path_factory.mktemp("data")
    found = {name: write(folder / f"{name}.jsonl", examples(size)) for name, size in (("train", 40), ("test", 10))}
    book = folder / "book.txt"
    book.write_text("".join(f"Fellow citizens, {i} years of work.\n" for i in range(120)))
    return {**found, "book": str(book)}


@pytest.mark.slow
def test_words(token_script, files, tmp_path):
    folder = tmp_path / "run"
    flags = ["--train_file", files["train"], "--test_file", files["test"], "--slice_by", "year", "--max_steps", "40"]
    flags += ["--learning_rate", "0.02", "--write_predictions", "true", "--label_all_tokens", "true"]
    token_script.main(["--model_type", "ut", *OPTIONS, *flags, "--tokenizer", "words", "--output_dir", str(folder)])
    lint_card(folder)
    card, text = read_card(folder), (folder / "README.md").read_text()
    assert (card.task, card.metric) == ("token-classification", "word_accuracy")
    assert "--task token-classification" in card.training.command
    table = card.results[0].table
    rows = [json.loads(line) for line in (folder / "predictions" / "test.jsonl").read_text().splitlines()]
    assert table["n"] == sum(len(row["words"]) for row in rows) == sum(len(row["tokens"]) for row in examples(10))
    right = [a == b for row in rows for a, b in zip(row["labels"], row["predictions"], strict=True)]
    assert table["accuracy"] == pytest.approx(np.mean(right))
    assert table["accuracy"] > table["majority_baseline"]
    assert table["scores"]["entity_f1"] == pytest.approx(
        entity_scores([row["predictions"] for row in rows], [row["labels"] for row in rows])["entity_f1"]
    )
    # May is most often no name, and of each two texts one has it inside a name, the other at a beginning
    assert card.compared[0].values == {"test": [pytest.approx(1 - 10 / 55)]}
    assert list(table["slices"]) == ["context_free_bits", "label", "year", "length"]
    by_label = {row["value"]: row for row in table["slices"]["label"]["rows"]}
    steps = [s for row in rows for s, label in zip(row["steps"], row["labels"], strict=True) if label == "B-PER"]
    assert by_label["B-PER"]["steps"]["mean"] == pytest.approx(np.mean(steps))
    assert table["unit"] == "token"
    assert "the most frequent label of each word in training | 5 |" in text
    model = AutoModelForTokenClassification.from_pretrained(folder)
    assert model.config.id2label == dict(enumerate(IOB))
    label = pipeline("token-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder))
    found = label(" ".join(rows[0]["words"]), ignore_labels=[])
    assert [item["entity"] for item in found] == rows[0]["predictions"]
    # the commands measure the same again
    files_of = {"test": files["test"]}
    own = OwnExamples(files_of, settings={"slice_by": ["year"]}, train_file=files["train"])
    checkpoint = load_checkpoint(folder, "cpu", objectives=OF_TOKENS)
    again = evaluate_checkpoint(checkpoint, Request(own=own), batch_size=3)["test"]
    assert {name: again[name] for name in ("n", "accuracy", "steps", "slices")} == {
        name: table[name] for name in ("n", "accuracy", "steps", "slices")
    }
    assert again["scores"] == pytest.approx(table["scores"])
    before = prepare_reevaluation(folder, checkpoint, Request(own=own))
    renewed = before.evaluated(checkpoint, tmp_path / "again", batch_size=3)
    assert (renewed.claim, renewed.compared) == (card.claim, card.compared)
    assert renewed.results[0].table["slices"] == table["slices"]
    with pytest.raises(ValueError, match="what training tells of them alone: name its file by --train-file"):
        prepare_reevaluation(folder, checkpoint, Request(own=OwnExamples(files_of)))


@pytest.mark.slow
def test_masks(masked_script, files, tmp_path):
    folder = tmp_path / "run"
    flags = ["--train_file", files["book"], "--max_seq_length", "16", "--vocab_size", "300", "--max_steps", "4"]
    flags += ["--eval_strategy", "steps", "--eval_steps", "4", "--mlm_probability", "0.3"]
    masked_script.main(["--model_type", "gut", *OPTIONS, *flags, "--output_dir", str(folder)])
    lint_card(folder)
    card = read_card(folder)
    assert (card.task, card.metric) == ("fill-mask", "masked_accuracy")
    table = card.results[0].table
    scores = table["scores"]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["nll"]))
    assert scores["perplexity_of_frequencies"] > 1
    assert list(table["slices"]) == ["context_free_bits"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = card.example.text
    assert tokenizer(text)["input_ids"].count(tokenizer.mask_token_id) == text.count(MASK) == 1
    fill = pipeline("fill-mask", model=AutoModelForMaskedLM.from_pretrained(folder), tokenizer=tokenizer)
    assert len(fill(text, top_k=2)) == 2


@pytest.mark.parametrize("name", ["ut", "gut", "gutlb", "xpos_transformer"])
@pytest.mark.parametrize("head", [TOKENS, MASKED])
def test_each_labelled_token_counts(name, head):
    model, batch = make_head(name, head).eval(), make_head_batch(name, head)
    labelled = (batch["labels"] != NO_TARGET) & batch["attention_mask"].bool()
    batch["labels"] = batch["labels"].masked_fill(~labelled, NO_TARGET)
    with torch.no_grad():
        output = model(**without_targets(batch))
    record = evaluate_batches(model, [batch])
    found = record.examples
    logits, labels = output.logits[labelled], batch["labels"][labelled]
    assert found["prediction"].tolist() == logits.argmax(-1).tolist()
    assert found["label"].tolist() == labels.tolist()
    assert_close(torch.tensor(found["nll"].to_numpy()), cross_entropy(logits, labels, reduction="none").double(), 1e-5)
    assert record.fixed_depth is not BY_NAME[name].halts
    if not BY_NAME[name].halts:
        return
    assert record.unit == {"ut": "token", "gut": "example", "gutlb": "chunk"}[name]
    steps = output.ponder_steps
    if steps.shape != labelled.shape:
        steps = model.base_model.spread_over_tokens(steps, batch["attention_mask"].bool())
    assert found["steps"].tolist() == steps[labelled].tolist()
    np.testing.assert_allclose(record.mass.sum(1), 1.0, atol=1e-6)


def test_no_labelled_token():
    batch = make_head_batch("ut", TOKENS)
    with pytest.raises(ValueError, match="no token has a label"):
        evaluate_batches(make_head("ut", TOKENS), [{**batch, "labels": torch.full_like(batch["labels"], NO_TARGET)}])


def test_tokens_belong_to_words():
    words = ["don't", "stop", "é!"]
    tokenizer = train_tokenizer("bytes", [], frame="classification")
    offsets = tokenizer(" ".join(words), return_offsets_mapping=True)["offset_mapping"]
    found = words_of_tokens(words, offsets)
    assert found == [-1, *[0] * 5, -1, *[1] * 4, -1, *[2] * 3, -1]
    labels = first_labels(found, [7, 8, 9])
    assert [label for label in labels if label != NO_TARGET] == [7, 8, 9]
    assert [place for place, label in enumerate(labels) if label != NO_TARGET] == [1, 7, 12]
    every = all_labels(found, [0, 2, 1], IOB)
    assert every == [NO_TARGET, 0, *[1] * 4, NO_TARGET, *[2] * 4, NO_TARGET, *[1] * 3, NO_TARGET]


def test_scores_of_entities():
    assert is_iob(IOB)
    assert not is_iob(("noun", "verb", "O"))
    labels, found = np.array([0, 1, 2, 0, 2]), np.array([0, 1, 2, 2, 0])
    scores = tag_scores(found, labels, np.array([3, 2]), IOB)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    # of the two entities of either, one is the same
    assert scores["entity_precision"] == scores["entity_recall"] == scores["entity_f1"] == 0.5
    assert "entity_f1" not in tag_scores(found, labels, np.array([3, 2]), ("a", "b", "c"))


def test_words_are_scored_alone_without_seqeval(monkeypatch, token_script, files, tmp_path):
    monkeypatch.setitem(sys.modules, "seqeval", None)
    assert set(tag_scores(np.array([0]), np.array([0]), np.array([1]), IOB)) == {
        *("accuracy", "macro_f1", "matthews_correlation")
    }
    # as an error, like every warning of these tests
    with pytest.raises(UserWarning, match=r"need the package seqeval: pip install 'hf-recurrent\[entities\]'"):
        token_script.main(
            ["--model_type", "ut", *OPTIONS, "--train_file", files["train"], "--output_dir", str(tmp_path / "run")]
        )


def masking(probability=0.4, seed=0):
    tokenizer = train_tokenizer("bytes", [], frame="language")
    tokenizer.add_special_tokens({"mask_token": MASK})
    return MaskingCollator(tokenizer, probability, seed), tokenizer


def test_masks_follow_from_tokens_and_seed():
    collator, tokenizer = masking()
    rows = [
        {"input_ids": tokenizer("of the people " * 20)["input_ids"]},
        {"input_ids": tokenizer("by it")["input_ids"]},
    ]
    batch = collator(rows)
    assert_same = torch.testing.assert_close
    assert_same(collator(rows), batch, rtol=0, atol=0)
    chosen = batch["labels"] != NO_TARGET
    assert 0.25 < chosen[0].float().mean() < 0.55
    assert not chosen[batch["attention_mask"] == 0].any()
    original = torch.tensor(rows[0]["input_ids"])
    assert torch.where(chosen[0], batch["labels"][0], batch["input_ids"][0]).equal(original)
    assert (batch["input_ids"][chosen] == tokenizer.mask_token_id).float().mean() > 0.6
    assert not collator(rows[:1])["labels"].equal(batch["labels"][:1]), "another batch has other masks"
    assert not masking(seed=1)[0](rows)["labels"].equal(batch["labels"]), "another seed has other masks"
    ready = [{"input_ids": [5, 6], "labels": [NO_TARGET, 9]}]
    assert collator(ready)["labels"].tolist() == [[NO_TARGET, 9]], "what has labels has its masks"


def test_statistics_of_masked_tokens():
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, NO_TARGET, 4], [NO_TARGET, NO_TARGET, 0]])
    found = masked_statistics(logits, labels)
    nats = cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(1)
    assert found[:, 0].tolist() == [2, 1]
    assert_close(found[:, 1], nats.double(), 1e-6)
    assert found[:, 2].tolist() == ((logits.argmax(-1) == labels).sum(1)).tolist()


def test_blocks_of_masked_models():
    data = MaskedDataArguments(train_file=__file__, max_seq_length=64)
    assert (data.block_size, data.max_seq_length, data.pack) == (64, None, True)
    assert not MaskedDataArguments(train_file=__file__, line_by_line=True).pack


@pytest.mark.parametrize(
    ("flags", "script"),
    [
        ("--task token-classification", "training/run_token_classification.py"),
        ("--text_column_name tokens --label_column_name tags", "training/run_token_classification.py"),
        ("--label_all_tokens true", "training/run_token_classification.py"),
        ("--task fill-mask", "training/run_mlm.py"),
        ("--mlm_probability 0.2", "training/run_mlm.py"),
    ],
)
def test_the_script_of_flags(flags, script, files):
    assert matching_script(["--train_file", files["train"], *flags.split()], None) == script
    assert run_class(script, own=True).argument_types is run_class(script).argument_types


REFUSED_WORDS = [
    ("--train_file TRAIN --label_column_name year", "train.jsonl, line 1: year is 0: expected a list of labels"),
    ("--train_file LONG", "long.jsonl, line 2: ner_tags is a list of 2 labels for 3 words: expected one for each"),
    ("--train_file TABLE --text_column_name a --label_column_name b", "a is 'x y': expected a list of words, as files"),
    ("--train_file EMPTY", "empty.jsonl, line 1: tokens has ' ' as word 2: expected a text that is not empty"),
    ("--train_file TRAIN --test_file OTHER", "test has 1 label that training has not: 'B-LOC' (2 times), first at "),
    ("--train_file SAME", "all words of training have the label 'O': there is nothing to learn"),
    ("--train_file TRAIN --task fill-mask", "task is 'fill-mask', which is for training/run_mlm.py"),
    ("", "train_file is not set: training/run_token_classification.py trains on your own data"),
]
REFUSED_MASKS = [
    ("--train_file BOOK --mlm_probability 0", "mlm_probability is 0.0, which masks no token"),
    ("--train_file BOOK --streaming true", "streaming is true: how often tokens occur in training is counted first"),
    ("--train_file BOOK --write_predictions true", "write_predictions is true: masked tokens are many"),
    ("--train_file BOOK --train_sampling_strategy sequential", "train_sampling_strategy is 'sequential': all epochs"),
    (
        "--train_file BOOK --model_type block_recurrent",
        "model_type is 'block_recurrent', which has no AutoModelForMaskedLM",
    ),
]


@pytest.fixture(scope="module")
def places(files, tmp_path_factory):
    """Words of flags that stand for files, good and bad."""
    folder, good = tmp_path_factory.mktemp("bad"), examples(2)[1]
    rows = {
        "LONG": [good, {**good, "tokens": ["a", "b", "c"], "ner_tags": ["O", "O"]}],
        "EMPTY": [{**good, "tokens": ["May", " ", "b", "c", "d"]}],
        "OTHER": [{"tokens": ["Paris"], "ner_tags": ["B-LOC"]}] * 2,
        "SAME": [{"tokens": ["a", "b"], "ner_tags": ["O", "O"]}] * 40,
    }
    found = {name: write(folder / f"{name.lower()}.jsonl", found) for name, found in rows.items()}
    (folder / "table.csv").write_text("a,b\nx y,O O\n")
    return {**found, "TABLE": str(folder / "table.csv"), **{name.upper(): path for name, path in files.items()}}


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [*(("token_script", *case) for case in REFUSED_WORDS), *(("masked_script", *case) for case in REFUSED_MASKS)],
)
def test_refused_in_one_line(script, flags, message, places, tmp_path, request):
    folder = tmp_path / "new" / "run"
    given = [places.get(word, word) for word in flags.split()]
    argv = [] if "--model_type" in given else ["--model_type", "ut"]
    argv += [] if "--config" in given else ["--config", SIZES]
    with pytest.raises(ValueError, match=r".") as caught:
        request.getfixturevalue(script).main([*argv, "--use_cpu", "true", *given, "--output_dir", str(folder)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.parent.exists()
