"""Static caches: in `generate`, which may compile the call of a new token once for all of them, and by themselves."""

import copy
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import CompileConfig

from hf_recurrent.models.ops.graphs import capturing
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.compare import assert_close
from support.families import CHUNKS, LANGUAGE_BY_NAME, LANGUAGE_VARIANTS, OURO, Variant, make_language_model, make_text
from support.sut_models import make_rows, make_sut, padded

CONSTANT = ["tlb", "gutlb", "rnn_lstm", "rnn_dnc", "block_recurrent", "block_recurrent_feedback"]
GROWING = [variant.name for variant in LANGUAGE_VARIANTS if not variant.constant_cache]
# each kind of context, of layers and of halting
CORE = ["xpos_transformer", "ut", "gut", "ndr", "sut", "ouro_recurrent", "huginn_recurrent"]
OPTIONS = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
# columns of a cache that has room for every text here
ROOM = 40


def tiered(names: list[str], core: list[str]) -> list:
    """Names, of which `make test` runs those of the core."""
    return [name if name in core else pytest.param(name, marks=pytest.mark.slow) for name in names]


def prompt_of(variant) -> dict[str, torch.Tensor]:
    """Padded on the left, so that rows begin their chunks at different columns."""
    text = make_text(variant)
    return {name: text[name] for name in ("input_ids", "attention_mask")}


def model_and_prompt(name: str, **changes) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    variant = LANGUAGE_BY_NAME[name]
    return make_language_model(variant, **changes), prompt_of(variant)


def on_processors(**options) -> CompileConfig:
    config = CompileConfig(fullgraph=True, **options)
    config._compile_all_devices = True
    return config


COMPILED = {"cache_implementation": "static", "compile_config": on_processors(backend="eager", mode=None)}


def assert_same_texts(found, expected, tolerance: float = 1e-5) -> None:
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.logits, expected.logits, strict=True):
        assert_close(one, other, tolerance)
    assert ("ponder_steps" in found) == ("ponder_steps" in expected)
    if "ponder_steps" in expected:
        assert torch.equal(found.ponder_steps, expected.ponder_steps)


def check_compiled(model, prompt: dict[str, torch.Tensor], **options) -> None:
    """One graph writes short and long texts, which are those of eager decoding."""
    expected = model.generate(**prompt, max_new_tokens=14, **OPTIONS, **options)
    torch.compiler.reset()
    counters.clear()
    for number in (3, 14):
        # a graph break is an error
        found = model.generate(**prompt, max_new_tokens=number, **COMPILED, **OPTIONS, **options)
    assert counters["stats"]["unique_graphs"] == 1
    assert_same_texts(found, expected)
    caches = [output.past_key_values for output in (found, expected)]
    assert caches[0].get_seq_length() == caches[1].get_seq_length()
    if model.config.is_encoder_decoder:
        return
    # a returned cache is as any other
    new = torch.full((len(found.sequences), 5), 7)
    mask = torch.cat((prompt["attention_mask"], torch.ones(len(new), 13 + 5, dtype=torch.long)), dim=1)
    mask = mask if model.config.capabilities.growing_cache else None
    # but for choices of its calls
    depth = {name: value for name, value in options.items() if name == "max_depth"}
    with torch.no_grad():
        assert_close(*(model(new, mask, past_key_values=cache, **depth).logits for cache in caches), 1e-5)


@pytest.mark.parametrize("name", ["tlb", "rnn_lstm"])
def test_without_compilation_it_is_the_own_cache(name):
    model, prompt = model_and_prompt(name)
    expected = model.generate(**prompt, max_new_tokens=4, **OPTIONS)
    found = model.generate(**prompt, max_new_tokens=4, cache_implementation="static", **OPTIONS)
    assert torch.equal(found.sequences, expected.sequences)
    assert not found.past_key_values.is_compileable


@pytest.mark.parametrize("name", tiered(CORE, ["gut", "huginn_recurrent"]))
def test_without_compilation_it_is_a_cache_with_room(name):
    model, prompt = model_and_prompt(name)
    one = {argument: value[1:2] for argument, value in prompt.items()}
    for inputs, options in (
        (prompt, {"do_sample": True, "prefill_chunk_size": 4}),
        (prompt, {"num_beams": 2}),
        (one, {"prompt_lookup_num_tokens": 3}),
    ):
        texts = []
        for kind in (None, "static"):
            torch.manual_seed(0)
            options = {**OPTIONS, **options, "max_new_tokens": 9, "cache_implementation": kind}
            texts.append(model.generate(**inputs, **options))
        assert_same_texts(*texts, 1e-6)
        # a returned cache may grow
        assert texts[1].past_key_values.max_length is None


class Decoding:
    """A text with two caches: one has room, and graphs read and write it as they do later."""

    def __init__(self, name: str, **options):
        self.model, prompt = model_and_prompt(name)
        self.options, self.mask = options, prompt["attention_mask"]
        # of a depth that calls need not take
        self.caches = self.model.model.new_static_cache(ROOM), self.model.model.new_cache()
        assert_close(*(self.call(prompt["input_ids"], self.mask, cache) for cache in self.caches), 0)

    @torch.no_grad()
    def call(self, ids: torch.Tensor, mask: torch.Tensor, cache) -> torch.Tensor:
        output = self.model(ids, mask, past_key_values=cache, **self.options)
        return (
            output.logits
            if output.ponder_steps is None
            else torch.cat((output.logits, output.ponder_steps[..., None]), -1)
        )

    def read(self, number: int, in_graph: bool) -> None:
        ids = torch.randint(
            4, 20, (len(self.mask), number), generator=torch.Generator().manual_seed(self.mask.shape[1])
        )
        new = torch.ones_like(ids)
        self.mask = torch.cat((self.mask, new), dim=1)
        expected = self.call(ids, self.mask, self.caches[1])
        if not in_graph:
            assert_close(self.call(ids, self.mask, self.caches[0]), expected, 2e-5)
            return
        with capturing():
            assert_close(self.call(ids, new, self.caches[0]), expected, 2e-5)
        self.caches[0].pin()

    def crop(self, number: int) -> None:
        self.mask = self.mask[:, :-number]
        for cache in self.caches:
            cache.crop(-number)


def addresses(cache) -> list[int]:
    return [tensor.data_ptr() for layer in cache.layers for tensor in layer.tensors.values()]


@pytest.mark.parametrize("name", tiered(GROWING, CORE))
def test_graphs_go_on_from_a_cache_with_room(name):
    """As graphs are captured; tokens one by one, then calls as of any cache between those of graphs."""
    decoding = Decoding(name)
    cache, other = decoding.caches
    cache.pin()
    before = addresses(cache)
    for _ in range(4):
        decoding.read(1, in_graph=True)
    # they write where they read
    assert addresses(cache) == before
    assert cache.get_seq_length() == other.get_seq_length()
    copied = copy.deepcopy(cache).state_dict()
    for key, tensor in other.state_dict().items():
        assert copied[key].shape == tensor.shape or "sums" in key
        assert_close(
            copied[key][..., -1:, :] if "sums" in key else copied[key],
            tensor[..., -1:, :] if "sums" in key else tensor,
            2e-5,
        )
    decoding.read(3, in_graph=False)
    decoding.crop(4)
    decoding.read(2, in_graph=False)
    rows = torch.tensor([2, 0])
    for each in decoding.caches:
        each.reorder_cache(rows)
    decoding.mask = decoding.mask[rows]
    decoding.read(1, in_graph=False)
    cache.pin()
    decoding.read(1, in_graph=True)


@pytest.mark.parametrize("name", tiered([*CORE[1:], "ouro_computed"], ["ut", "ouro_recurrent"]))
@pytest.mark.parametrize("criterion", ["convergence", "confidence", "stability"])
def test_graphs_exit_as_calls_do(name, criterion):
    threshold = {"convergence": 0.3, "confidence": 0.2}.get(criterion)
    decoding = Decoding(name, exit_criterion=criterion, exit_threshold=threshold)
    decoding.caches[0].pin()
    for _ in range(3):
        decoding.read(1, in_graph=True)


@pytest.mark.parametrize("name", tiered(["ut", "gut", "sut", "ouro_recurrent"], ["gut"]))
def test_graphs_of_fewer_steps_than_a_cache_has(name):
    decoding = Decoding(name, max_depth=3)
    decoding.caches[0].pin()
    for _ in range(3):
        decoding.read(1, in_graph=True)
    decoding.options = {}
    decoding.read(1, in_graph=True)


def test_graphs_of_layers_that_slide():
    fields = {**OURO, "sliding_window": 4, "sliding_layers": [0]}
    variant = Variant("ouro_sliding", "ouro_recurrent", fields)
    model, prompt = make_language_model(variant), prompt_of(variant)
    with torch.no_grad():
        caches = model.model.new_static_cache(ROOM), model.model.new_cache()
        for cache in caches:
            model(**prompt, past_key_values=cache)
        caches[0].pin()
        ids = torch.full((4, 1), 7)
        mask = torch.cat((prompt["attention_mask"], torch.ones_like(ids)), dim=1)
        expected = model(ids, mask, past_key_values=caches[1]).logits
        with capturing():
            assert_close(model(ids, torch.ones_like(ids), past_key_values=caches[0]).logits, expected, 1e-5)


def test_a_text_that_is_too_long():
    model, prompt = model_and_prompt("gut")
    with torch.no_grad():
        cache = model(**prompt, past_key_values=model.model.new_static_cache(16)).past_key_values
        before = {name: tensor.clone() for name, tensor in cache.state_dict().items()}
        new = torch.full((4, 3), 7)
        mask = torch.cat((prompt["attention_mask"], torch.ones_like(new)), dim=1)
        with pytest.raises(ValueError, match=r"would have 17 columns but `past_key_values` has room for 16: .*17\)"):
            model(new, mask, past_key_values=cache)
        assert all(torch.equal(tensor, before[name]) for name, tensor in cache.state_dict().items())
        model(new[:, :2], mask[:, :-1], past_key_values=cache)
        assert cache.get_seq_length() == 16
    for length in (0, 2.5):
        with pytest.raises(ValueError, match="max_length"):
            model.model.new_static_cache(length)
    with pytest.raises(ValueError, match="that of TLBModel does not grow"):
        model_and_prompt("tlb")[0].model.new_static_cache(16)


def test_room_is_taken_once():
    model, prompt = model_and_prompt("ut")
    with torch.no_grad():
        cache = model(**prompt, past_key_values=model.model.new_static_cache(ROOM)).past_key_values
        new, mask, places = torch.full((4, 2), 7), prompt["attention_mask"], set()
        for _ in range(5):
            mask = torch.cat((mask, torch.ones_like(new)), dim=1)
            model(new, mask, past_key_values=cache)
            places.add(cache.layers[0].tensors["keys"].data_ptr())
    assert len(places) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", CONSTANT + GROWING)
def test_decoding_is_compiled_once(name, whole):
    model, prompt = model_and_prompt(name)
    if whole:
        # chunks and blocks, so that none has begun
        prompt = {"input_ids": prompt["input_ids"][:, : 2 * CHUNKS["chunk_size"]]}
        prompt["attention_mask"] = torch.ones_like(prompt["input_ids"])
    check_compiled(model, prompt)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["gut", "sut", "ouro_recurrent", "huginn_recurrent", "gutlb"])
@pytest.mark.parametrize(
    "options", [{"exit_criterion": "stability", "exit_patience": 1}, {"max_depth": 3}], ids=["exit", "depth"]
)
def test_choices_of_calls_are_compiled(name, options):
    check_compiled(*model_and_prompt(name), **options)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["plain", "t5", "released", "never_halts"])
def test_decoders_are_compiled_once(kind):
    ids, mask = padded(make_rows([6, 2, 4]), "l")
    model = make_sut(kind, SUTForConditionalGeneration, halting_threshold=0.5)
    check_compiled(model, {"input_ids": ids, "attention_mask": mask}, eos_token_id=None)


@pytest.mark.parametrize("kind", tiered(["plain", "t5"], ["plain"]))
def test_decoders_without_compilation(kind):
    ids, mask = padded(make_rows([6, 2, 4]), "l")
    model = make_sut(kind, SUTForConditionalGeneration, halting_threshold=0.5)
    write = partial(model.generate, ids, attention_mask=mask, max_new_tokens=5, **OPTIONS)
    assert_same_texts(write(cache_implementation="static"), write())
    assert_same_texts(write(cache_implementation="static", num_beams=2), write(num_beams=2))


def test_graphs_are_not_for_one_cache(monkeypatch):
    guards = []
    model, prompt = model_and_prompt("tlb")
    # as it is up to torch 2.9
    monkeypatch.setattr(torch._dynamo, "mark_static_address", lambda _, guard=True: guards.append(guard))
    with torch.no_grad():
        model(**prompt, past_key_values=model.model.new_cache()).past_key_values.pin()
    assert set(guards) == {False}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["tlb", "gut"])
def test_graphs_write_where_they_read(name):
    model, prompt = model_and_prompt(name)
    with torch.no_grad():
        cache = model.model.new_cache() if name == "tlb" else model.model.new_static_cache(ROOM)
        logits, mask = model(**prompt, past_key_values=cache).logits, prompt["attention_mask"]
        cache.pin()
        before = [{name: each.data_ptr() for name, each in layer.tensors.items()} for layer in cache.layers]
        # tensors that were one and the same are not any more
        assert len({place for layer in before for place in layer.values()}) == sum(map(len, before))
        other, call = copy.deepcopy(cache), torch.compile(model, backend="eager", fullgraph=True)
        other.unpin()
        for _ in range(3):
            token = logits[:, -1:].argmax(-1)
            mask = torch.cat((mask, torch.ones_like(token)), dim=1)
            logits = call(token, past_key_values=cache).logits
            assert_close(logits, model(token, mask, past_key_values=other).logits, 1e-5)
            cache.pin()
            places = [{name: each.data_ptr() for name, each in layer.tensors.items()} for layer in cache.layers]
            assert places == before
    assert cache.get_seq_length() == other.get_seq_length()
