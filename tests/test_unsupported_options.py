"""Options of transformers that models of this package do not have are refused by their names, and assistants guess."""

import copy

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from hf_recurrent import ARCHITECTURES, SUTForConditionalGeneration
from hf_recurrent.models.heads.head import Head
from support.compare import assert_close
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
    slow,
)
from support.sut_models import make_sut
from support.token_heads import NEW_HEADS, fits, make_head, make_head_batch, without_targets

GROWING = ("xpos_transformer", "ut", "gut", "ndr", "sut")
CONSTANT = ("tlb", "gutlb", "block_recurrent", "rnn_lstm")
QUICK = ("gut", "tlb")
every_architecture = pytest.mark.parametrize(
    "name", [*QUICK, *(slow(name) for name in (*GROWING, *CONSTANT, "rnn_dnc") if name not in QUICK)]
)
GREEDY = {"max_new_tokens": 6, "do_sample": False}

ARGUMENTS = {
    "position_ids": (torch.arange(9)[None], r"positions are counted from the first token .*; leave it out"),
    "head_mask": (torch.ones(6, 2), r"heads are not switched off in a call; leave it out, and set"),
    "cache_position": (torch.arange(9), r"new tokens follow those in `past_key_values`; leave it out"),
}


def calls_of(name: str):
    """The base model and the heads of an architecture, each with its inputs."""
    text = {key: value for key, value in make_text(LANGUAGE_BY_NAME[name]).items() if key != "labels"}
    batch = {key: value for key, value in make_batch(BY_NAME[name]).items() if key != "labels"}
    language_model = make_language_model(LANGUAGE_BY_NAME[name])
    others = [
        (make_head(name, head), without_targets(make_head_batch(name, head)))
        for head in NEW_HEADS
        if fits(BY_NAME[name], head)
    ]
    return [(language_model.model, text), (language_model, text), (make_model(BY_NAME[name]), batch), *others]


@every_architecture
def test_arguments_are_refused_by_name(name):
    for model, inputs in calls_of(name):
        for argument, (value, reason) in ARGUMENTS.items():
            with pytest.raises(ValueError, match=rf"`{argument}` is a Tensor .*: {reason}"):
                model(**inputs, **{argument: value})
        # as some callers pass what they do not use
        nothing = dict.fromkeys(ARGUMENTS)
        found, expected = model(**inputs, **nothing), model(**inputs)
        assert_close(found[0], expected[0])
        with pytest.raises(TypeError, match="unexpected keyword argument 'positions'"):
            model(**inputs, positions=None)


@pytest.mark.slow
@pytest.mark.architecture("sut")
def test_arguments_of_an_encoder_decoder_are_refused_by_name():
    model = make_sut("plain", SUTForConditionalGeneration)
    inputs = {"input_ids": torch.full((2, 3), 7), "decoder_input_ids": torch.full((2, 2), 7)}
    for argument in ("position_ids", "decoder_position_ids", "decoder_head_mask", "cross_attn_head_mask"):
        for called in (model, model.model):
            with pytest.raises(ValueError, match=rf"`{argument}` is a Tensor .*leave it out"):
                called(**inputs, **{argument: torch.ones(2, 2)})
            assert called(**inputs, **{argument: None})[0].isfinite().all()
    with pytest.raises(TypeError, match="unexpected keyword argument 'positions'"):
        model(**inputs, positions=None)


@pytest.mark.parametrize(
    ("name", "kind", "own"),
    [
        ("gut", "quantized", "grows with the text; pass 'static', or leave"),
        ("tlb", "offloaded", "is of constant size for any length of the text; pass 'static', or leave"),
    ],
)
def test_kinds_of_caches_are_refused_by_what_the_own_cache_is(name, kind, own):
    model, ids = make_language_model(LANGUAGE_BY_NAME[name]), torch.full((1, 3), 7)
    with pytest.raises(ValueError, match=rf"cache_implementation is '{kind}': .* cache, which {own}.*it unset"):
        model.generate(ids, cache_implementation=kind, **GREEDY)


ASSISTANCE = {
    "assistant_model": lambda model: copy.deepcopy(model),
    "assistant_early_exit": lambda model: 2,
    "prompt_lookup_num_tokens": lambda model: 2,
}


@pytest.mark.parametrize("name", list(map(slow, GROWING)))
def test_assistants_change_no_text(name):
    """Also those that guess wrong: what they guessed is then taken back."""
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), make_text(variant)["input_ids"][:1]
    # an assistant would take a padding token in its text for padding
    options = {**GREEDY, "suppress_tokens": [0]}
    expected = model.generate(prompt, **options)
    for option, make in ASSISTANCE.items():
        if option == "assistant_early_exit" and variant.fixed_layers:
            continue
        value = make(model)
        if option == "assistant_model":
            for parameter in value.parameters():
                parameter.data.add_(0.1 * torch.randn_like(parameter))
        assert torch.equal(model.generate(prompt, **{option: value}, **options), expected), option


@pytest.mark.parametrize(
    "options",
    [{"exit_criterion": "convergence"}, {"max_depth": 3}, {"halting_threshold": 0.5}],
    ids=lambda each: next(iter(each)),
)
def test_assistants_of_fixed_depth_take_no_exit_options(options):
    model, assistant = (make_language_model(LANGUAGE_BY_NAME[name]) for name in ("gut", "xpos_transformer"))
    prompt, options = torch.full((1, 3), 7), {**GREEDY, "suppress_tokens": [0], **options}
    expected = model.generate(prompt, **options)
    assert torch.equal(model.generate(prompt, assistant_model=assistant, **options), expected)


@pytest.mark.parametrize("name", ["gut", slow("xpos_transformer"), slow("ndr"), slow("sut")])
def test_models_of_transformers_can_be_assisted(name):
    """They pass the positions that they have counted."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=24, n_embd=8, n_layer=1, n_head=1, eos_token_id=None, bos_token_id=None)
    model, assistant = transformers.GPT2LMHeadModel(config).eval(), make_language_model(LANGUAGE_BY_NAME[name])
    options = {**GREEDY, "suppress_tokens": [0], "pad_token_id": 0}
    for prompt, mask in ([[7, 8, 9]], None), ([[0, 7, 8]], torch.tensor([[0, 1, 1]])):
        inputs = {"inputs": torch.tensor(prompt), "attention_mask": mask, **options}
        assert torch.equal(model.generate(**inputs, assistant_model=assistant), model.generate(**inputs))
    for positions in ([[0, 1, 0]], [[1, 2, 3]], [[0, 1]]):
        with pytest.raises(ValueError, match=r"`position_ids` is .*: positions are counted from the first token"):
            assistant.generate(torch.tensor([[7, 8, 9]]), position_ids=torch.tensor(positions), **GREEDY)


def test_assistants_read_the_token_of_padding_in_a_text():
    """They get no mask, by which it is told from padding."""
    model, assistant = (make_language_model(LANGUAGE_BY_NAME[name]) for name in ("ut", "gut"))
    assistant.generation_config.num_assistant_tokens = 3
    assert assistant.config.pad_token_id == 0
    ids, cycle = torch.tensor([[7, 8, 9]]), (4, 0, 4)

    def in_turn(read, scores):
        """The token of padding between others."""
        return scores.index_fill(-1, torch.tensor(cycle[read.shape[1] % 3]), 1e9)

    options = {"attention_mask": torch.ones_like(ids), **GREEDY, "max_new_tokens": 12}
    options["logits_processor"] = transformers.LogitsProcessorList([in_turn])
    assert model.generate(ids, assistant_model=assistant, **options)[0, 3:].tolist() == [*cycle] * 4


@pytest.mark.parametrize("name", [*CONSTANT[:1], *(slow(name) for name in CONSTANT[1:])])
def test_caches_of_constant_size_take_no_guess_back(name):
    model, ids = make_language_model(LANGUAGE_BY_NAME[name]), torch.full((1, 3), 7)
    for option, make in ASSISTANCE.items():
        with pytest.raises(ValueError, match=rf"{option} is .*: guessed tokens .* a cache of constant size cannot"):
            model.generate(ids, **{option: make(model)}, **GREEDY)
    with pytest.raises(ValueError, match=r"assistant_model is .*: its cache is of constant size"):
        make_language_model(LANGUAGE_BY_NAME["gut"]).generate(ids, assistant_model=model, **GREEDY)


def test_assistance_that_cannot_be():
    model, ids = make_language_model(LANGUAGE_BY_NAME["gut"]), torch.full((1, 3), 7)
    fixed = make_language_model(LANGUAGE_BY_NAME["xpos_transformer"])
    for called, prompts, options, message in (
        (model, ids, {"assistant_model": "gpt2"}, "assistant_model is 'gpt2': pass a language model"),
        (
            model,
            ids,
            {"assistant_early_exit": 7},
            "assistant_early_exit is 7: pass a whole number of steps from 1 to 6",
        ),
        (
            model,
            ids,
            {"assistant_early_exit": 3, "max_depth": 2},
            "assistant_early_exit is 3: pass a whole number of steps from 1 to 2, which is max_depth",
        ),
        (fixed, ids, {"assistant_early_exit": 2}, "assistant_early_exit is 2: layers of this model are not shared"),
        (
            model,
            ids.repeat(2, 1),
            {"prompt_lookup_num_tokens": 2},
            "is 2, but there are 2 prompts: pass them one by one",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            called.generate(prompts, **options, **GREEDY)


def assert_guesses_with_one_step(model, writer, depth, **options):
    """Greedy text is the same, and `writer`, its stack, takes one step for each guess and else those of the call."""
    prompt, options = torch.full((1, 3), 7), {**GREEDY, "suppress_tokens": [0], **options}
    expected, steps = model.generate(prompt, **options), set()
    writer.register_forward_hook(lambda writer, inputs, output: steps.update(output.ponder_steps.flatten().tolist()))
    assert torch.equal(model.generate(prompt, assistant_early_exit=1, **options), expected)
    assert steps == {1, depth}


def test_a_call_of_few_steps_guesses_with_fewer():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    assert_guesses_with_one_step(model, model.model, 4, max_depth=4)


@pytest.mark.architecture("sut")
def test_a_decoder_guesses_with_few_of_its_steps():
    model = make_sut("never_halts", SUTForConditionalGeneration)
    assert_guesses_with_one_step(model, model.model.decoder, 3)
    with pytest.raises(ValueError, match=r"assistant_early_exit is 4: pass a whole number of steps from 1 to 3$"):
        model.generate(torch.full((1, 3), 7), assistant_early_exit=4, **GREEDY)


def test_a_failed_guess_leaves_the_depth():
    """transformers sets the depth of the config while a model guesses with few of its own steps."""
    model, ids = make_language_model(LANGUAGE_BY_NAME["gut"]), torch.full((1, 3), 7)
    depths = []

    def fail(ids, scores):
        depths.append(model.config.num_hidden_layers)
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        model.generate(ids, assistant_early_exit=2, logits_processor=[fail], **GREEDY)
    assert depths == [2]
    assert model.config.num_hidden_layers == 6


KERNEL = "kernels-community/flash-attn2"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sut", "learned position biases"),
        ("block_recurrent", "learned position biases"),
        ("ndr", "scores of geometric attention"),
        ("rnn_lstm", "a recurrent network has no attention"),
    ],
)
def test_kernels_are_refused_by_what_a_model_attends_with(name, reason):
    model = make_model(BY_NAME[name])
    before = model.config._attn_implementation
    for implementation in (KERNEL, "flash_attention_2"):
        message = f"attn_implementation is '{implementation}'.* {reason}"
        with pytest.raises(ValueError, match=message):
            model.set_attn_implementation(implementation)
        with pytest.raises(ValueError, match=message):
            type(model)._from_config(make_config(BY_NAME[name]), attn_implementation=implementation)
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_auto_classes_without_a_head_name_those_there_are(architecture, tmp_path):
    row, config = ARCHITECTURES[architecture], AutoConfig.for_model(architecture)
    for name in ("AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForImageClassification"):
        if name in row.heads:
            continue
        message = f"{name} has no model for {architecture}: load it with one of {', '.join(row.heads)}"
        with pytest.raises(ValueError, match=message) as refusal:
            getattr(transformers, name).from_config(config)
        assert ("start with an architecture that has one: sut" in str(refusal.value)) == (name.endswith("Seq2SeqLM"))
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="AutoModelForObjectDetection has no model for"):
        transformers.AutoModelForObjectDetection.from_pretrained(tmp_path)


def test_auto_classes_of_other_models_are_as_before():
    config = transformers.GPT2Config(vocab_size=24, n_embd=8, n_layer=1, n_head=1)
    assert type(AutoModelForCausalLM.from_config(config)) is transformers.GPT2LMHeadModel
    with pytest.raises(ValueError, match="Unrecognized configuration class"):
        transformers.AutoModelForSeq2SeqLM.from_config(config)


def test_code_without_a_part_refuses_what_needs_it(monkeypatch):
    """Code of a checkpoint leaves out methods that replace these of a base class."""
    pairs = make_model(BY_NAME["gut_siamese"])
    monkeypatch.setattr(type(pairs), "encode_pairs", Head.encode_pairs)
    with pytest.raises(ValueError, match="its code encodes no sentences separately: import hf_recurrent"):
        pairs(**make_batch(BY_NAME["gut_siamese"]))
