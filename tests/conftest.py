import pytest
import torch

from support.families import (
    CACHED_VARIANTS,
    HALTING_VARIANTS,
    LANGUAGE_VARIANTS,
    VARIANTS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
)

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


@pytest.fixture(params=LANGUAGE_VARIANTS, ids=lambda variant: variant.name)
def language_variant(request):
    return request.param


@pytest.fixture
def language_model(language_variant):
    return make_language_model(language_variant)


@pytest.fixture
def text(language_variant):
    return make_text(language_variant)


@pytest.fixture(params=CACHED_VARIANTS, ids=lambda variant: variant.name)
def cached_variant(request):
    return request.param
