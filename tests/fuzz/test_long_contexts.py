"""A few long contexts of the shortest length, and planted faults that are found."""

import random

import pytest
import torch

from fuzz.long_contexts import SHORTEST, VARIANTS, compared, drawn_cuts
from hf_recurrent.models.depth.cache import RecurrentCache
from support.families import LANGUAGE_BY_NAME, nightly

pytestmark = pytest.mark.slow


def test_every_architecture_of_constant_memory_is_there():
    assert {variant.architecture for variant in VARIANTS} == {"tlb", "gutlb", "rnn", "block_recurrent"}


@pytest.mark.parametrize("name", ["gutlb", *map(nightly, ("tlb", "rnn_lstm", "block_recurrent"))])
def test_random_pieces_are_as_one_pass(name):
    assert compared(LANGUAGE_BY_NAME[name], random.Random(0), 2 * SHORTEST) == []


def test_pieces_end_where_the_cache_is_counted():
    cuts = drawn_cuts(random.Random(0), 3 * SHORTEST)
    ends = torch.tensor(cuts).cumsum(0).tolist()
    assert SHORTEST in ends
    assert ends[-1] == 3 * SHORTEST


def test_a_cache_that_grows_is_found(monkeypatch):
    state_dict = RecurrentCache.state_dict

    def grown(self):
        return {**state_dict(self), "all": torch.zeros(self.length)}

    monkeypatch.setattr(RecurrentCache, "state_dict", grown)
    (fault,) = compared(LANGUAGE_BY_NAME["gutlb"], random.Random(0), 2 * SHORTEST)
    assert "the cache has" in fault
