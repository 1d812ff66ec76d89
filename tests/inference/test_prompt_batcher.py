"""Texts of refilled batches equal those that `generate` makes of each prompt alone."""

from collections import Counter
from unittest import mock

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from gpu.imitation import OnDevice, installed, is_imitated, target_of
from hf_recurrent.inference import PromptBatcher, text_pool
from hf_recurrent.inference.decoding_pool import Text
from hf_recurrent.inference.examples import read_example
from hf_recurrent.inference.text_pool import TextPool
from hf_recurrent.models.engine import shared_block
from hf_recurrent.models.engine.shared_block import SequenceModel
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    LANGUAGE_VARIANTS,
    STEPS,
    VOCAB_SIZE,
    make_language_model,
    make_model,
    tiered,
)
from support.prompts import NEW_TOKENS, alone, assert_as_alone, make_prompts


@pytest.mark.parametrize("variant", tiered([variant for variant in LANGUAGE_VARIANTS if variant.chunking != "count"]))
def test_each_text_is_as_alone(variant):
    model = make_language_model(variant)
    assert_as_alone(model, make_prompts(model), batch_size=3)


class Waits(TorchFunctionMode):
    """Counts, by function, what makes the host wait for a GPU, or a copy to it."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(isinstance(value, OnDevice) for value in args[:1]):
            waits = function in (torch.Tensor.cpu, torch.Tensor.tolist, torch.Tensor.__bool__, torch.Tensor.__int__)
        else:
            waits = is_imitated(target_of(function, args, kwargs)) and not kwargs.get("non_blocking")
            waits = waits and function in (torch.Tensor.to, torch.tensor)
        self.found[function.__name__] += waits
        return function(*args, **kwargs)


@pytest.mark.parametrize("name", ["ut", "gut", "gutlb", "xpos_transformer"])
def test_steps_wait_for_little_on_a_gpu(name):
    """For which texts have halted, that nothing is NaN and for the tokens; never for a copy of numbers to the GPU."""
    with installed():
        model = make_language_model(LANGUAGE_BY_NAME[name]).to("cuda")
        pool = PromptBatcher(model, batch_size=3).new_pool()
        texts = [Text(number, read_example(each, number), 9) for number, each in enumerate(make_prompts(model)[:3])]
        pool.admit(texts)
        step = pool.stepped if isinstance(pool, TextPool) else pool.extend
        with mock.patch.object(pool, step.__name__, wraps=step) as steps, Waits() as waits:
            while any(len(text.token_ids) < 5 for text in texts):
                pool.step()
    assert waits.found["to"] == waits.found["tensor"] == 0
    if isinstance(pool, TextPool):
        assert 0 < waits.found["cpu"] == steps.call_count
        assert waits.found.total() <= 3 * steps.call_count


class Patient(TorchFunctionMode):
    """Refuses a copy that is not waited for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert not (kwargs or {}).get("non_blocking")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["gutlb", "xpos_transformer"])
def test_devices_without_cuda_are_waited_for(name):
    """Apple's GPUs would read numbers from memory that has been freed since (pytorch#189690)."""
    model = make_language_model(LANGUAGE_BY_NAME[name])
    with Patient():
        assert len(list(PromptBatcher(model, batch_size=3)(make_prompts(model)[:3]))) == 3


@pytest.mark.parametrize("batch_size", [1, 4, 20])
def test_any_batch_size_makes_the_same_texts(batch_size):
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    assert_as_alone(model, make_prompts(model), batch_size)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("gut", {"attn_implementation": "eager"}),
        ("sut", {"relative_positions": "t5"}),
        ("sut", {"relative_positions": "none", "absolute_positions": True}),
        ("sut", {"attn_implementation": "eager"}),
    ],
)
def test_texts_of_other_attention_are_as_alone(name, fields):
    model = make_language_model(LANGUAGE_BY_NAME[name], **fields)
    assert_as_alone(model, make_prompts(model), batch_size=3)


@pytest.mark.parametrize("name", ["gut", "sut", "gutlb"])
def test_texts_of_half_precision_have_their_lengths(name):
    model = make_language_model(LANGUAGE_BY_NAME[name]).half()
    texts = PromptBatcher(model, batch_size=3)(make_prompts(model))
    assert [len(text.token_ids) for text in texts] == list(NEW_TOKENS)


@pytest.mark.parametrize("name", ["ut", "gut"])
def test_texts_that_attend_together_are_as_alone(name, monkeypatch):
    monkeypatch.setattr(SequenceModel, "gathers_texts", True)
    model = make_language_model(LANGUAGE_BY_NAME[name])
    assert_as_alone(model, make_prompts(model), batch_size=3)


@pytest.mark.parametrize("name", ["ut", "gut"])
def test_long_texts_are_as_alone(name, monkeypatch):
    """Scales of xPos are measured from another column again and again, and columns are added."""
    for module in (shared_block, text_pool):
        monkeypatch.setattr(module, "COLUMNS_BETWEEN_CENTERS", 4)
    monkeypatch.setattr(text_pool, "COLUMNS_AHEAD", 2)
    model = make_language_model(LANGUAGE_BY_NAME[name], xpos_scale_base=4)
    assert_as_alone(model, make_prompts(model), batch_size=3)


@pytest.mark.parametrize("name", ["ut", "gut", "sut"])
def test_texts_do_not_wait_for_the_deepest_token(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    prompts = make_prompts(model, lengths=[5] * 8, new_tokens=[9] * 8)
    rows = Rows(model.model.block)
    batcher = PromptBatcher(model, batch_size=8, exit_criterion="convergence", exit_threshold=0.3)
    # the first token follows the prompt
    steps = torch.stack([text.ponder_steps for text in batcher(prompts)])[:, 1:]
    assert len(rows.calls) <= STEPS + int(steps.sum(1).max()) < STEPS + int(steps.amax(0).sum())


@pytest.mark.parametrize("name", ["gut", "ut", "sut", "ndr", "gutlb"])
def test_texts_exit_as_alone(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    options = {"exit_criterion": "convergence", "exit_threshold": 0.1 if name == "ndr" else 0.5}
    assert_as_alone(model, make_prompts(model), batch_size=3, **options)


def test_texts_exit_as_the_generation_config_says():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    model.generation_config.max_steps = 2
    texts = assert_as_alone(model, make_prompts(model), batch_size=3)
    assert max(text.ponder_steps.max() for text in texts) == 2


@pytest.mark.parametrize("name", ["gut", "rnn_lstm"])
def test_texts_end_at_an_end_token(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    prompts = make_prompts(model)
    longest = alone(model, prompts[2])[0]
    ends = [longest[3]]
    assert_as_alone(model, prompts, batch_size=3, eos_token_id=ends)
    text = list(PromptBatcher(model, eos_token_id=ends)(prompts))[2].token_ids.tolist()
    assert text == longest[: longest.index(ends[0]) + 1]


@pytest.mark.parametrize("name", ["gut", "tlb"])
def test_a_likely_token_is_drawn_as_if_it_was_taken(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    prompts = make_prompts(model)
    drawn = PromptBatcher(model, batch_size=3, do_sample=True, temperature=0.7, top_k=1)(prompts)
    assert [text.token_ids.tolist() for text in drawn] == [alone(model, prompt)[0] for prompt in prompts]


class Rows:
    """Rows of each call of a module."""

    def __init__(self, module: torch.nn.Module):
        self.calls: list[int] = []
        module.register_forward_hook(lambda module, inputs, output: self.calls.append(inputs[0].shape[0]))


def test_places_of_ended_texts_are_refilled():
    model = make_language_model(LANGUAGE_BY_NAME["xpos_transformer"])
    rows = Rows(model.model.embed_tokens)
    new_tokens = [2, 9, 2, 9, 2, 9, 2, 9]
    list(PromptBatcher(model, batch_size=4)(make_prompts(model, lengths=[5] * 8, new_tokens=new_tokens)))
    # two prompts enter in the places of two short texts, then one in that of each that ends
    assert rows.calls[:7] == [4, 4, 2, 4, 1, 4, 1]
    plain = 2 * (4 + 4 * 8)
    assert sum(rows.calls) < 0.8 * plain


@pytest.mark.parametrize("name", ["gut", "ut", "gutlb", "ndr"])
def test_rows_that_stopped_are_not_computed(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    # a threshold that some rows meet at each step
    options = {"exit_criterion": "convergence", "exit_threshold": 0.1} if name == "ndr" else {}
    ids = torch.randint(4, VOCAB_SIZE, (12, 1), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        first = model(ids, use_cache=True, **options)
        rows = Rows(model.model.block)
        steps = model(ids, past_key_values=first.past_key_values, **options).ponder_steps
    assert len(set(steps.flatten().tolist())) > 2
    assert rows.calls == sorted(rows.calls, reverse=True)
    computed = (steps + model.config.transition_aware).clamp_max(len(rows.calls)) if name == "gut" else steps
    assert sum(rows.calls) <= int(computed.sum()) + 12
    assert sum(rows.calls) < 12 * len(rows.calls)


def test_every_row_of_a_cache_is_as_without_compaction():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    ids = torch.randint(4, VOCAB_SIZE, (12, 4), generator=torch.Generator().manual_seed(1))
    caches = []
    for compaction in (True, False):
        model.config.compaction = compaction
        cache = model.model.new_cache()
        with torch.no_grad():
            for piece in ids.split([1, 2, 1], dim=1):
                model(piece, past_key_values=cache)
        caches.append(cache.state_dict())
    for name, tensor in caches[1].items():
        torch.testing.assert_close(caches[0][name].float(), tensor.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_new_tokens": True}, "max_new_tokens is True"),
        ({"num_beams": 2}, "asks for beam_search"),
        ({"repetition_penalty": 1.5}, "RepetitionPenaltyLogitsProcessor"),
        ({"stop_strings": ["a"]}, "stop_strings is"),
        ({"min_new_tokens": 2, "eos_token_id": 5}, "MinNewTokensLengthLogitsProcessor"),
        ({"bad_words_ids": [[5]], "eos_token_id": 5}, "NoBadWordsLogitsProcessor"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences is 2"),
        ({"max_steps": 0}, "max_steps is 0"),
    ],
)
def test_options_that_are_not_supported_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PromptBatcher(make_language_model(LANGUAGE_BY_NAME["gut"]), **options)


@pytest.mark.parametrize("name", ["ut", "gutlb", "sut"])
def test_models_of_the_code_that_their_checkpoints_carry(name, tmp_path):
    """Their classes are not those of the package."""
    model = make_language_model(LANGUAGE_BY_NAME[name])
    model.save_pretrained(tmp_path)
    carried = get_class_from_dynamic_module(f"modeling_{name}.{type(model).__name__}", tmp_path)
    own = carried.from_pretrained(tmp_path)
    assert type(own) is not type(model)
    prompts = [{"input_ids": [5, 9, 4]}, {"input_ids": [7]}]
    found, expected = (list(PromptBatcher(each, max_new_tokens=4)(prompts)) for each in (own, model))
    for text, other in zip(found, expected, strict=True):
        assert text.token_ids.tolist() == other.token_ids.tolist()


def test_unknown_options_and_other_models_are_refused():
    with pytest.raises(TypeError, match="unexpected option 'max_step'"):
        PromptBatcher(make_language_model(LANGUAGE_BY_NAME["gut"]), max_step=3)
    with pytest.raises(ValueError, match="exit_criterion is 'never'"):
        PromptBatcher(make_language_model(LANGUAGE_BY_NAME["gut"]), exit_criterion="never")
    with pytest.raises(ValueError, match="model is a GUTForSequenceClassification"):
        PromptBatcher(make_model(BY_NAME["gut"]))
    with pytest.raises(ValueError, match="`chunking` is 'count'"):
        PromptBatcher(make_language_model(LANGUAGE_BY_NAME["tlb_count"]))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"input_ids": []}, "example 1 has no tokens"),
        ({"input_ids": [[4, 5]]}, "`input_ids` of example 1"),
        ({"input_ids": [4, 5], "max_new_tokens": 0}, "`max_new_tokens` of example 1 is 0"),
        ({"input_ids": [4, VOCAB_SIZE]}, "vocab"),
    ],
)
def test_wrong_prompts_are_refused(prompt, message):
    batcher = PromptBatcher(make_language_model(LANGUAGE_BY_NAME["gut"]), max_new_tokens=2)
    with pytest.raises(ValueError, match=message):
        list(batcher([{"input_ids": [4, 5]}, prompt]))


def test_a_prompt_without_a_number_of_tokens_has_that_of_all():
    model, prompt = make_language_model(LANGUAGE_BY_NAME["gut"]), {"input_ids": [4, 5], "max_new_tokens": None}
    (text,) = PromptBatcher(model, max_new_tokens=2, eos_token_id=None)([prompt])
    assert len(text.token_ids) == 2
    with pytest.raises(ValueError, match="`max_new_tokens` of example 0 is not given"):
        list(PromptBatcher(model)([prompt]))


def test_no_prompts_make_no_texts():
    assert list(PromptBatcher(make_language_model(LANGUAGE_BY_NAME["gut"]))([])) == []


def test_caches_that_end_elsewhere_are_not_put_together():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    caches = []
    for length in (3, 2):
        cache = model.model.new_cache()
        with torch.no_grad():
            model(torch.full((2, length), 5), past_key_values=cache)
        caches.append(cache)
    with pytest.raises(ValueError, match="`other` ends at position 2 but this cache at 3"):
        caches[0].refill(torch.tensor([0, 1]), caches[1])
    with pytest.raises(ValueError, match="`other` has 2 sequences for 1 places"):
        caches[0].refill(torch.tensor([1]), caches[1])
    with pytest.raises(ValueError, match="`other` is for"):
        caches[0].refill(torch.tensor([0, 1]), read_cache(make_language_model(LANGUAGE_BY_NAME["ut"])))


def read_cache(model):
    cache = model.model.new_cache()
    with torch.no_grad():
        model(torch.full((2, 3), 5), past_key_values=cache)
    return cache
