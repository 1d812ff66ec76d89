"""A call that is refused leaves its cache as it was; and calls that do not fit a cache, or its methods, are refused."""

import copy

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from hf_recurrent import SUTForConditionalGeneration
from support.compare import assert_close, cache_contents, same_contents
from support.families import LANGUAGE_BY_NAME, STEPS, make_language_model, make_text
from support.sut_models import make_sut

ARCHITECTURES = ["xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "sut", "block_recurrent", "rnn_lstm"]
GROWING = ["xpos_transformer", "ut", "gut", "ndr", "sut"]
READ = 6
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


@pytest.fixture
def setup(name):
    variant = LANGUAGE_BY_NAME[name]
    ids = make_text(variant)["input_ids"]
    return make_language_model(variant), ids, torch.ones_like(ids)


# options, and what the error says
REFUSED = [
    ({"exit_criterion": "guess"}, "guess"),
    ({"halting_threshold": 7.0}, r"7\.0"),
    ({"labels": torch.full((4, 14 - READ), 99)}, "99"),
]


@every_architecture
def test_a_refused_call_changes_no_cache(setup):
    model, ids, mask = setup
    cache = model(ids[:, :READ], use_cache=True).past_key_values
    before = cache_contents(cache)
    # padding that the cache would remember, and a gradient that would be cut
    mask[0, -1] = 0
    for options, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            model(ids[:, READ:], mask, past_key_values=cache, detach=True, **options)
        assert same_contents(cache, before), options


@every_architecture
def test_weights_that_make_nan_change_no_cache(setup):
    model, ids, _ = setup
    cache = model(ids[:, :READ], use_cache=True).past_key_values
    before = cache_contents(cache)
    for table in {model.get_output_embeddings().weight, model.get_input_embeddings().weight}:
        broken = copy.deepcopy(model)
        next(p for n, p in broken.named_parameters() if p.shape == table.shape).data.fill_(float("nan"))
        with pytest.raises(ValueError, match="NaN"):
            broken(ids[:, READ:], past_key_values=cache)
        assert same_contents(cache, before)


@every_architecture
def test_a_refused_generation_changes_no_cache(setup):
    model, ids, _ = setup
    with torch.no_grad():
        cache = model(ids[:, :READ], use_cache=True).past_key_values
        before = cache_contents(cache)

        def fail(ids, scores):
            raise RuntimeError("full")

        with pytest.raises(RuntimeError, match="full"):
            model.generate(ids, past_key_values=cache, max_new_tokens=2, logits_processor=[fail])
    assert same_contents(cache, before)


def test_a_refused_call_keeps_no_source():
    """Else the next source of as many tokens would be ignored for this one."""
    model = make_sut("plain", SUTForConditionalGeneration)
    states = torch.randn(2, 3, model.config.hidden_size, dtype=model.dtype)
    cache, ids = model.model.new_cache(), torch.full((2, 2), 7)

    def call(states, **options):
        return model(encoder_outputs=BaseModelOutput(last_hidden_state=states), decoder_input_ids=ids, **options).logits

    with torch.no_grad():
        with pytest.raises(ValueError, match="`halting_threshold` is 7"):
            call(states, past_key_values=cache, halting_threshold=7.0)
        assert_close(call(-states, past_key_values=cache), call(-states))


@pytest.mark.parametrize("name", ["sut"])
def test_a_model_that_reads_no_encoder_is_given_none(setup):
    model, ids, mask = setup
    for given in ({"encoder_hidden_states": torch.zeros(4, 3, 32)}, {"encoder_attention_mask": mask}):
        with pytest.raises(ValueError, match=f"`{next(iter(given))}` is a Tensor .*, but this model reads no encoder"):
            model(ids, **given)


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("begun", [4, 10])
def test_the_mask_of_the_new_columns_only_is_refused(setup, begun):
    model, ids, mask = setup
    cache = model(ids[:, :begun], use_cache=True).past_key_values
    message = rf"`attention_mask` has {14 - begun} columns but `past_key_values` holds {begun} already: pass 14, those"
    with pytest.raises(ValueError, match=message):
        model(ids[:, begun:], mask[:, begun:], past_key_values=cache)


@pytest.mark.parametrize("name", ["xpos_transformer", "tlb"])
@pytest.mark.parametrize("layers", [2, STEPS + 1])
def test_a_cache_of_more_or_fewer_layers_is_refused(setup, layers):
    model, ids, _ = setup
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    cache = type(model)(config).model.new_cache()
    with pytest.raises(ValueError, match=rf"was made for .*\({layers} layers.*but this model is .*{STEPS} layers"):
        model(ids, past_key_values=cache)


@pytest.mark.parametrize("name", ["ut", "gut", "gutlb", "ndr", "sut"])
def test_a_cache_with_less_room_than_the_config_has_steps_is_refused(setup):
    model, ids, _ = setup
    message = rf"max_depth is {STEPS} but `past_key_values` has room for 2 steps: .*new_cache\(max_depth={STEPS}\)"
    with pytest.raises(ValueError, match=message):
        model(ids, past_key_values=model.model.new_cache(max_depth=2))


@every_architecture
def test_generation_after_all_tokens_were_read_is_refused(setup):
    model, ids, mask = setup
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
        with pytest.raises(ValueError, match=r"`inputs` has 14 tokens but `past_key_values` holds 14 already: .*whole"):
            model.generate(ids, past_key_values=cache, max_new_tokens=2)
        # the new tokens alone, with the mask of all columns
        new = ids[:, :2]
        mask = torch.cat((mask, mask[:, :2]), dim=1)
        went_on = model.generate(
            new, attention_mask=mask, past_key_values=cache, max_new_tokens=3, do_sample=False, eos_token_id=None
        )
        whole = model.generate(
            torch.cat((ids, new), dim=1), max_new_tokens=3, do_sample=False, use_cache=True, eos_token_id=None
        )
    assert torch.equal(went_on[:, -3:], whole[:, -3:])


@every_architecture
def test_a_cache_beside_use_cache_false_is_refused(setup):
    model, ids, _ = setup
    with torch.no_grad():
        cache = model(ids[:, :READ], use_cache=True).past_key_values
        before = cache_contents(cache)
        with pytest.raises(ValueError, match=r"use_cache is False and `past_key_values` is given: .*leave one of them"):
            model.generate(ids, past_key_values=cache, use_cache=False, max_new_tokens=3)
    assert same_contents(cache, before)


# argument, and what the error says
WRONG_CROPS = [(2, r"crop\(2\): pass how many tokens"), (-99, r"crop\(-99\): the cache holds 6 tokens; pass -6")]


@every_architecture
def test_wrong_arguments_of_a_caches_methods(setup):
    model, ids, _ = setup
    cache = model(ids[:, :READ], use_cache=True).past_key_values
    before = cache_contents(cache)
    for argument, message in WRONG_CROPS:
        with pytest.raises(ValueError, match=message):
            cache.crop(argument)
        assert same_contents(cache, before), argument


def test_a_crop_that_one_layer_refuses_crops_none():
    """Trained on the expected loss, the first layer has no running sums, and would not refuse."""
    model = make_language_model(LANGUAGE_BY_NAME["gut_expected"])
    cache = model(torch.full((1, 140), 7), use_cache=True).past_key_values
    assert {layer.tensors.get("sums") is None for layer in cache.layers} == {True, False}
    before = cache_contents(cache)
    with pytest.raises(ValueError, match=r"crop\(-130\): running sums are cached for the last 128 tokens"):
        cache.crop(-130)
    assert same_contents(cache, before)


@every_architecture
def test_a_cache_with_gradients_can_be_copied(setup):
    model, ids, _ = setup
    model.zero_grad()
    cache = model(ids[:, :READ], use_cache=True).past_key_values
    copied = copy.deepcopy(cache)
    expected = model(ids[:, READ:], past_key_values=cache).logits
    found = model(ids[:, READ:], past_key_values=copied).logits
    assert_close(found, expected)
    table = model.get_input_embeddings().weight
    losses = (found.square().mean(), expected.square().mean())
    gradients = [torch.autograd.grad(loss, table, retain_graph=True)[0] for loss in losses]
    assert_close(*gradients)


@pytest.mark.parametrize("name", ["xpos_transformer", "ut", "gut", "ndr", "sut"])
def test_tensors_of_a_cache_do_not_change_when_it_is_cropped_and_goes_on(setup):
    model, ids, _ = setup
    with torch.no_grad():
        cache = model(ids[:, :READ], use_cache=True).past_key_values
        model(ids[:, READ : READ + 2], past_key_values=cache)
        taken = cache.state_dict()
        before = {name: value.clone() for name, value in taken.items()}
        cache.crop(-2)
        model(ids[:, :2], past_key_values=cache)
    for name, value in before.items():
        assert torch.equal(taken[name], value), name


@every_architecture
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_model_may_change_its_precision_between_pieces(setup, dtype):
    model, ids, _ = setup
    with torch.no_grad():
        expected = model(ids).logits[:, READ:]
        cache = model(ids[:, :READ], use_cache=True).past_key_values
        other = torch.float32 if dtype == torch.float64 else torch.float64
        cache = model.to(other)(ids[:, :READ], use_cache=True).past_key_values
        found = model.to(dtype)(ids[:, READ:], past_key_values=cache).logits
    assert found.dtype == dtype
    assert_close(found.float(), expected, 1e-4)
