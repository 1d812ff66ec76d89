"""Batches by tokens: within the limit, every row once, and the same again for the same seed and epoch."""

import numpy as np
import pytest

from hf_recurrent.training.seq2seq_batches import TokenBatchSampler, cut_by_tokens

LENGTHS = np.random.default_rng(0).integers(2, 30, size=200)


def test_every_row_once_within_the_limit_and_with_little_padding():
    batches = TokenBatchSampler(LENGTHS, 90, seed=1).batches()
    assert sorted(place for batch in batches for place in batch) == list(range(200))
    padded = [len(batch) * LENGTHS[batch].max() for batch in batches]
    assert max(padded) <= 90
    assert sum(padded) < 1.1 * LENGTHS.sum()
    assert len(batches) < 1.3 * LENGTHS.sum() / 90


def test_cut_by_hand():
    assert cut_by_tokens(np.array([2, 2, 3, 3, 8]), 8) == [(0, 2), (2, 4), (4, 5)]
    assert cut_by_tokens(np.array([5]), 5) == [(0, 1)]


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


def test_a_row_longer_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="max_tokens is 28, but a row has 29 tokens: raise it, or drop long rows"):
        TokenBatchSampler(LENGTHS, 28, seed=0)
