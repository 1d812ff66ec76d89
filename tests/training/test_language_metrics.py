"""What `Trainer` reports of language models: token ids instead of logits, ragged batches, ponder steps."""

import numpy as np
import torch
from transformers import EvalPrediction

from hf_recurrent.benchmarks import build_tokenizer
from hf_recurrent.training.data import flip_flop_kinds
from hf_recurrent.training.metrics import compute_language_metrics, next_token_ids


def test_logits_become_ids_aligned_with_the_labels():
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 2, 3], [4, 0, 2]]), 5).float()
    labels = torch.tensor([[-100, 1, 2], [-100, -100, 0]])
    expected = [[-100, 1, 2], [-100, 4, 0]]
    assert next_token_ids(logits, labels).tolist() == expected
    cost, steps = torch.ones(2), torch.ones(2, 3, dtype=torch.long)
    ids, *rest = next_token_ids((logits, cost, steps), labels)
    assert ids.tolist() == expected
    assert rest[0] is cost
    assert rest[1] is steps


def test_metrics_of_ragged_batches():
    # the second row is shorter: `Trainer` pads everything with -100, the models their steps with -1
    ids = np.array([[-100, 1, 2, 3], [-100, 4, 0, -100]])
    labels = np.array([[-100, 1, -100, 4], [-100, 4, 0, -100]])
    steps = np.array([[1, 2, 3, 2], [4, 6, -1, -100]])
    cost = np.array([1.5, 2.5], dtype=np.float32)
    assert compute_language_metrics(EvalPrediction((ids, cost, steps), labels)) == {
        "accuracy": 0.5,
        "token_accuracy": 0.75,
        "ponder_cost": 2.0,
        "ponder_steps": 3.5,
    }
    assert compute_language_metrics(EvalPrediction(ids, labels)) == {"accuracy": 0.5, "token_accuracy": 0.75}


def test_kinds_of_flip_flop_tokens():
    tokenizer = build_tokenizer("flip_flop")
    ids = tokenizer(["w 0 i 1 r 0", "w 1 r 1"], padding=True, return_tensors="np")["input_ids"]
    kinds = flip_flop_kinds(tokenizer)
    named = [[kinds.names[kind] if kind >= 0 else None for kind in row] for row in kinds.of(ids).tolist()]
    assert named[0] == ["w", "bit after w", "i", "bit after i", "r", "bit after r"]
    assert named[1] == [None, None, "w", "bit after w", "r", "bit after r"]
