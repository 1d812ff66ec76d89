"""`hf-recurrent evaluate` and `calibrate` of models that answer questions, and what commands refuse of them."""

import json

import numpy as np
import pytest
import torch
import transformers

from hf_recurrent import GUTConfig
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.common.exit_calibration import calibration_problem
from hf_recurrent.text_data.tokenizers import train_tokenizer
from support.token_heads import CHOICE, SPAN

TOWNS = ("Rome", "Oslo", "Paris")
ENDINGS = ("yes", "no", "perhaps")
CHOICES = ("--context-column", "ask", *(word for i in range(3) for word in ("--ending-columns", f"end{i}")))


def span_row(number):
    town = TOWNS[number % 3]
    context = f"Anna {'never ' * (number % 4)}lives in {town}."
    answers = {"text": [town], "answer_start": [context.index(town)]}
    return {"question": "Where?", "context": context, "answers": answers, "kind": number % 4}


def choice_row(number):
    return {"ask": f"Is it {number}?", "label": number % 3} | {f"end{i}": text for i, text in enumerate(ENDINGS)}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints of both kinds, and their files, by their names."""
    folder = tmp_path_factory.mktemp("questions")
    tokenizer = train_tokenizer("bytes", [], frame="classification")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
    config = GUTConfig(**sizes, vocab_size=len(tokenizer), type_vocab_size=2, halting="global", halting_threshold=0.6)
    found = {}
    for name, head, row in (("spans", SPAN, span_row), ("choices", CHOICE, choice_row)):
        torch.manual_seed(3)
        save_checkpoint(getattr(transformers, head).from_config(config), folder / name, tokenizer)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row(number)) + "\n" for number in range(24)))
        found |= {name: folder / name, f"{name}_file": folder / f"{name}.jsonl"}
    return found


def test_spans_are_evaluated(evaluated, places):
    words = ("--slice-by", "kind", "--max-answer-length", "5", "--batch-size", "5")
    table = evaluated(places["spans"], places["spans_file"], *words)[0]["test"]
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(places["spans"]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(places["spans"])
    right, steps = [], []
    for row in map(span_row, range(24)):
        inputs = tokenizer(row["question"], row["context"], return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs)
        first = inputs.input_ids.shape[1] - len(row["context"].encode()) - 1
        start, end = output.start_logits[0, first:-1], output.end_logits[0, first:-1]
        pairs = [(i, j) for i in range(len(start)) for j in range(i, min(i + 5, len(start)))]
        i, j = max(pairs, key=lambda pair: start[pair[0]] + end[pair[1]])
        right.append(row["context"][i : j + 1].strip(" .").lower() == row["answers"]["text"][0].lower())
        steps.append(output.ponder_steps.item())
    assert (table["n"], table["accuracy"]) == (24, np.mean(right))
    assert table["steps"]["mean"] == pytest.approx(np.mean(steps))
    assert list(table["slices"]) == ["kind", "length"]
    assert 0 <= table["scores"]["f1"] <= 1


def test_choices_are_evaluated_and_calibrated(evaluated, succeed, places, tmp_path):
    table = evaluated(places["choices"], places["choices_file"], *CHOICES)[0]["test"]
    model = transformers.AutoModelForMultipleChoice.from_pretrained(places["choices"]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(places["choices"])
    right, steps = [], []
    for row in map(choice_row, range(24)):
        inputs = tokenizer([row["ask"]] * 3, list(ENDINGS), padding=True, return_tensors="pt")
        with torch.no_grad():
            output = model(**{name: value[None] for name, value in inputs.items()})
        right.append(output.logits.argmax().item() == row["label"])
        steps.append(output.ponder_steps.float().mean().item())
    assert (table["n"], table["accuracy"], table["unit"]) == (24, np.mean(right), "choice")
    assert table["steps"]["mean"] == pytest.approx(np.mean(steps))
    words = ("calibrate", places["choices"], places["choices_file"], *CHOICES, "--tolerance", "0.5", "--repeats", "1")
    succeed(*words, "--confidence", "0.5", "--without-labels", "--output", tmp_path / "calibrated")
    found = json.loads((tmp_path / "calibrated" / "calibration.json").read_text())
    assert set(found["criteria"]) == {"learned", "convergence"}
    copy = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "calibrated")
    assert calibration_problem(copy) is None


REFUSED = [
    (("evaluate", "spans", "spans_file", "--answer-column", "answer"), "answer_column is 'answer': spans.jsonl has"),
    (("evaluate", "spans", "choices_file"), "question_column is 'question': choices.jsonl has the columns 'ask'"),
    (
        ("evaluate", "spans", "spans_file", "--label-column", "kind"),
        "is a model that answers questions by spans: leave",
    ),
    (("evaluate", "choices", "choices_file"), "name the two or more to choose from with --ending-columns"),
    (("sweep", "spans", "spans_file"), "of GUTForQuestionAnswering, which this command cannot run: load it with"),
    (("fit-probe", "choices", "choices_file"), "of GUTForMultipleChoice, which this command cannot run: load it"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_refused(run, places, words, message):
    status, _, err = run(*(places.get(word, word) for word in words))
    assert status == 1
    assert message in " ".join(err.split())
