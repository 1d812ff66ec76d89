"""Statistics of targets from one pass with the true ones, against those computed one by one and from written text."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from small_trainers import END, small_model, small_rows
from transformers import EvalPrediction

from hf_recurrent.benchmarks.sequence_tokenizers import word_tokenizer
from hf_recurrent.data.batches import PairCollator
from hf_recurrent.metrics.functional import TARGET_COLUMNS, summarize
from hf_recurrent.tasks import get_task
from hf_recurrent.tasks.base import Split
from hf_recurrent.tasks.translation import longest_target, warn_of_longer

ROWS = small_rows("targets", 12)


def batch_of(rows):
    return PairCollator(word_tokenizer([f"w{number}" for number in range(8)]))(rows)


def statistics_of(model, rows):
    batch = batch_of(rows)
    with torch.no_grad():
        output = model.eval()(**batch)
    return get_task("translation").example_statistics(output, batch["labels"]).numpy()


def test_a_checkpoint_writes_what_evaluations_let_it_write():
    model = small_model("targets")
    kind = get_task("translation")
    shorter, longer = (
        Split(kind(kind.arguments(benchmark="cfq")), "test", Dataset.from_list(small_rows("targets", 9, longest=most)))
        for most in (3, 6)
    )
    warn_of_longer(model, longer)
    model.generation_config.max_new_tokens = longest_target(shorter)
    assert longest_target(shorter) == max(len(row["labels"]) for row in small_rows("targets", 9, longest=3))
    warn_of_longer(model, shorter)
    with pytest.warns(UserWarning, match=f"targets of test have up to {longest_target(longer)} tokens, and .* at most"):
        warn_of_longer(model, longer)


def test_examples_do_not_depend_on_their_batch():
    model = small_model("targets")
    together = statistics_of(model, ROWS)
    alone = np.concatenate([statistics_of(model, [row]) for row in ROWS])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert together[:, 0].tolist() == [len(row["labels"]) for row in ROWS]


def test_likelihood_is_not_smoothed():
    fields = {"router_loss": "none", "ponder_loss_weight": 0.0}
    models = [small_model("targets", label_smoothing=share, **fields).eval() for share in (0.3, 0.0)]
    found = [statistics_of(model, ROWS[:1])[0] for model in models]
    with torch.no_grad():
        losses = [model(**batch_of(ROWS[:1])).loss.item() for model in models]
    assert found[0][1] == found[1][1]
    assert found[1][1] / found[1][0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_a_row_is_right_if_greedy_decoding_gets_it_right():
    model, sources = small_model("targets").eval(), batch_of(ROWS)
    inputs = {name: sources[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        written = model.generate(**inputs, max_new_tokens=4, do_sample=False)[:, 1:].tolist()
    # half of the targets are what the model writes, the others differ from it in their last token alone
    rows = []
    for place, (row, ids) in enumerate(zip(ROWS, written, strict=True)):
        target = ids[: ids.index(END) + 1] if END in ids else ids
        if place % 2:
            target = [*target[:-1], 4 + (target[-1] - 3) % 8]
        rows.append({**row, "labels": target})
    right = dict(zip(TARGET_COLUMNS, statistics_of(model, rows).T, strict=False))
    assert right["right"].tolist() == [1.0, 0.0] * 6
    assert (right["tokens"] - right["right_tokens"]).tolist() == [0.0, 1.0] * 6


def test_means_over_tokens_and_examples():
    tokens = np.array([[1.0, 0.5, 1, 1, 2, 1.5, 3, 2.5], [3.0, 2.5, 1, 0, 1, 0.5, 1, 0.5]])
    assert summarize(tokens) == {
        **{"nll": 0.75, "accuracy": 0.5, "token_accuracy": 0.5, "ponder_steps": 1.5, "ponder_cost": 1.0},
        **{"encoder_ponder_steps": 2.0, "encoder_ponder_cost": 1.5},
    }
    kind = get_task("translation")
    fixed = statistics_of(small_model("targets", halting="none", depth_objective="final"), ROWS)
    metrics = kind(kind.arguments(benchmark="cfq")).compute_metrics(EvalPrediction(fixed, None))
    assert not {"ponder_cost", "encoder_ponder_cost"} & metrics.keys()
