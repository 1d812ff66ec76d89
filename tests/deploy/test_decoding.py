"""Texts that are written in slots are those of `generate`."""

import functools
from collections.abc import Sequence

import pytest
import torch
from torch._dynamo.utils import counters

from gpu import imitation
from hf_recurrent.deploy import DecodingEngine, decoding
from hf_recurrent.deploy.decoding import BY_STEP, BY_TOKEN
from support.families import (
    LANGUAGE_BY_NAME,
    LANGUAGE_VARIANTS,
    VOCAB_SIZE,
    Variant,
    make_language_model,
    make_model,
    slow,
    tiered,
)
from support.graph_replay import AlwaysLate, without_gpu

NEW = 5
WRITING = (
    *(each for each in LANGUAGE_VARIANTS if each.architecture in BY_STEP and not each.typed),
    Variant("ndr_absolute_relative", "ndr", {"attention": "absolute_relative"}),
    Variant("ouro_window", "ouro_recurrent", {"sliding_layers": [1], "sliding_window": 3}),
)
# models that take all depth steps of a token in each iteration
STATES = [
    each for each in LANGUAGE_VARIANTS if each.architecture in BY_TOKEN and not each.typed and each.name != "tlb_count"
]
EXITS = {
    "convergence": {"exit_criterion": "convergence", "exit_threshold": 0.4},
    "confidence": {"exit_criterion": "confidence", "exit_threshold": 0.2},
    "agreement": {"exit_criterion": "agreement", "exit_threshold": 0.3, "exit_patience": 2},
    "stability": {"exit_criterion": "stability", "min_depth": 3},
}


def prompts_of(number: int = 7, longest: int = 8) -> list[torch.Tensor]:
    """Of one to so many tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = [1, longest, *torch.randint(1, longest, (number - 2,), generator=generator).tolist()]
    return [torch.randint(4, VOCAB_SIZE, (length,), generator=generator) for length in lengths]


def generated(model, prompts: Sequence[torch.Tensor], **options) -> list[torch.Tensor]:
    options = {"max_new_tokens": NEW, "do_sample": False, **options}
    return [model.generate(prompt[None], **options)[0] for prompt in prompts]


def assert_same_texts(model, engine: DecodingEngine, **options) -> None:
    prompts = prompts_of()
    found = engine.generate(prompts, max_new_tokens=NEW)
    for text, expected in zip(found, generated(model, prompts, **options), strict=True):
        assert text.tolist() == expected.tolist()


def steps_taken(model, prompts: Sequence[torch.Tensor], **options) -> int:
    options = {"do_sample": False, "return_dict_in_generate": True, "max_new_tokens": NEW, **options}
    return sum(int(model.generate(prompt[None], **options).ponder_steps.sum()) for prompt in prompts)


@pytest.mark.parametrize("variant", tiered((*WRITING, *STATES)))
def test_texts_are_those_of_generate(variant):
    model = make_language_model(variant)
    assert_same_texts(model, DecodingEngine(model, slots=3, max_length=14))


@pytest.mark.parametrize("criterion", EXITS)
@pytest.mark.parametrize("variant", tiered((*WRITING, LANGUAGE_BY_NAME["gutlb"])))
def test_texts_with_exits_are_those_of_generate(variant, criterion):
    model, options = make_language_model(variant), EXITS[criterion]
    assert_same_texts(model, DecodingEngine(model, slots=3, max_length=14, **options), **options)


@pytest.mark.parametrize("name", ["ut", "gut", "ouro_recurrent"])
def test_depth_and_threshold_of_calls(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    for options in ({"max_depth": 3}, {"halting_threshold": 0.6}):
        assert_same_texts(model, DecodingEngine(model, slots=2, max_length=14, **options), **options)


@pytest.mark.parametrize("name", [*BY_STEP, "gut_no_transition", *BY_TOKEN[:3], "rnn_lstm"])
def test_graphs_and_late_reports_write_the_same(name, monkeypatch):
    monkeypatch.setattr(decoding, "LateValues", AlwaysLate)
    model = make_language_model(LANGUAGE_BY_NAME[name])
    options = EXITS["agreement"] if model.config.capabilities.shared_block else {}
    with without_gpu() as made:
        engine = DecodingEngine(model, slots=3, max_length=14, graph=True, **options)
        for _ in range(2):
            assert_same_texts(model, engine, **options)
        assert len(made) == 1
        assert made[0].replays == engine.iterations


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, as it traces
@pytest.mark.parametrize("name", ["ut", "gut", "gut_no_transition", "ndr", "ouro_recurrent", "tlb", "gutlb"])
def test_an_iteration_is_one_compiled_graph(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    counters.clear()
    model = make_language_model(LANGUAGE_BY_NAME[name])
    assert_same_texts(model, DecodingEngine(model, slots=3, max_length=14, compiled=True))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", [*BY_STEP, "tlb", slow("gutlb"), slow("block_recurrent")])
def test_logits_are_those_of_a_pass_over_the_whole_text(name):
    model = make_language_model(LANGUAGE_BY_NAME[name]).double()
    engine, seen = DecodingEngine(model, slots=3, max_length=14), []
    choose = engine.choose

    def recorded(logits, warpers):
        seen.append(logits.clone())
        return choose(logits, warpers)

    engine.choose = recorded
    prompts, texts = prompts_of(3), {}
    for number, token in engine.stream(prompts, max_new_tokens=NEW):
        # with as many slots as prompts each has its own
        texts.setdefault(number, []).append((token, seen[-1][number]))
    for number, found in texts.items():
        text = torch.cat((prompts[number], torch.tensor([token for token, _ in found])))
        with torch.no_grad():
            expected = model(text[None]).logits[0, len(prompts[number]) - 1 : -1]
        # rotations are in float32
        torch.testing.assert_close(torch.stack([logits for _, logits in found]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ut", "gut", "ouro_recurrent"])
def test_iterations_are_executed_steps_over_slots(name):
    variant, slots, prompts = LANGUAGE_BY_NAME[name], 4, prompts_of(24)
    model = make_language_model(variant)
    options = {} if name == "ut" else EXITS["agreement"]
    engine = DecodingEngine(model, slots=slots, max_length=14, **options)
    engine.generate(prompts, max_new_tokens=NEW)
    steps, depth = steps_taken(model, prompts, **options), model.config.num_hidden_layers
    # tokens that halt before any step take one, and at the end slots are empty
    longest = NEW * depth
    assert steps / slots <= engine.iterations + NEW
    assert engine.iterations <= steps / slots + longest
    assert engine.iterations < 0.9 * len(prompts) * NEW * depth / slots


@pytest.mark.parametrize("name", ["gut", "gutlb", slow("huginn_recurrent"), slow("rnn_lstm")])
def test_nothing_is_made_on_another_device(name):
    model, prompts = make_language_model(LANGUAGE_BY_NAME[name]), prompts_of()
    expected = generated(model, prompts)
    with imitation.installed():
        engine = DecodingEngine(model.to("cuda"), slots=3, max_length=14, graph=False)
        found = engine.generate(prompts, max_new_tokens=NEW)
        next(engine.stream(prompts, max_new_tokens=NEW, do_sample=True, top_k=4, top_p=0.9))
        assert all(text.is_cuda for text in found)
        found = [text.cpu().tolist() for text in found]
    assert found == [text.tolist() for text in expected]


@pytest.mark.parametrize("name", ["gut", "ouro_recurrent"])
def test_half_precision(name):
    """Rounding may change a word."""
    model, prompts = make_language_model(LANGUAGE_BY_NAME[name]).bfloat16(), prompts_of()
    with without_gpu():
        engine = DecodingEngine(model, slots=3, max_length=14, graph=True)
        found = engine.generate(prompts, max_new_tokens=NEW)
    pairs = zip(found, generated(model, prompts), strict=True)
    assert sum(torch.equal(*pair) for pair in pairs) >= len(prompts) - 2


def test_ends_of_texts():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompts = prompts_of()
    texts = generated(model, prompts)
    end = int(texts[0][len(prompts[0]) + 1])
    engine = DecodingEngine(model, slots=2, max_length=14)
    expected = generated(model, prompts, eos_token_id=end, pad_token_id=0)
    assert min(map(len, expected)) < min(map(len, texts)) or sum(map(len, expected)) < sum(map(len, texts))
    for ends in (end, [end, VOCAB_SIZE]):
        found = engine.generate(prompts, max_new_tokens=NEW, eos_token_id=ends)
        assert [text.tolist() for text in found] == [text.tolist() for text in expected]
    # a stream that is not read to its end leaves nothing behind
    next(engine.stream(prompts, max_new_tokens=NEW))
    found = engine.generate(prompts, max_new_tokens=NEW)
    assert [text.tolist() for text in found] == [text.tolist() for text in texts]


def test_draws_follow_the_distribution_and_the_seed():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompt, options = prompts_of()[0], {"do_sample": True, "temperature": 0.7, "top_k": 6}
    engine = DecodingEngine(model, slots=50, max_length=14)

    def drawn(seed: int, **further) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        texts = engine.generate([prompt] * 500, max_new_tokens=1, generator=generator, **options, **further)
        return torch.stack(texts)[:, -1]

    first = drawn(0)
    assert torch.equal(drawn(0), first)
    assert not torch.equal(drawn(1), first)
    with torch.no_grad():
        logits = model(prompt[None]).logits[0, -1] / 0.7
    kept = logits.topk(6).indices
    expected = torch.zeros(VOCAB_SIZE).index_copy(0, kept, logits[kept].softmax(-1))
    found = first.bincount(minlength=VOCAB_SIZE) / len(first)
    assert (found - expected).abs().sum() < 0.2
    assert set(drawn(2, top_p=0.01).tolist()) == {int(logits.argmax())}


def test_what_is_not_supported_is_refused():
    gut = make_language_model(LANGUAGE_BY_NAME["gut"])
    with pytest.raises(ValueError, match="model_type 'sut' is not supported: take one of ut, gut"):
        DecodingEngine(make_language_model(LANGUAGE_BY_NAME["sut"]))
    with pytest.raises(ValueError, match="`chunking` is 'count': chunks then depend on later tokens"):
        DecodingEngine(make_language_model(LANGUAGE_BY_NAME["tlb_count"]))
    with pytest.raises(ValueError, match="predicts no next token: load it by AutoModelForCausalLM"):
        DecodingEngine(make_model(LANGUAGE_BY_NAME["gut"]))
    for model in (gut, make_language_model(LANGUAGE_BY_NAME["tlb"])):
        with pytest.raises(ValueError, match="there are 0 slots: pass at least 1"):
            DecodingEngine(model, slots=0, max_length=8)
    with pytest.raises(ValueError, match="max_depth is 0"):
        DecodingEngine(gut, max_depth=0)
    for model in (gut, make_language_model(LANGUAGE_BY_NAME["tlb"])):
        with pytest.raises(TypeError, match="unexpected keyword argument 'num_beams'"):
            DecodingEngine(model, num_beams=2)
    with pytest.raises(ValueError, match="is in training mode"):
        DecodingEngine(make_language_model(LANGUAGE_BY_NAME["gut"]).train())
    engine = DecodingEngine(gut, slots=2, max_length=8)
    with pytest.raises(ValueError, match=r"prompts have 6 to 6 tokens and max_new_tokens is 4: .*than max_length, 8"):
        engine.generate([[4, 5, 6, 7, 8, 9]], max_new_tokens=4)
    with pytest.raises(ValueError, match="prompts have 0 to 0 tokens"):
        engine.generate([[]])
    gut.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match=r"call model.set_attn_implementation\('sdpa'\) first"):
        DecodingEngine(gut)
