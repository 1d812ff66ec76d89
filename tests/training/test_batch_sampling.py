"""Which rows a batch holds."""

import itertools

import numpy as np
import pytest

from hf_recurrent.training.batches import EpochSampler

LENGTHS = np.array([9, 3, 5, 3, 7, 5, 3, 9, 7, 5, 3, 8, 2, 6, 4, 4, 5, 6, 7, 2, 9, 8, 3])


def epoch(sampling, batch_size, number=0, seed=1, lengths=LENGTHS):
    sampler = EpochSampler(sampling, lengths, batch_size, seed)
    sampler.set_epoch(number)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return indices


@pytest.mark.parametrize("sampling", ["with_replacement", "by_length", "short_first", "balanced_lengths"])
def test_an_epoch_follows_from_seed_and_epoch_alone(sampling):
    assert epoch(sampling, 4) == epoch(sampling, 4)
    assert epoch(sampling, 4) != epoch(sampling, 4, number=1)
    assert epoch(sampling, 4) != epoch(sampling, 4, seed=2)
    assert len(epoch(sampling, 4)) == 20


def test_batches_by_length_are_neighbours_in_the_order_of_lengths_and_shuffled():
    indices = epoch("by_length", 4)
    assert len(set(indices)) == 20
    batches = LENGTHS[indices].reshape(-1, 4)
    spans = sorted((batch.min(), batch.max()) for batch in batches)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    firsts = [batch.min() for batch in batches]
    assert firsts != sorted(firsts)
    # which rows make up whole batches, and which of a length go together, changes from epoch to epoch
    left_out = {frozenset(range(23)) - set(epoch("by_length", 4, number)) for number in range(6)}
    assert len(left_out) > 1


def test_short_examples_come_first_and_are_drawn_evenly():
    # short ones are rare
    lengths = np.repeat(np.arange(2, 42), np.arange(1, 41) ** 2)
    batches = lengths[epoch("short_first", 10, lengths=lengths)].reshape(-1, 10)
    number = len(batches)
    longest = np.ceil(40 * np.arange(1, number + 1) / number) + 1
    assert (batches.max(1) <= longest).all()
    assert batches[: number // 40].max() == 2
    halfway = batches[number // 2 : number // 2 + number // 40]
    assert np.mean(halfway <= 12) == pytest.approx(0.5, abs=0.07)
    assert batches[-number // 40 :].max() == 41
    assert epoch("short_first", 10, number=1, lengths=lengths) == epoch("by_length", 10, number=1, lengths=lengths)


def test_lengths_grow_for_as_many_steps_as_are_given_and_from_a_share_of_them_on():
    lengths = np.random.default_rng(0).integers(2, 42, 1000)

    def longest(number, *growth):
        sampler = EpochSampler("short_first", lengths, 10, 1, *growth)
        sampler.set_epoch(number)
        return lengths[list(sampler)].reshape(-1, 10).max(1)

    # 100 batches an epoch
    assert longest(0, 20)[:5].max() < 13
    assert longest(0, 20)[20:].max() == 41
    assert longest(0, 200)[-1] <= 21
    assert longest(1, 200)[0] > 15
    assert longest(2, 200).min() < 10, "batches of like length"
    # 10 of 40 lengths and the next at first, of the other 30 a quarter after half of the batches
    grown = longest(0, 0, 0.25, 2.0)
    assert (grown[:10].max(), grown[-5:].max() > 35) == (12, True)
    assert grown[45:50].max() in (18, 19)


def test_too_few_examples_for_a_batch():
    assert sorted(epoch("by_length", 100)) == list(range(23))
    assert len(epoch("short_first", 100, number=1)) == 100
    for sampling in ("short_first", "with_replacement", "balanced_lengths"):
        assert len(epoch(sampling, 100)) == 100


def drawn(sampling, lengths, epochs):
    """How often each example is drawn, in batches of 10."""
    indices = [epoch(sampling, 10, number, lengths=lengths) for number in range(epochs)]
    return np.bincount(np.concatenate(indices), minlength=len(lengths))


def test_examples_with_replacement_are_independent_and_uniform():
    lengths = np.full(50, 4)
    counts = drawn("with_replacement", lengths, 400)
    # 400 expected of each, with a standard deviation of about 20
    assert 300 < counts.min() < counts.max() < 500
    assert len(set(epoch("with_replacement", 10, lengths=lengths))) < 50


def test_every_length_is_drawn_equally_often():
    groups = np.split(drawn("balanced_lengths", np.array([2] * 2 + [3] * 8 + [9] * 90), 60), [2, 10])
    assert [group.sum() / 6000 for group in groups] == pytest.approx([1 / 3] * 3, abs=0.03)
    assert [group.min() > least for group, least in zip(groups, (900, 190, 5), strict=True)] == [True] * 3
