"""Caches of constant size in `generate`, which may then compile the call of a new token once for all of them."""

import copy

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from support.compare import assert_close
from support.families import CHUNKS, LANGUAGE_BY_NAME, make_language_model, make_text

CONSTANT = ["tlb", "gutlb", "rnn_lstm", "rnn_dnc", "block_recurrent", "block_recurrent_feedback"]
OPTIONS = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}


def prompt_of(variant) -> dict[str, torch.Tensor]:
    """Padded on the left, so that rows begin their chunks at different columns."""
    text = make_text(variant)
    return {name: text[name] for name in ("input_ids", "attention_mask")}


def on_processors(**options) -> CompileConfig:
    config = CompileConfig(fullgraph=True, **options)
    config._compile_all_devices = True
    return config


@pytest.mark.parametrize("name", ["tlb", "rnn_lstm"])
def test_without_compilation_it_is_the_own_cache(name):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    expected = model.generate(**prompt, max_new_tokens=4, **OPTIONS)
    found = model.generate(**prompt, max_new_tokens=4, cache_implementation="static", **OPTIONS)
    assert torch.equal(found.sequences, expected.sequences)
    assert not found.past_key_values.is_compileable


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", CONSTANT)
def test_decoding_is_compiled_once(name, whole):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    if whole:
        # chunks and blocks, so that none has begun
        prompt = {"input_ids": prompt["input_ids"][:, : 2 * CHUNKS["chunk_size"]]}
        prompt["attention_mask"] = torch.ones_like(prompt["input_ids"])
    expected = model.generate(**prompt, max_new_tokens=14, **OPTIONS)
    torch.compiler.reset()
    counters.clear()
    options = {"cache_implementation": "static", "compile_config": on_processors(backend="eager", mode=None)}
    for number in (3, 14):
        # a graph break is an error
        found = model.generate(**prompt, max_new_tokens=number, **options, **OPTIONS)
    assert counters["stats"]["unique_graphs"] == 1
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        assert_close(one, other, 1e-5)
    if variant.halts:
        assert torch.equal(found.ponder_steps, expected.ponder_steps)
    caches = [output.past_key_values for output in (found, expected)]
    assert caches[0].get_seq_length() == caches[1].get_seq_length()
    # a returned cache is as any other
    new = torch.full((len(found.sequences), 5), 7)
    with torch.no_grad():
        assert_close(*(model(new, past_key_values=cache).logits for cache in caches), 1e-5)


def test_graphs_are_not_for_one_cache(monkeypatch):
    variant, guards = LANGUAGE_BY_NAME["tlb"], []
    model, prompt = make_language_model(variant), prompt_of(variant)
    # as it is up to torch 2.9
    monkeypatch.setattr(torch._dynamo, "mark_static_address", lambda _, guard=True: guards.append(guard))
    with torch.no_grad():
        model(**prompt, past_key_values=model.model.new_cache()).past_key_values.pin()
    assert set(guards) == {False}


@pytest.mark.nightly
def test_graphs_write_where_they_read():
    variant = LANGUAGE_BY_NAME["tlb"]
    model, prompt = make_language_model(variant), prompt_of(variant)
    with torch.no_grad():
        cache = model.model.new_cache()
        logits = model(**prompt, past_key_values=cache).logits
        cache.pin()
        before = [{name: each.data_ptr() for name, each in layer.tensors.items()} for layer in cache.layers]
        # tensors that were one and the same are not any more
        assert len({place for layer in before for place in layer.values()}) == sum(map(len, before))
        other, call = copy.deepcopy(cache), torch.compile(model, backend="eager", fullgraph=True)
        other.unpin()
        for _ in range(3):
            token = logits[:, -1:].argmax(-1)
            logits = call(token, past_key_values=cache).logits
            assert_close(logits, model(token, past_key_values=other).logits, 1e-5)
            cache.pin()
            places = [{name: each.data_ptr() for name, each in layer.tensors.items()} for layer in cache.layers]
            assert places == before
    assert cache.get_seq_length() == other.get_seq_length()
