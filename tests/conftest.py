import pytest
import torch

from support.families import HALTING_VARIANTS, VARIANTS, make_batch, make_model

# models this small only lose by threads
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.name)
def variant(request):
    return request.param


@pytest.fixture(params=HALTING_VARIANTS, ids=lambda variant: variant.name)
def halting_variant(request):
    return request.param


@pytest.fixture
def model(variant):
    return make_model(variant)


@pytest.fixture
def batch(variant):
    return make_batch(variant)
