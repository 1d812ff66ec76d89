"""Statistics of examples from one pass with the target, against those computed one by one and from generated text."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from seq2seq_runs import END, pair_model, pair_rows, pair_tokenizer
from transformers import EvalPrediction

from hf_recurrent.training.collator import PairCollator
from hf_recurrent.training.data import Splits
from hf_recurrent.training.metrics import (
    HALTING_COLUMNS,
    TARGET_COLUMNS,
    compute_seq2seq_metrics,
    mean_per_example,
    target_statistics,
)
from hf_recurrent.training.seq2seq_data import PairSplit, longest_target
from hf_recurrent.training.seq2seq_evaluation import warn_of_longer

ROWS = pair_rows(12)


def statistics_of(model, rows):
    batch = PairCollator(pair_tokenizer())(rows)
    with torch.no_grad():
        output = model(**batch)
    return target_statistics(output, batch["labels"]).numpy()


def test_a_checkpoint_writes_what_evaluations_let_it_write():
    model, short, long = pair_model(), pair_rows(9, longest=3), pair_rows(9, longest=6)
    shorter, longer = (PairSplit("test", Dataset.from_list(rows), ()) for rows in (short, long))
    lengths = [split.longest_target for split in (shorter, longer)]
    assert lengths == [max(len(row["labels"]) for row in rows) for rows in (short, long)]
    assert [longest_target(Splits(shorter.dataset, {}, [split])) for split in (shorter, longer)] == lengths
    assert longest_target(Splits(longer.dataset, {}, [shorter])) == lengths[1]
    warn_of_longer(model, longer)
    model.generation_config.max_new_tokens = lengths[0]
    warn_of_longer(model, shorter)
    with pytest.warns(UserWarning, match=f"targets of test have up to {lengths[1]} tokens, and .* most {lengths[0]}:"):
        warn_of_longer(model, longer)


def test_examples_do_not_depend_on_their_batch():
    model = pair_model().eval()
    together = statistics_of(model, ROWS)
    alone = np.concatenate([statistics_of(model, [row]) for row in ROWS])
    assert together.shape == (12, len(TARGET_COLUMNS) + len(HALTING_COLUMNS))
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert together[:, 0].tolist() == [len(row["labels"]) for row in ROWS]


def test_likelihood_is_not_smoothed():
    smooth, plain = (
        pair_model(label_smoothing=share, router_loss="none", ponder_loss_weight=0.0).eval() for share in (0.3, 0.0)
    )
    found = [statistics_of(model, ROWS[:1])[0] for model in (smooth, plain)]
    batch = PairCollator(pair_tokenizer())(ROWS[:1])
    with torch.no_grad():
        losses = [model(**batch).loss.item() for model in (smooth, plain)]
    assert found[0][1] == found[1][1]
    assert found[1][1] / found[1][0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_a_row_is_right_if_greedy_decoding_gets_it_right():
    model = pair_model().eval()
    sources = PairCollator(pair_tokenizer())(ROWS)
    with torch.no_grad():
        written = model.generate(
            input_ids=sources["input_ids"], attention_mask=sources["attention_mask"], max_new_tokens=4, do_sample=False
        )[:, 1:].tolist()
    # half of the targets are what the model writes, the others differ from it in their last token alone
    rows = []
    for place, (row, ids) in enumerate(zip(ROWS, written, strict=True)):
        target = ids[: ids.index(END) + 1] if END in ids else ids
        if place % 2:
            target = [*target[:-1], 4 + (target[-1] - 3) % 8]
        rows.append({**row, "labels": target})
    found = statistics_of(model, rows)
    right = dict(zip(TARGET_COLUMNS, found.T, strict=False))
    assert right["right"].tolist() == [1.0, 0.0] * 6
    assert (right["tokens"] - right["right_tokens"]).tolist() == [0.0, 1.0] * 6


def test_means_over_tokens_and_examples():
    tokens = np.array([[1.0, 0.5, 1, 1, 2, 1.5, 3, 2.5], [3.0, 2.5, 1, 0, 1, 0.5, 1, 0.5]])
    metrics = compute_seq2seq_metrics(EvalPrediction(tokens, None))
    assert metrics == {
        "nll": 0.75,
        "accuracy": 0.5,
        "token_accuracy": 0.5,
        "ponder_steps": 1.5,
        "ponder_cost": 1.0,
        "encoder_ponder_steps": 2.0,
        "encoder_ponder_cost": 1.5,
    }
    assert mean_per_example(torch.tensor([[2, 4, -1], [3, -1, -1]])).tolist() == [3.0, 3.0]


def test_fixed_depth_has_no_ponder_cost():
    metrics = compute_seq2seq_metrics(EvalPrediction(statistics_of(pair_model(halting="none").eval(), ROWS), None))
    assert "ponder_cost" not in metrics
    assert "encoder_ponder_cost" not in metrics
