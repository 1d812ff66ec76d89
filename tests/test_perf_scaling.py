"""Collectives that `perf/scaling.py` counts, against what is known of the engines."""

import pytest
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from perf import scaling

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor:UserWarning")
RANKS = 8


@pytest.fixture(scope="module", autouse=True)
def ranks():
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("depth", [2, 3])
def test_a_shared_block_is_gathered_for_each_step(depth):
    """Once forward and once backward; kept from the forward pass, the last step's serves its backward pass, too."""
    sharded, kept = (scaling.counts("UT", engine, depth, RANKS) for engine in ("FSDP2", "FSDP2, kept"))
    assert (sharded.gathers, sharded.reductions, sharded.agreements) == (2 * depth, 1, 0)
    assert (kept.gathers, kept.reductions) == (depth, 1)


def test_ranks_agree_before_each_step_that_may_be_the_last():
    assert scaling.counts("UT, halting", "FSDP2", 3, RANKS).agreements == 3
    assert scaling.counts("UT, halting", "DDP", 3, RANKS).agreements == 0


def test_data_parallel_ranks_reduce_each_gradient_once():
    found = scaling.counts("block-recurrent", "DDP", 2, RANKS)
    assert found == scaling.Counts(0, 0, 1, 0)
    assert scaling.bytes_sent(found, "DDP", 60, 40, RANKS) == 2 * 4 * 100 * 7 / 8


def test_bytes_of_sharded_parameters():
    found = scaling.Counts(gathers=6, other_gathers=2, reductions=1, agreements=0)
    assert scaling.bytes_sent(found, "FSDP2", 60, 40, RANKS) == 7 / 8 * (2 * (6 * 60 + 2 * 40) + 4 * 100)


def test_feedback_gathers_layers_for_each_block():
    plain, feedback = (
        scaling.counts(name, "FSDP2", 2, RANKS).gathers for name in ("block-recurrent", "block-recurrent, feedback")
    )
    assert 2 <= plain < 4
    # of four blocks of text
    assert 8 <= feedback < 16
