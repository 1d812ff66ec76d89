"""Batches by tokens: within the limit, every row once, the same again for the same seed and epoch, and weighed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from token_ranks import RUN
from token_runs import token_model, token_rows, token_trainer

from hf_recurrent.training.arguments import Seq2SeqArguments
from hf_recurrent.training.batches import TokenBatchSampler, amounts_of, siamese_token_counts
from support.compare import assert_close
from support.families import slow

pytestmark = pytest.mark.slow

LENGTHS = np.random.default_rng(0).integers(2, 30, size=200)


def test_every_row_once_within_the_limit_and_with_little_padding():
    batches = TokenBatchSampler(LENGTHS, 90, seed=1).batches()
    assert sorted(place for batch in batches for place in batch) == list(range(200))
    padded = [len(batch) * LENGTHS[batch].max() for batch in batches]
    assert max(padded) <= 90
    assert sum(padded) < 1.1 * LENGTHS.sum()
    assert len(batches) < 1.3 * LENGTHS.sum() / 90


def test_epochs_differ_and_come_again():
    sampler = TokenBatchSampler(LENGTHS, 90, seed=1)
    first = sampler.batches()
    sampler.set_epoch(1)
    second = sampler.batches()
    assert len(first) == len(second) == len(sampler)
    assert first != second
    # rows of equal length change places, not only batches theirs
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    sampler.set_epoch(0)
    assert sampler.batches() == first
    assert TokenBatchSampler(LENGTHS, 90, seed=2).batches() != first


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_processes_share_the_batches_of_one(processes):
    whole = TokenBatchSampler(LENGTHS, 90, seed=1).batches()
    shares = [
        list(TokenBatchSampler(LENGTHS, 90, seed=1, process=process, num_processes=processes))
        for process in range(processes)
    ]
    assert {len(share) for share in shares} == {-(-len(whole) // processes)}
    dealt = [batch for group in zip(*shares, strict=True) for batch in group]
    assert dealt[: len(whole)] == whole
    # where they do not divide evenly, the deal begins again
    assert dealt[len(whole) :] == whole[: len(dealt) - len(whole)]


def test_an_example_longer_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="max_tokens is 28, but an example has 29 tokens: raise it, or drop long ones"):
        TokenBatchSampler(LENGTHS, 28, seed=0)


def test_costs_of_examples():
    rows = token_rows("pairs")
    sentences = [(types.count(0), types.count(1)) for types in rows["token_type_ids"]]
    assert any(first < second for first, second in sentences)
    assert siamese_token_counts(rows).tolist() == [2 * max(pair) for pair in sentences]
    chosen = [5, 2, 11]
    assert siamese_token_counts(rows.select(chosen)).tolist() == [2 * max(sentences[place]) for place in chosen]


@pytest.mark.parametrize("kind", ["classes", "pairs"])
def test_no_batch_computes_more_than_the_limit(tmp_path, kind):
    fields = {"pair_encoding": "siamese"} if kind == "pairs" else {}
    model = token_model(**fields)
    trainer = token_trainer(tmp_path, kind, model, batch_tokens=60, max_steps=-1, num_train_epochs=2)
    computed, rows = [], []
    model.model.register_forward_pre_hook(lambda module, args: computed.append(args[0].numel()))
    model.register_forward_pre_hook(lambda module, args, given: rows.append(len(given["labels"])), with_kwargs=True)
    trainer.train()
    expected = [len(batch) * trainer.token_batches.lengths[batch].max() for batch in trainer.token_batches.batches()]
    assert sorted(computed) == sorted(2 * expected)
    assert max(computed) <= 60
    assert sum(rows) == 2 * len(trainer.train_dataset)
    assert len(set(rows)) > 1
    assert trainer.state.epoch == 2


def logged(trainer, name):
    return [log[name] for log in trainer.state.log_history if "loss" in log]


def compare(model, other, start):
    ours, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    assert max((ours[name] - value).abs().max() for name, value in start.named_parameters()) > 1e-2
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("kind", "halting"), [("classes", "global"), ("tokens", "global"), slow("tokens", "none")])
def test_accumulated_batches_are_one_large_batch(tmp_path, kind, halting):
    """Also in the ponder loss, which is a mean over rows where the other is one over labels."""
    start, *models = (token_model(kind, halting=halting) for _ in range(3))
    whole = token_trainer(tmp_path, kind, models[0], batch_tokens=1000)
    parts = token_trainer(tmp_path, kind, models[1], batch_tokens=40, gradient_accumulation_steps=100)
    assert len({len(batch) for batch in parts.token_batches.batches()}) > 1, "equal parts would weigh the same anyway"
    for trainer in (whole, parts):
        trainer.train()
    assert len(whole.token_batches) == 1
    compare(parts.model, whole.model, start)
    for name in ("loss", "aux_loss", "ponder_cost") if halting != "none" else ("loss",):
        assert logged(parts, name) == pytest.approx(logged(whole, name), rel=1e-5), name


def test_labels_count_where_a_token_predicts_them():
    labels = torch.tensor([[7, -100, 5, 6], [-100, -100, 4, -100], [-100, 5, 8, -100]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
    assert amounts_of({"labels": labels, "attention_mask": mask}).tolist() == [3, 3]
    assert amounts_of({"labels": labels, "attention_mask": mask}, shifted=False).tolist() == [3, 6]
    assert amounts_of({"labels": torch.tensor([2, 0])}).tolist() == [2, 2]
    with torch.no_grad():
        model = token_model("tokens", ponder_loss_weight=0.0).eval()
        ids = torch.randint(4, 12, labels.shape, generator=torch.Generator().manual_seed(0))
        output = model(ids, mask, labels=labels)
        logits = output.logits.log_softmax(-1)
    by_hand = logits[0, 1, 5] + logits[0, 2, 6] + logits[2, 0, 5]
    assert output.loss.item() == pytest.approx(-by_hand.item() / 3, rel=1e-5)


@pytest.mark.slow
def test_two_processes_equal_one_that_accumulates(tmp_path):
    script = Path(__file__).with_name("token_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one = token_trainer(tmp_path / "one", gradient_accumulation_steps=2, **RUN)
    assert len({len(batch) for batch in one.token_batches.batches()[:4]}) > 1
    one.train()
    weights = load_file(tmp_path / "weights.safetensors")
    start = token_model()
    assert max((weights[name] - value).abs().max() for name, value in start.named_parameters()) > 1e-2
    for name, value in one.model.named_parameters():
        torch.testing.assert_close(weights[name], value.detach(), rtol=1e-4, atol=1e-6, msg=name)
    log = json.loads((tmp_path / "log.json").read_text())
    for name in ("loss", "aux_loss", "ponder_cost"):
        assert [entry[name] for entry in log if "loss" in entry] == pytest.approx(logged(one, name), rel=1e-5), name


def test_a_resumed_run_goes_on_with_the_batches_it_would_have_had(tmp_path):
    """In the middle of the second epoch, with dropout."""
    model = {"dropout": 0.1, "attention_dropout": 0.1}
    options = {"batch_tokens": 24, "gradient_accumulation_steps": 2, "max_steps": 6, "optim": "adamw_torch"}
    options |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}
    straight = token_trainer(tmp_path / "straight", model=token_model(**model), **options)
    steps = -(-len(straight.token_batches) // 2)
    assert 1 < steps < 5
    straight.train()
    resumed = token_trainer(tmp_path / "resumed", model=token_model(**model), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight" / f"checkpoint-{steps + 1}"))
    assert resumed.state.global_step == 6
    parameters = [{n: p.detach() for n, p in run.model.named_parameters()} for run in (resumed, straight)]
    assert_close(*parameters, 1e-4)


def test_examples_of_a_step_on_average(tmp_path):
    trainer = token_trainer(tmp_path, batch_tokens=24, gradient_accumulation_steps=3)
    assert trainer.get_total_train_batch_size(trainer.args) == round(3 * 12 / len(trainer.token_batches))
    assert token_trainer(tmp_path).get_total_train_batch_size(trainer.args) == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_tokens": 0}, "batch_tokens is 0: expected a number from 1"),
        (
            {"batch_tokens": 99, "per_device_train_batch_size": 8},
            "batch_tokens is 99 and per_device_train_batch_size 8: both choose the examples of a batch",
        ),
        (
            {"batch_tokens": 99, "train_sampling_strategy": "group_by_length"},
            "batch_tokens is 99 and train_sampling_strategy 'group_by_length'",
        ),
        (
            {"batch_sampling": "by_length", "train_sampling_strategy": "group_by_length"},
            "batch_sampling is 'by_length' and train_sampling_strategy 'group_by_length'",
        ),
        (
            {"batch_tokens": 12},
            "batch_tokens is 12, but an example has 13 tokens: raise it, or drop long ones by max_len",
        ),
    ],
)
def test_bad_limits(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        token_trainer(tmp_path, **options)


def test_sources_and_targets_have_a_limit_of_their_own(tmp_path):
    with pytest.raises(ValueError, match="batch_tokens is 9: set max_tokens"):
        Seq2SeqArguments(output_dir=str(tmp_path), use_cpu=True, batch_tokens=9)
