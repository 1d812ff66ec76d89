"""Embeddings of token types: what they add, where, and to which tokens."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

from hf_recurrent import ARCHITECTURES
from support.compare import assert_as_exact, assert_close, gradients
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    TYPES,
    VOCAB_SIZE,
    Variant,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
)


def has_class(variant: Variant, auto_class: type) -> bool:
    return auto_class.__name__ in ARCHITECTURES[variant.architecture].heads


# a width of embeddings that is not the model's, where there can be one
FIELDS = {
    "rnn": TYPES | {"embedding_size": 16, "num_hidden_layers": 1},
    "sut": TYPES | {"scale_embeddings": True},
    # with larger weights its steps would magnify rounding
    "huginn_recurrent": {"type_vocab_size": 2},
    "ouro_recurrent": {"type_vocab_size": 2},
}
PLAIN = [Variant(name, name, FIELDS.get(name, TYPES)) for name in ARCHITECTURES]
every_architecture = pytest.mark.parametrize("variant", PLAIN, ids=lambda variant: variant.architecture)
GENERATING = [each for each in PLAIN if has_class(each, AutoModelForCausalLM)]
every_language_model = pytest.mark.parametrize("variant", GENERATING, ids=lambda variant: variant.architecture)
AUTO_CLASSES = [AutoModel, AutoModelForSequenceClassification, AutoModelForCausalLM]
every_class = pytest.mark.parametrize(
    ("auto_class", "variant"),
    [(auto_class, each) for auto_class in AUTO_CLASSES for each in PLAIN if has_class(each, auto_class)],
    ids=lambda value: getattr(value, "architecture", getattr(value, "__name__", None)),
)


def new_model(variant, auto_class=AutoModelForSequenceClassification, **changes):
    return auto_class.from_config(make_config(variant, **changes)).eval()


@every_architecture
def test_types_are_added_to_tokens(variant):
    """A model that sees types computes the same of sums of embeddings, where it sees none."""
    model, batch = new_model(variant), make_batch(variant)
    types = batch["token_type_ids"]
    table = model.model.embed_token_types.weight
    assert table.shape == (2, model.get_input_embeddings().embedding_dim)
    inputs = {"attention_mask": batch["attention_mask"]}
    embedded = model.get_input_embeddings()(batch["input_ids"])
    with torch.no_grad():
        expected = model(**inputs, input_ids=batch["input_ids"], token_type_ids=types).logits
        assert_close(model(**inputs, inputs_embeds=embedded, token_type_ids=types).logits, expected)
        untyped = model(**inputs, input_ids=batch["input_ids"]).logits
        assert not torch.allclose(untyped, expected, atol=1e-4)
        # those that are not given are 0
        zeros = torch.zeros_like(types)
        assert_close(model(**inputs, input_ids=batch["input_ids"], token_type_ids=zeros).logits, untyped)
        summed = embedded + table[types]
        nn.init.zeros_(table)
        assert_close(model(**inputs, inputs_embeds=summed).logits, expected, tolerance=1e-5)


@every_architecture
def test_without_type_embeddings_types_are_ignored(variant):
    model, batch = new_model(variant, type_vocab_size=0), make_batch(variant)
    assert not [name for name, _ in model.named_parameters() if "type" in name]
    with torch.no_grad():
        typed = model(**{**batch, "token_type_ids": torch.full_like(batch["input_ids"], 7)}).logits
        del batch["token_type_ids"]
        assert_close(typed, model(**batch).logits)


@pytest.mark.slow
@every_class
def test_initialisation_and_saving(variant, auto_class, tmp_path):
    model = new_model(variant, auto_class, type_vocab_size=50, initializer_range=0.3)
    table = getattr(model, "model", model).embed_token_types.weight
    # without rows of padding, or of the begin and end of a text
    assert table.std(dim=-1).min() > 0.1
    assert table.std(dim=-1).max() < 0.6
    model.save_pretrained(tmp_path)
    loaded, report = auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert torch.equal(getattr(loaded, "model", loaded).embed_token_types.weight, table)


@every_architecture
def test_types_are_trained(variant):
    model, batch = new_model(variant).train(), make_batch(variant)
    gradient = gradients(model, batch)["model.embed_token_types.weight"]
    assert gradient.any(-1).all()
    del batch["token_type_ids"]
    gradient = gradients(model, batch)["model.embed_token_types.weight"]
    assert gradient.any(-1).tolist() == [True, False]


def test_types_can_be_added_to_a_checkpoint(tmp_path):
    make_model(BY_NAME["gut"]).save_pretrained(tmp_path)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, type_vocab_size=2, output_loading_info=True
    )
    assert set(report["missing_keys"]) == {"model.embed_token_types.weight"}
    assert model.model.embed_token_types.weight.isfinite().all()


@every_language_model
@pytest.mark.parametrize("embeds", [False, True])
def test_new_tokens_are_of_the_last_type(variant, embeds):
    model = new_model(variant, AutoModelForCausalLM)
    model.generation_config.eos_token_id = None
    text = make_text(variant, length=6)
    ids, mask, types = text["input_ids"], text["attention_mask"], text["token_type_ids"]
    prompt = {"inputs_embeds": model.get_input_embeddings()(ids)} if embeds else {"input_ids": ids}
    options = {"max_new_tokens": 5, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    generated = model.generate(**prompt, attention_mask=mask, token_type_ids=types, **options)
    new = generated.sequences[:, -5:]
    whole = {
        "input_ids": torch.cat((ids, new), 1),
        "attention_mask": torch.cat((mask, torch.ones_like(new)), 1),
        "token_type_ids": torch.cat((types, types[:, -1:].expand(-1, 5)), 1),
    }
    with torch.no_grad():
        expected, exact = (each(**whole).logits[:, 5:-1] for each in (model, copy.deepcopy(model).double()))
    assert_as_exact(torch.stack(generated.logits, 1), expected, exact)
    uncached = model.generate(**prompt, attention_mask=mask, token_type_ids=types, use_cache=False, **options)
    assert torch.equal(uncached.sequences, generated.sequences)


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"prompt_lookup_num_tokens": 3}], ids=["beams", "lookup"])
def test_other_ways_to_generate_keep_types(options):
    variant = LANGUAGE_BY_NAME["gut_types"]
    model, text = make_language_model(variant), make_text(variant)
    # assisted decoding takes one sequence
    prompt = {name: value[:1].repeat(1, 2) for name, value in text.items() if name != "labels"}
    cached, uncached = (
        model.generate(**prompt, max_new_tokens=8, do_sample=False, use_cache=use_cache, **options)
        for use_cache in (True, "prompt_lookup_num_tokens" in options)
    )
    assert torch.equal(cached, uncached)
    if "prompt_lookup_num_tokens" in options:
        assert torch.equal(cached, model.generate(**prompt, max_new_tokens=8, do_sample=False))


@every_class
def test_wrong_types(variant, auto_class):
    model, batch = new_model(variant, auto_class), make_batch(variant)
    inputs, types = {name: batch[name] for name in ("input_ids", "attention_mask")}, batch["token_type_ids"]
    for wrong, message in (
        (types + 1, r"`token_type_ids` holds ids from 1 to 2 but `config.type_vocab_size` is 2: was the text encoded"),
        (
            types[:, 1:],
            r"`token_type_ids` has shape \(10, 8\): the inputs have \(10, 9\), pass one type for each token",
        ),
        (types.float(), "`token_type_ids` is a Tensor of torch.float32"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**inputs, token_type_ids=wrong)


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        ("gut", {"type_vocab_size": -1}, "config field `type_vocab_size` is -1: it must be at least 0"),
        ("tlb", {"type_vocab_size": 2, "pair_encoding": "siamese"}, "siamese pairs are split by their types"),
        ("sut", {"type_vocab_size": 2, "is_encoder_decoder": True}, "a source and a target are in stacks of their own"),
    ],
)
def test_configs_that_cannot_be(architecture, fields, message):
    with pytest.raises(Exception, match=message):
        AutoConfig.for_model(architecture, vocab_size=VOCAB_SIZE, **fields)
