"""`run_qa.py` and `run_multiple_choice.py` on a user's own data, from files to a folder that can be published."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForMultipleChoice, AutoModelForQuestionAnswering, AutoTokenizer, EvalPrediction

from hf_recurrent import GUTConfig
from hf_recurrent.hub import lint_card
from hf_recurrent.hub.card import read_card
from hf_recurrent.metrics.answers import exact_match, f1
from hf_recurrent.text_data.tokenizers import train_tokenizer
from hf_recurrent.training.batches import token_counts
from hf_recurrent.training.collator import ChoiceCollator, SpanCollator
from hf_recurrent.training.data import load_splits
from hf_recurrent.training.metrics import compute_span_metrics, span_ends
from hf_recurrent.training.question_arguments import ChoiceDataArguments, SpanDataArguments
from hf_recurrent.training.question_data import SpanSplit, encode_choices, span_columns
from hf_recurrent.training.question_evaluation import best_spans, collect_spans
from hf_recurrent.training.run import matching_script

pytestmark = pytest.mark.filterwarnings("ignore:the texts give a vocabulary:UserWarning")

SIZES = (
    '{"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 3, "halting": "token"}'
)
OPTIONS = ["--use_cpu", "true", "--disable_tqdm", "true", "--per_device_train_batch_size", "16", "--config", SIZES]
OPTIONS += ["--model_type", "ut", "--learning_rate", "0.02", "--write_predictions", "true"]
TOWNS, VERBS = ("Rome", "Oslo", "Paris", "Bern"), ("sings", "sleeps", "runs")


def question(number):
    """Who lives where, of two people, the second of whom every third question asks for in vain."""
    here, there = TOWNS[number % 4], TOWNS[(number // 4 + number + 1) % 4]
    context = f"Anna lives in {here}. Ben lives in {there}."
    asked, town = (("Anna", here), ("Ben", there), ("Carla", None))[number % 3]
    answers = {"text": [], "answer_start": []}
    if town is not None:
        answers = {"text": [town], "answer_start": [context.index(f"{asked} lives in {town}") + len(asked) + 10]}
    return {"question": f"Where is {asked}?", "context": context, "answers": answers, "asked": asked}


def choice(number):
    """A verb to repeat."""
    endings = {f"ending{place}": f"{verb}." for place, verb in enumerate(VERBS)}
    name = ("Anna", "Ben", "Eva", "Dan")[number % 4]
    return {"sent1": f"{name} {VERBS[number % 3]}.", "sent2": f"{name} always", **endings, "label": number % 3}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Words of flags that stand for files, good and bad."""
    folder = tmp_path_factory.mktemp("questions")
    good, four = question(0), choice(0)
    moved = {**good, "answers": {"text": ["Rome"], "answer_start": [3]}}
    rows = {
        "SPANS": [question(number) for number in range(48)],
        "ANSWERED": [question(number) for number in range(48) if number % 3 < 2],
        "MOVED": [good, moved],
        "LISTS": [{**good, "answers": ["Rome"]}],
        "CHOICES": [choice(number) for number in range(48)],
        "FIFTH": [four, {**four, "label": 5}],
        "HOLLOW": [{**four, "ending1": ""}],
        "ONE": [{"sent1": "a", "ending0": "b", "label": 0}],
    }
    return {name: write(folder / f"{name.lower()}.jsonl", values) for name, values in rows.items()}


@pytest.mark.slow
def test_spans(qa_script, places, tmp_path):
    folder = tmp_path / "run"
    held = write(tmp_path / "dev.jsonl", [question(number) for number in range(24)])
    flags = ["--tokenizer", "words", "--train_file", places["SPANS"], "--validation_file", held, "--slice_by", "asked"]
    flags += ["--version_2_with_negative", "true", "--max_seq_length", "17", "--doc_stride", "4"]
    # slower and longer than `OPTIONS`: windows of one question are compared by their logits, which settle last
    flags += ["--learning_rate", "0.005", "--eval_strategy", "steps", "--eval_steps", "100", "--max_steps", "300"]
    qa_script.main([*OPTIONS, *flags, "--output_dir", str(folder)])
    lint_card(folder)
    card = read_card(folder)
    assert (card.task, card.metric) == ("question-answering", "span_exact_match")
    assert "--task question-answering" in card.training.command
    table = card.results[0].table
    rows = [json.loads(line) for line in (folder / "predictions" / "validation.jsonl").read_text().splitlines()]
    assert table["n"] == len(rows) == 24
    right = [exact_match(row["answer"], row["answers"]) for row in rows]
    assert table["accuracy"] == pytest.approx(np.mean(right))
    assert table["accuracy"] > 0.9 > table["majority_baseline"]
    assert table["scores"]["f1"] == pytest.approx(np.mean([row["f1"] for row in rows]))
    assert {row["answer"] for row in rows if row["asked"] == "Carla"} == {""}
    asked = {row["value"]: row for row in table["slices"]["asked"]["rows"]}
    assert asked["Ben"]["steps"]["mean"] == pytest.approx(np.mean([r["steps"] for r in rows if r["asked"] == "Ben"]))
    # as the card says
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    # as long as a first window: in a sentence that stood alone, training never had an answer for Anna
    inputs = tokenizer("Where is Anna?", "Anna lives in Bern. Ben lives in Rome", return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs)
    span = inputs.input_ids[0, outputs.start_logits.argmax() : outputs.end_logits.argmax() + 1]
    assert tokenizer.decode(span) == "Bern"


@pytest.mark.slow
def test_choices(choice_script, places, tmp_path):
    folder = tmp_path / "run"
    flags = ["--train_file", places["CHOICES"], "--validation_split_percentage", "25", "--max_steps", "60"]
    flags += ["--tokenizer", "words"]
    at = OPTIONS.index("--per_device_train_batch_size")
    without_batch_size = OPTIONS[:at] + OPTIONS[at + 2 :]
    choice_script.main([*without_batch_size, *flags, "--batch_tokens", "300", "--output_dir", str(folder)])
    lint_card(folder)
    card = read_card(folder)
    assert (card.task, card.metric) == ("multiple-choice", "choice_accuracy")
    table = card.results[0].table
    rows = [json.loads(line) for line in (folder / "predictions" / "validation.jsonl").read_text().splitlines()]
    assert table["n"] == len(rows) == 12
    assert table["accuracy"] == np.mean([row["label"] == row["prediction"] for row in rows]) == 1
    assert rows[0]["choices"][0].split()[1] == "always"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    endings = [f"Eva always {verb}." for verb in VERBS]
    inputs = tokenizer(["Eva sleeps."] * 3, endings, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: value[None] for name, value in inputs.items()}).logits
    assert logits.argmax() == 1


@pytest.mark.parametrize("left", [False, True])
def test_windows_without_the_answer_count_apart(left):
    """Two windows with the answer, of which one is found, and three without, of which two are known."""
    true, given = torch.tensor([[2, 3], [1, 1], [0, 0], [0, 0], [0, 0]]), [(2, 3), (1, 2), (0, 0), (0, 0), (1, 2)]
    logits = torch.zeros(2, 5, 6, dtype=torch.float16)
    padding = slice(0, 2) if left else slice(4, 6)
    logits[..., padding] = torch.finfo(logits.dtype).min
    true = true + 2 * left
    for row, ends in enumerate(given):
        for side, column in enumerate(ends):
            logits[side, row, column + 2 * left] = 1
    found = span_ends(tuple(logits.float()), tuple(true.T))
    labels = tuple(true.T.numpy())
    metrics = compute_span_metrics(EvalPrediction(found.numpy(), labels))
    assert metrics == {"span_accuracy": 1 / 2, "no_answer_accuracy": 2 / 3}
    metrics = compute_span_metrics(EvalPrediction(found[:2].numpy(), tuple(each[:2] for each in labels)))
    assert metrics == {"span_accuracy": 1 / 2}


def test_answers_are_compared_as_squad_does():
    assert exact_match("The  Rome!", ["Oslo", "rome"])
    assert not exact_match("in Rome", ["Rome"])
    assert exact_match("", [])
    assert not exact_match("Rome", [])
    assert f1("in Rome, Italy", ["Rome"]) == pytest.approx(0.5)
    assert f1("Rome", ["Oslo", "Rome of old"]) == pytest.approx(0.5)
    assert (f1("", []), f1("the", []), f1("Rome", [])) == (1, 1, 0)


def test_the_best_span_is_that_of_all_pairs():
    torch.manual_seed(0)
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


def test_columns_of_an_answer():
    offsets = [(-1, -1), (-1, -1), (0, 4), (5, 7), (7, 9), (10, 14)]
    assert span_columns(offsets, ["ab cd"], [5]) == (3, 4)
    assert span_columns(offsets, ["b"], [8]) == (4, 4)
    # beyond the window, and before it
    assert span_columns(offsets, ["x" * 6], [12]) == (0, 0)
    assert span_columns([(-1, -1), (5, 9)], ["xx"], [2]) == (0, 0)
    assert span_columns(offsets, [], []) == (0, 0)


@pytest.fixture
def tokenizer():
    return train_tokenizer("bytes", [], frame="classification")


def test_windows_cover_long_contexts(places, tokenizer):
    arguments = SpanDataArguments(
        train_file=places["ANSWERED"], max_seq_length=44, doc_stride=8, validation_split_percentage=50
    )
    splits = load_splits(arguments, tokenizer, SpanSplit)
    split = splits.evaluation[0]
    assert len(split.dataset) > len(split.questions) == 16
    text_of = {}
    for row in split.dataset:
        assert len(row["input_ids"]) <= 44 < row["length"]
        kept = [pair for pair in row["offsets"] if pair[1] > pair[0]]
        text_of.setdefault(row["number"], set()).update(range(kept[0][0], kept[-1][1]))
        first, last = row["start_positions"], row["end_positions"]
        if first:
            found = row["context"][row["offsets"][first][0] : row["offsets"][last][1]]
            assert found == row["answers"]["text"][0]
    assert all(text_of[row["number"]] == set(range(len(row["context"]))) for row in split.dataset)
    answered = {row["number"] for row in split.dataset if row["start_positions"]}
    assert answered == set(text_of), "some window has the whole answer"


def test_questions_have_the_steps_of_all_their_windows(places, tokenizer):
    arguments = SpanDataArguments(
        train_file=places["ANSWERED"], max_seq_length=44, doc_stride=8, validation_split_percentage=25
    )
    split = load_splits(arguments, tokenizer, SpanSplit).evaluation[0]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
    config = GUTConfig(**sizes, halting="global", vocab_size=len(tokenizer), type_vocab_size=2)
    model = AutoModelForQuestionAnswering.from_config(config).eval()
    record = collect_spans(model, tokenizer, split, 4)
    steps = [[] for _ in split.questions]
    for row, owner in zip(split.dataset, split.owners, strict=True):
        inputs = SpanCollator(tokenizer)([{name: row[name] for name in ("input_ids", "token_type_ids")}])
        with torch.no_grad():
            steps[owner].append(model(**inputs).ponder_steps.item())
    assert record.examples["steps"].tolist() == pytest.approx([np.mean(own) for own in steps])
    assert record.step_counts.sum(1).tolist() == [len(own) for own in steps]
    np.testing.assert_allclose(record.mass.sum(1), 1.0, atol=1e-6)
    for answer, row in zip(record.examples["answer"], split.questions, strict=True):
        assert answer
        assert answer in row["context"]


def test_choices_are_padded_together(places, tokenizer):
    arguments = ChoiceDataArguments(train_file=places["CHOICES"])
    encoded = encode_choices(arguments.own.splits["train"].select(range(3)), arguments, tokenizer, "choices")
    batch = ChoiceCollator(tokenizer)([*encoded.select_columns(["input_ids", "token_type_ids", "labels"])])
    longest = max(encoded["length"])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (3, 3, longest)
    assert batch["labels"].tolist() == encoded["labels"][:]
    assert token_counts(encoded).tolist() == [3 * length for length in encoded["length"]]
    row = encoded[0]
    texts = tokenizer([row["context"]] * 3, row["choices"])["input_ids"]
    assert [
        own[mask.bool()].tolist() for own, mask in zip(batch["input_ids"][0], batch["attention_mask"][0], strict=True)
    ] == texts


def test_spans_move_with_padding_on_the_left(tokenizer):
    tokenizer.padding_side = "left"
    rows = [{"input_ids": [5, 6, 7], "start_positions": 1, "end_positions": 2}, {"input_ids": [8] * 5}]
    rows[1] |= {"start_positions": 3, "end_positions": 4}
    batch = SpanCollator(tokenizer)(rows)
    assert (batch["start_positions"].tolist(), batch["end_positions"].tolist()) == ([3, 3], [4, 4])
    assert batch["input_ids"][0, 3].item() == 6


@pytest.mark.parametrize(
    ("flags", "script"),
    [
        ("--task question-answering", "training/run_qa.py"),
        ("--doc_stride 64 --max_seq_length 128", "training/run_qa.py"),
        ("--task multiple-choice", "training/run_multiple_choice.py"),
        ("--ending_columns a b", "training/run_multiple_choice.py"),
    ],
)
def test_the_script_of_flags(flags, script, places):
    assert matching_script(["--train_file", places["SPANS"], *flags.split()], None) == script


REFUSED_SPANS = [
    ("--train_file ANSWERED --context_column text", "context_column is 'text': answered.jsonl has the columns"),
    ("--train_file MOVED", "moved.jsonl, line 2: answers is an answer 'Rome' at 3, where the context has 'a lives"),
    ("--train_file LISTS", "answers is ['Rome']: expected lists of the answers' texts and of their first characters"),
    ("--train_file SPANS", "questions of spans.jsonl have no answer: pass --version_2_with_negative if"),
    ("--train_file ANSWERED --max_seq_length 14 --doc_stride 12", "the question 'Where is"),
    ("--train_file ANSWERED --doc_stride 500", "doc_stride is 500 and max_seq_length 384: windows share fewer tokens"),
    ("--train_file ANSWERED --null_score_diff_threshold 1", "null_score_diff_threshold is 1.0, and every question has"),
    ("--train_file ANSWERED --max_length 9", "max_length is 9: the length of own texts here is max_seq_length"),
    ("", "train_file is not set: training/run_qa.py trains on your own data"),
]
REFUSED_CHOICES = [
    ("--train_file CHOICES --ending_columns ending0 endin1", "ending_columns (2) is 'endin1': choices.jsonl has the"),
    ("--train_file ONE", "name the two or more to choose from with --ending_columns"),
    ("--train_file FIFTH", "fifth.jsonl, line 2: label is 5, but the data name labels 0 to 2"),
    ("--train_file HOLLOW", "hollow.jsonl, line 1: ending1 is empty"),
    ("--train_file CHOICES --max_seq_length 3", "max_seq_length is 3: the tokenizer puts 4 tokens around texts"),
]


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [*(("qa_script", *case) for case in REFUSED_SPANS), *(("choice_script", *case) for case in REFUSED_CHOICES)],
)
def test_refused_in_one_line(script, flags, message, places, tmp_path, request):
    folder = tmp_path / "new" / "run"
    given = [places.get(word, word) for word in flags.split()]
    with pytest.raises(ValueError, match=r".") as caught:
        request.getfixturevalue(script).main([*OPTIONS, *given, "--output_dir", str(folder)])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.parent.exists()
