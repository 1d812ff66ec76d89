"""What `Trainer` reports on the way, from outputs of ragged batches, and the kinds of tokens of a benchmark."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import EvalPrediction

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.data.labels import MULTI, REGRESSION, SINGLE, Labels
from hf_recurrent.metrics.functional import mean_per_example, tag_scores
from hf_recurrent.metrics.tensors import masked_statistics
from hf_recurrent.models.ops.losses import NO_TARGET
from hf_recurrent.tasks import get_task
from hf_recurrent.tasks.text_generation import flip_flop_kinds
from support.own_data import IOB, task_on


def on_benchmark(tag, **options):
    kind = get_task(tag)
    return kind(kind.arguments(**options))


def test_the_next_token_is_compared_with_the_labels():
    task = on_benchmark("text-generation", benchmark="flip_flop")
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 2, 3], [4, 0, 2]]), 5).float()
    labels = torch.tensor([[-100, 1, 2], [-100, -100, 0]])
    expected = [[-100, 1, 2], [-100, 4, 0]]
    assert task.preprocess_logits(logits, labels).tolist() == expected
    cost, steps = torch.ones(2), torch.ones(2, 3, dtype=torch.long)
    ids, *rest = task.preprocess_logits((logits, cost, steps), labels)
    assert ids.tolist() == expected
    assert rest[0] is cost
    assert rest[1] is steps
    # the second row is shorter: `Trainer` pads everything with -100, the models their steps with -1
    ids = np.array([[-100, 1, 2, 3], [-100, 4, 0, -100]])
    labels = np.array([[-100, 1, -100, 4], [-100, 4, 0, -100]])
    steps, cost = np.array([[1, 2, 3, 2], [4, 6, -1, -100]]), np.array([1.5, 2.5], dtype=np.float32)
    accuracies = {"accuracy": 0.5, "token_accuracy": 0.75}
    found = task.compute_metrics(EvalPrediction((ids, cost, steps), labels))
    assert found == {**accuracies, "ponder_cost": 2.0, "ponder_steps": 3.5}
    assert task.compute_metrics(EvalPrediction(ids, labels)) == accuracies
    assert mean_per_example(torch.tensor([[2, 4, -1], [3, -1, -1]])).tolist() == [3.0, 3.0]


def test_kinds_of_flip_flop_tokens():
    tokenizer = build_tokenizer("flip_flop")
    ids = tokenizer(["w 0 i 1 r 0", "w 1 r 1"], padding=True, return_tensors="np")["input_ids"]
    kinds = flip_flop_kinds(tokenizer)
    named = [[kinds.names[kind] if kind >= 0 else None for kind in row] for row in kinds.of(ids).tolist()]
    assert named[0] == ["w", "bit after w", "i", "bit after i", "r", "bit after r"]
    assert named[1] == [None, None, "w", "bit after w", "r", "bit after r"]


def test_losses_of_texts_are_those_of_each_token(write):
    task = task_on("text-generation", write("a.txt", "a"))
    logits, labels = torch.randn(3, 6, 5), torch.randint(0, 5, (3, 6))
    labels[0, :2], labels[1, :5] = -100, -100
    pairs = [(r, p) for r in range(3) for p in range(1, 6) if labels[r, p] >= 0 and labels[r, p - 1] >= 0]
    scores = {pair: logits[pair[0], pair[1] - 1].log_softmax(-1) for pair in pairs}
    nll = -np.mean([own[labels[pair]].item() for pair, own in scores.items()])
    found = task.compute_metrics(EvalPrediction(task.preprocess_logits(logits, labels).numpy(), None))
    assert found["nll"] == pytest.approx(nll, rel=1e-5)
    assert found["token_accuracy"] == np.mean([int(own.argmax() == labels[pair]) for pair, own in scores.items()])
    assert found["perplexity"] == pytest.approx(math.exp(nll), rel=1e-5)
    masked = masked_statistics(logits, labels)
    assert masked[:, 0].tolist() == (labels != NO_TARGET).sum(1).tolist()
    torch.testing.assert_close(masked[:, 1], cross_entropy(logits.mT, labels, reduction="none").double().sum(1))


def test_windows_without_the_answer_count_apart(write):
    """Two windows with the answer, of which one is found, and three without, of which two are known."""
    task = task_on("question-answering", write("a.jsonl", "{}"))
    true, given = torch.tensor([[2, 3], [1, 1], [0, 0], [0, 0], [0, 0]]), [(2, 3), (1, 2), (0, 0), (0, 0), (1, 2)]
    logits = torch.zeros(2, 5, 6)
    for row, ends in enumerate(given):
        for side, column in enumerate(ends):
            logits[side, row, column] = 1
    found, labels = task.preprocess_logits(tuple(logits), tuple(true.T)), tuple(true.T.numpy())
    metrics = task.compute_metrics(EvalPrediction(found.numpy(), labels))
    assert metrics == {"span_accuracy": 1 / 2, "no_answer_accuracy": 2 / 3}
    metrics = task.compute_metrics(EvalPrediction(found[:2].numpy(), tuple(each[:2] for each in labels)))
    assert metrics == {"span_accuracy": 1 / 2}


def test_scores_of_entities():
    labels, found = np.array([0, 1, 2, 0, 2]), np.array([0, 1, 2, 2, 0])
    scores = tag_scores(found, labels, np.array([3, 2]), IOB)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    # of the two entities of either, one is the same
    assert scores["entity_precision"] == scores["entity_recall"] == scores["entity_f1"] == 0.5
    assert "entity_f1" not in tag_scores(found, labels, np.array([3, 2]), ("a", "b", "c"))


LOGITS, SETS = np.array([[2.0, -1.0], [-1.0, 1.0], [0.5, 0.2]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
# with accuracies of two thirds, and of numbers that are all right
LABELS = [
    (Labels(SINGLE, ("a", "b")), ["accuracy", "f1", "macro_f1", "matthews_correlation"], LOGITS, np.array([0, 1, 1])),
    (Labels(SINGLE, ("a", "b", "c")), ["accuracy", "macro_f1", "matthews_correlation"], LOGITS, np.array([0, 1, 1])),
    (Labels(MULTI, ("a", "b")), ["accuracy", "f1", "macro_f1"], LOGITS, SETS),
    (Labels(REGRESSION), ["mse", "pearson", "r_squared", "spearman"], LOGITS[:, :1], LOGITS[:, 0]),
]


@pytest.mark.parametrize(("labels", "names", "logits", "true"), LABELS)
def test_scores_of_your_labels(labels, names, logits, true, write):
    task = task_on("text-classification", write("a.csv", "text,label\n"))
    task.source = type("Source", (), {"labels": labels})
    found = task.compute_metrics(EvalPrediction(logits, true))
    assert sorted(found) == sorted(task.scores) == names
    assert found.get("accuracy", 2 / 3) == pytest.approx(2 / 3)
    assert (found.get("mse", 0), found.get("r_squared", 1)) == (0, 1)


IDS = np.array([[1, 2], [0, 3]])
PREDICTIONS = {
    "text-classification": (np.eye(2), IDS[:, 0]),
    "text-generation": (IDS, IDS),
    "fill-mask": (np.ones((2, 3)), IDS),
    "translation": (np.array([[1.0] * 4 + [np.nan] * 4]), IDS),
    "multiple-choice": (np.eye(2), IDS[:, 0]),
    "question-answering": (IDS, (np.array([1, 2]), np.array([2, 4]))),
}


@pytest.mark.parametrize("tag", PREDICTIONS)
def test_evaluations_report_the_scores_that_a_checkpoint_can_be_chosen_by(tag):
    benchmark = "flip_flop" if tag == "text-generation" else "listops"
    task = on_benchmark(tag, benchmark=benchmark)
    found = task.compute_metrics(EvalPrediction(*PREDICTIONS[tag]))
    assert sorted(found) == sorted(task.scores)
