"""Every keyword of `generate` with every architecture that generates: it works, or an error names it.

The keywords are those of the installed transformers, so that a new one is noticed.
"""

import functools
from collections.abc import Callable
from inspect import signature
from typing import NamedTuple

import pytest
import torch
from transformers import (
    CompileConfig,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    StoppingCriteriaList,
    WatermarkingConfig,
)
from transformers.generation.streamers import BaseStreamer

from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.families import LANGUAGE_BY_NAME, make_language_model, slow
from support.sut_models import make_sut
from support.tokenizer import make_letters

PROMPT = torch.tensor([[4, 9, 5, 11, 4, 9]])
NEW_TOKENS = 3
SETTINGS = {"pad_token_id": 0, "eos_token_id": 3, "suppress_tokens": [0, 1, 2, 3], "max_new_tokens": NEW_TOKENS}
LANGUAGE = ("xpos_transformer", "ut", "gut", "tlb", "gutlb", "block_recurrent", "ndr", "sut", "rnn_lstm")
NAMES = (*LANGUAGE, "ouro_recurrent", "huginn_recurrent", "encoder_decoder")
# whose caches grow, and do not
QUICK = ("ut", "tlb", "encoder_decoder")


class Use(NamedTuple):
    """How a keyword is tried.

    Attributes:
        value: what it is given.
        others: keywords that it needs.
        same: whether tokens are those without the keyword; otherwise those with and without a cache are compared.
        refused: whether a model raises an error that names one of the keywords.
    """

    value: object
    others: dict = {}
    same: bool = False
    refused: Callable = lambda model: False


class Collected(BaseStreamer):
    """The tokens of a text."""

    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended = True


def sampled(model, input_ids, **options):
    """A decoding loop of a caller's own."""
    return GenerationMixin._sample(model, input_ids, **options)


def cannot_take_back(model) -> bool:
    return model._is_stateful


def has_decoder(model) -> bool:
    return model.config.is_encoder_decoder


SAMPLES, BEAMS = {"do_sample": True}, {"num_beams": 2}
# the model itself
ASSISTANT = {"assistant_model": ...}
STATIC = {"cache_implementation": "static", "disable_compile": True}
NEGATIVE = torch.tensor([[5, 6, 7]])
GUIDED = {"guidance_scale": 2.0, "negative_prompt_ids": NEGATIVE}
LETTERS = {"tokenizer": make_letters()}
USES = {
    "inputs": Use(PROMPT, same=True),
    "generation_config": Use(GenerationConfig(), same=True),
    "logits_processor": Use(LogitsProcessorList([lambda ids, scores: -scores])),
    "stopping_criteria": Use(StoppingCriteriaList([lambda ids, scores: torch.ones(len(ids), dtype=torch.bool)])),
    "prefix_allowed_tokens_fn": Use(lambda row, ids: [4 + len(ids) % 5]),
    "assistant_model": Use(..., same=True, refused=cannot_take_back),
    "streamer": Use(Collected(), same=True),
    "negative_prompt_ids": Use(NEGATIVE, {"guidance_scale": 2.0}, refused=has_decoder),
    "negative_prompt_attention_mask": Use(torch.tensor([[0, 1, 1]]), GUIDED, refused=has_decoder),
    "custom_generate": Use(sampled, same=True),
    "max_length": Use(9, {"max_new_tokens": None}),
    "max_new_tokens": Use(2),
    "min_length": Use(9, {"eos_token_id": 7, "max_new_tokens": 9}),
    "min_new_tokens": Use(2, {"eos_token_id": 7}),
    "early_stopping": Use("never", BEAMS),
    "max_time": Use(100.0, same=True),
    "stop_strings": Use(["a", "c", "e", "g"], LETTERS),
    "do_sample": Use(True),
    "num_beams": Use(3),
    "use_mtp": Use(True, refused=lambda model: True),
    "use_cache": Use(None, same=True),
    "cache_implementation": Use("static", {"disable_compile": True}, same=True),
    "cache_config": Use({}, same=True),
    "max_cache_len": Use(64, STATIC, same=True),
    "temperature": Use(2.0, SAMPLES),
    "top_k": Use(3, SAMPLES),
    "top_p": Use(0.5, SAMPLES),
    "min_p": Use(0.1, SAMPLES),
    "top_h": Use(0.5, SAMPLES),
    "typical_p": Use(0.5, SAMPLES),
    "epsilon_cutoff": Use(0.1, SAMPLES),
    "eta_cutoff": Use(0.1, SAMPLES),
    "repetition_penalty": Use(3.0),
    "encoder_repetition_penalty": Use(3.0),
    "length_penalty": Use(2.0, BEAMS),
    "no_repeat_ngram_size": Use(2),
    "bad_words_ids": Use([[4], [5, 6]]),
    "renormalize_logits": Use(True, same=True),
    "forced_bos_token_id": Use(7),
    "forced_eos_token_id": Use(7),
    "remove_invalid_values": Use(True, same=True),
    "exponential_decay_length_penalty": Use((1, 2.0), {"eos_token_id": 7}),
    "suppress_tokens": Use([4, 5, 6]),
    "begin_suppress_tokens": Use([4, 5, 6]),
    "sequence_bias": Use({(5,): 9.0}),
    # the first token of a decoder is no letter
    "token_healing": Use(True, LETTERS, refused=has_decoder),
    "guidance_scale": Use(2.0, refused=has_decoder),
    "watermarking_config": Use(WatermarkingConfig()),
    "num_return_sequences": Use(2, SAMPLES),
    "output_attentions": Use(True, same=True, refused=lambda model: model.config.model_type == "rnn"),
    "output_hidden_states": Use(True, same=True),
    "output_scores": Use(True, same=True),
    "output_logits": Use(True, same=True),
    "return_dict_in_generate": Use(False, same=True),
    "pad_token_id": Use(0, same=True),
    "bos_token_id": Use(2, same=True),
    "eos_token_id": Use([7, 8]),
    "encoder_no_repeat_ngram_size": Use(2),
    "decoder_start_token_id": Use(4),
    "is_assistant": Use(True, {"output_scores": True, "assistant_confidence_threshold": 0.0}, same=True),
    "num_assistant_tokens": Use(2, ASSISTANT, same=True, refused=cannot_take_back),
    "num_assistant_tokens_schedule": Use("constant", ASSISTANT, same=True, refused=cannot_take_back),
    "assistant_confidence_threshold": Use(0.1, ASSISTANT, same=True, refused=cannot_take_back),
    "prompt_lookup_num_tokens": Use(2, same=True, refused=cannot_take_back),
    "max_matching_ngram_size": Use(1, {"prompt_lookup_num_tokens": 2}, same=True, refused=cannot_take_back),
    "assistant_early_exit": Use(1, same=True, refused=lambda model: model._is_stateful or not shares_layers(model)),
    "assistant_lookbehind": Use(2, ASSISTANT, same=True, refused=cannot_take_back),
    "target_lookbehind": Use(2, ASSISTANT, same=True, refused=cannot_take_back),
    "assistant_ensemble_weight": Use(0.5, ASSISTANT, same=True, refused=cannot_take_back),
    "compile_config": Use(CompileConfig(), same=True),
    "disable_compile": Use(True, same=True),
    "prefill_chunk_size": Use(3, same=True),
}
HUB = "transformers loads the loop from the Hub"
NOT_TRIED = {
    "kwargs": "the others",
    "synced_gpus": "needs several processes",
    "speculation_type": "needs an assistant that was trained for it",
    "continuous_batching_config": "deprecated; continuous batching is not supported",
    "low_memory": "of contrastive search",
    **dict.fromkeys(("penalty_alpha", "dola_layers", "diversity_penalty", "num_beam_groups"), HUB),
    **dict.fromkeys(("constraints", "force_words_ids"), HUB),
    **dict.fromkeys(("_from_model_config", "transformers_version"), "says where a config comes from"),
}


def test_every_keyword_is_known():
    keywords = {*signature(GenerationMixin.generate).parameters, *GenerationConfig().to_dict()} - {"self"}
    assert keywords - USES.keys() - NOT_TRIED.keys() == set()


def shares_layers(model) -> bool:
    return model.config.capabilities.shared_block


@functools.cache
def model_of(name: str):
    if name == "encoder_decoder":
        return make_sut("plain", SUTForConditionalGeneration, num_hidden_layers=2, num_decoder_layers=2).float()
    return make_language_model(LANGUAGE_BY_NAME[name])


def generate(model, **options):
    torch.manual_seed(0)
    options = {name: model if value is ... else value for name, value in options.items()}
    return model.generate(**{"inputs": PROMPT, "return_dict_in_generate": True, **SETTINGS, **options})


@functools.cache
def plain(name: str) -> torch.Tensor:
    return generate(model_of(name)).sequences


def cases() -> list:
    """All keywords with all architectures; quickly with one, in turn."""
    found = []
    for number, keyword in enumerate(USES):
        quick = QUICK[number % len(QUICK)]
        found += [(keyword, name) if name == quick else slow(keyword, name) for name in NAMES]
    return found


@pytest.mark.parametrize(("keyword", "name"), cases())
def test_keyword(keyword, name):
    model, use = model_of(name), USES[keyword]
    options = {**use.others, keyword: use.value}
    model.set_attn_implementation("eager" if keyword == "output_attentions" else model.config._attn_implementation)
    if use.refused(model):
        with pytest.raises(ValueError, match="|".join((*options, "mtp", "stateful", "decoder_input_ids"))):
            generate(model, **options)
        return
    found = generate(model, **options)
    if keyword == "return_dict_in_generate":
        assert torch.equal(found, plain(name))
        return
    expected = plain(name) if use.same else generate(model, **options, use_cache=False).sequences
    assert torch.equal(found.sequences, expected)
    start = 1 if model.config.is_encoder_decoder else PROMPT.shape[1]
    if shares_layers(model):
        assert found.ponder_steps.shape == (len(expected), expected.shape[1] - start)
    if keyword.startswith("output_"):
        assert any(field.endswith(keyword.removeprefix("output_")) for field in found)
    if keyword == "streamer":
        assert use.value.ended
        assert use.value.tokens[-expected.shape[1] :] == expected[0].tolist()
