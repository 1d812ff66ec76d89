"""`generate` with a cache, while units halt at different depths, equals forward passes over whole sequences."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextStreamer,
    pipeline,
)
from transformers.utils import ModelOutput, logging

from hf_recurrent.models.heads.generation import steps_of_new_tokens
from support import flash_attention
from support.batches import tokens_of
from support.families import LANGUAGE_BY_NAME, STEPS, make_language_model, make_text
from support.tokenizer import make_letters, make_tokenizer

NEW_TOKENS = 64
TOLERANCE = 1e-5
one_of_each_kind = pytest.mark.parametrize("name", ["gut", "tlb"])


def prompt_of(variant, **options) -> dict[str, torch.Tensor]:
    text = make_text(variant, **options)
    return {name: text[name] for name in ("input_ids", "attention_mask")}


def generate(model, prompt, new_tokens: int = 12, **options):
    options = {"do_sample": False, "min_new_tokens": new_tokens, **options}
    return model.generate(
        **prompt, max_new_tokens=new_tokens, pad_token_id=0, return_dict_in_generate=True, output_logits=True, **options
    )


def whole_mask(prompt, sequences: torch.Tensor) -> torch.Tensor:
    mask = prompt["attention_mask"]
    return torch.cat((mask, mask.new_ones(len(mask), sequences.shape[1] - mask.shape[1])), dim=1)


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within the tolerance, relative to the largest logit where that is above one."""
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale)


def recorded_depths(model) -> list[torch.Tensor]:
    depths = []
    model.model.register_forward_hook(lambda _, __, output: depths.append(output.ponder_steps))
    return depths


def test_cached_decoding_is_the_full_forward(cached_variant):
    model, prompt = make_language_model(cached_variant), prompt_of(cached_variant)
    depths = recorded_depths(model)
    # without halting, a few blocks or chunks show all there is
    new_tokens = NEW_TOKENS if cached_variant.halts else 14
    generated = generate(model, prompt, new_tokens)
    depths = depths[1:]
    logits, length = torch.stack(generated.logits, dim=1), prompt["input_ids"].shape[1]
    assert generated.sequences.shape == (4, length + new_tokens)
    with torch.no_grad():
        whole = model(generated.sequences, whole_mask(prompt, generated.sequences))
    assert_near(logits, whole.logits[:, length - 1 : -1])
    if cached_variant.halts:
        decoded = torch.cat(depths, dim=1)
        assert decoded.shape == (4, new_tokens - 1)
        assert torch.equal(decoded, whole.ponder_steps[:, length:-1])
        # live: some tokens stop at once, some never, and rows differ within a step
        assert len(set(decoded.flatten().tolist())) >= 3
        assert (decoded.amin(0) < decoded.amax(0)).any()
    for row in range(4):
        valid = whole_mask(prompt, generated.sequences)[row].bool()
        with torch.no_grad():
            alone = model(generated.sequences[row : row + 1, valid]).logits
        assert_near(logits[row], alone[0, -new_tokens - 1 : -1])


def test_rows_alone_generate_what_the_batch_does(cached_variant):
    model, prompt = make_language_model(cached_variant), prompt_of(cached_variant)
    together = generate(model, prompt, 5)
    for row in (0, 2):
        alone = generate(model, tokens_of(prompt, row), 5)
        assert torch.equal(alone.sequences[0, -5:], together.sequences[row, -5:])
        assert_near(torch.cat(alone.logits), torch.stack([step[row] for step in together.logits]))


def test_no_cache_generates_the_same(cached_variant):
    model, prompt = make_language_model(cached_variant), prompt_of(cached_variant)
    cached, plain = generate(model, prompt, 5), generate(model, prompt, 5, use_cache=False)
    assert cached.past_key_values is not None
    assert plain.past_key_values is None
    assert torch.equal(cached.sequences, plain.sequences)
    assert_near(torch.stack(cached.logits), torch.stack(plain.logits))


def test_chunks_of_a_whole_row_generate_without_a_cache():
    variant = LANGUAGE_BY_NAME["tlb_count"]
    model, prompt = make_language_model(variant), prompt_of(variant)
    with pytest.raises(ValueError, match=r"`chunking` is 'count': .*pass use_cache=False"):
        generate(model, prompt)
    embedded = {"inputs_embeds": model.get_input_embeddings()(prompt["input_ids"])}
    with pytest.raises(ValueError, match=r"`inputs_embeds` is given, .* can have none: pass `input_ids` and use_cache"):
        generate(model, embedded, use_cache=False)
    generated = generate(model, prompt, 6, use_cache=False)
    for step in range(6):
        sequences = generated.sequences[:, : 14 + step]
        with torch.no_grad():
            whole = model(sequences, whole_mask(prompt, sequences))
        assert_near(generated.logits[step], whole.logits[:, -1])


@pytest.mark.parametrize("name", ["gut", "gutlb", "block_recurrent_feedback"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_beams": 3, "num_return_sequences": 2}, id="beams", marks=pytest.mark.slow),
        pytest.param({"do_sample": True, "num_return_sequences": 3, "temperature": 2.0}, id="samples"),
        pytest.param({"do_sample": True, "top_k": 5, "num_beams": 2}, id="sampled_beams"),
    ],
)
def test_strategies_generate_the_same_with_and_without_cache(name, options):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    sequences = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        sequences.append(generate(model, prompt, 6, use_cache=use_cache, **options).sequences)
    assert torch.equal(*sequences)
    assert sequences[0].shape == (4 * options.get("num_return_sequences", 1), 14 + 6)
    if options.get("do_sample"):
        torch.manual_seed(6)
        assert not torch.equal(generate(model, prompt, 6, **options).sequences, sequences[0])


def test_a_second_call_goes_on_where_the_first_stopped(cached_variant):
    model, prompt = make_language_model(cached_variant), prompt_of(cached_variant)
    first = generate(model, prompt, 3)
    cache = first.past_key_values
    assert cache.get_seq_length() == 16
    # a conversation goes on: the last token, which is not in the cache yet, and six more are new
    ids = torch.cat((first.sequences, torch.full((4, 6), 9)), dim=1)
    again = {"input_ids": ids, "attention_mask": whole_mask(prompt, ids)}
    fresh, continued = generate(model, again, 5), generate(model, again, 5, past_key_values=cache)
    assert continued.past_key_values is cache
    assert torch.equal(continued.sequences, fresh.sequences)
    assert_near(torch.stack(continued.logits), torch.stack(fresh.logits))


@pytest.mark.parametrize("name", ["gut", "gutlb", "gut_token"])
def test_depth_limits_and_thresholds_of_a_call(name):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    depths = recorded_depths(model)
    for options in ({"max_depth": 2}, {"max_depth": STEPS + 2, "halting_threshold": 1.0}):
        depths.clear()
        generated = generate(model, prompt, 6, **options)
        assert max(int(steps.max()) for steps in depths) == options["max_depth"]
        with torch.no_grad():
            whole = model(generated.sequences, whole_mask(prompt, generated.sequences), **options).logits
        assert_near(torch.stack(generated.logits, dim=1), whole[:, 13:-1])


@pytest.mark.parametrize("use_cache", [True, False])
def test_passes_without_the_prompt_take_the_options_of_a_call(use_cache):
    variant = LANGUAGE_BY_NAME["gut_no_halt"]
    model, prompt = make_language_model(variant), tokens_of(prompt_of(variant), 0)
    options, scale, length = {"max_depth": 2}, 3.0, prompt["input_ids"].shape[1]
    guided = {"guidance_scale": scale, "output_scores": True, "use_cache": use_cache}
    generated = generate(model, prompt, 3, **options, **guided)
    with torch.no_grad():
        # without a prompt a text begins with its last token
        with_prompt, without = (
            model(generated.sequences[:, start:], **options).logits[:, -4:-1].log_softmax(-1)
            for start in (0, length - 1)
        )
    expected = scale * (with_prompt - without) + without
    kept = torch.arange(expected.shape[-1]) != model.config.eos_token_id
    assert_near(torch.stack(generated.scores, dim=1)[..., kept], expected[..., kept])


@pytest.mark.parametrize("name", ["xpos_transformer", "ut", "gut", "gut_no_transition", "gut_no_halt", "ndr"])
def test_prompt_lookup_changes_nothing(name):
    variant = LANGUAGE_BY_NAME[name]
    model = make_language_model(variant)
    prompt = tokens_of(prompt_of(variant), 0)
    # repetition is what the lookup finds its drafts by
    prompt["input_ids"][0, 7:] = prompt["input_ids"][0, :7]
    steps = []
    model.model.register_forward_hook(lambda _, __, output: steps.append(output.last_hidden_state.shape[1]))
    drafted = model.generate(**prompt, max_new_tokens=16, do_sample=False, prompt_lookup_num_tokens=3)
    assert max(steps[1:]) > 1
    plain = generate(model, prompt, 16)
    assert torch.equal(drafted, plain.sequences)


@pytest.mark.parametrize(
    "assistance", [{"assistant_early_exit": 1}, {"prompt_lookup_num_tokens": 2}, {"prefill_chunk_size": 3}], ids=str
)
def test_steps_are_those_of_plain_generation(assistance, caplog):
    """Nor does transformers warn of how it calls an assistant."""
    model = make_language_model(LANGUAGE_BY_NAME["ut"])
    prompt = tokens_of(prompt_of(LANGUAGE_BY_NAME["ut"]), 0)
    options = {"suppress_tokens": [0]}
    expected = generate(model, prompt, 12, **options)
    assert len(set(expected.ponder_steps[0].tolist())) > 2
    logger = logging.get_logger("transformers")
    logger.addHandler(caplog.handler)
    try:
        found = generate(model, prompt, 12, **options, **assistance)
    finally:
        logger.removeHandler(caplog.handler)
    assert torch.equal(found.sequences, expected.sequences)
    assert torch.equal(found.ponder_steps, expected.ponder_steps)
    assert caplog.messages == []


@pytest.mark.parametrize("way", [{}, {"num_beams": 2}, {"do_sample": True}], ids=["greedy", "beams", "samples"])
def test_a_stop_string_ends_a_text(way):
    model, prompt, letters = (
        make_language_model(LANGUAGE_BY_NAME["gut"]),
        prompt_of(LANGUAGE_BY_NAME["gut"]),
        make_letters(),
    )
    # rows that have ended are only filled up where there is an id that ends them
    options = {"pad_token_id": 3, "eos_token_id": 3, "suppress_tokens": [0, 1, 2, 3], "max_new_tokens": 8, **way}
    # of greedy texts, a letter that the first row has among its first three
    stop = letters.decode(int(model.generate(**prompt, **options)[0, 16])) if not way else "e"
    found = model.generate(**prompt, stop_strings=[stop], tokenizer=letters, **options)
    number = letters.convert_tokens_to_ids(stop)
    for row in found[:, 14:].tolist():
        written = row[: row.index(3)] if 3 in row else row
        assert number not in written[:-1]
        assert written[-1] == number or len(written) == 8
    if not way:
        assert found[0, 14:].tolist().index(number) <= 2


def test_a_stop_string_ends_what_is_streamed_and_what_a_pipeline_writes(capsys):
    model, letters = make_language_model(LANGUAGE_BY_NAME["gut"]), make_letters()
    options = {"max_new_tokens": 8, "do_sample": False, "suppress_tokens": [0, 1, 2, 3], "pad_token_id": 0}
    prompt = letters("hat", return_tensors="pt")
    written = letters.decode(model.generate(**prompt, **options)[0, 3:])
    # the first letter that is not the first one
    stop = next(letter for letter in written if letter != written[0])
    expected = written[: written.index(stop) + 1]
    model.generate(**prompt, **options, stop_strings=stop, tokenizer=letters, streamer=TextStreamer(letters))
    assert capsys.readouterr().out == f"hat{expected}\n"
    writer = pipeline("text-generation", model=model, tokenizer=letters, device="cpu")
    answer = writer("hat", **options, stop_strings=stop, tokenizer=letters, return_full_text=False)
    assert answer[0]["generated_text"] == expected


def test_any_number_of_guesses_is_taken_back():
    """More than a cache keeps running sums for."""
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompt = {"input_ids": torch.arange(3, 20).repeat(10)[None]}
    expected = generate(model, prompt, 4).sequences
    drafted = model.generate(**prompt, max_new_tokens=4, prompt_lookup_num_tokens=150, do_sample=False)
    assert torch.equal(drafted, expected)


@pytest.mark.parametrize("name", ["xpos_transformer", "ut", "gut", "tlb", "gutlb"])
def test_flash_attention_generates_the_same(name):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    expected = generate(model, prompt, 6)
    with flash_attention.installed():
        model.set_attn_implementation("flash_attention_2")
        actual = generate(model, prompt, 6)
    assert torch.equal(actual.sequences, expected.sequences)
    assert_near(torch.stack(actual.logits), torch.stack(expected.logits))


@one_of_each_kind
def test_eager_attention_generates_the_same(name):
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant), prompt_of(variant)
    expected = generate(model, prompt)
    model.set_attn_implementation("eager")
    assert torch.equal(generate(model, prompt).sequences, expected.sequences)


@one_of_each_kind
def test_half_precision_generates(name):
    """Its own full forward, step by step, within the accuracy of half precision."""
    variant = LANGUAGE_BY_NAME[name]
    model, prompt = make_language_model(variant).to(torch.bfloat16), prompt_of(variant)
    options = {"halting_threshold": 1.0} if variant.halts else {}
    generated = generate(model, prompt, **options)
    with torch.no_grad():
        whole = model(generated.sequences, whole_mask(prompt, generated.sequences), **options).logits[:, 13:-1]
    error = (torch.stack(generated.logits, dim=1) - whole).abs()
    assert error.mean() < 0.05 * whole.abs().mean()


@one_of_each_kind
def test_pipeline_in_batches_is_the_model_row_by_row(name):
    model, tokenizer = make_language_model(LANGUAGE_BY_NAME[name]), make_tokenizer()
    tokenizer.padding_side = "left"
    writer = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    texts = ["w4 w9 w5", "w7", "w23 w11 w6 w8 w9 w4 w5", "w5 w5"]
    answers = writer(texts, batch_size=2, max_new_tokens=6, do_sample=False, return_full_text=False)
    for line, answer in zip(texts, answers, strict=True):
        inputs = tokenizer(line, return_tensors="pt")
        inputs.pop("token_type_ids")
        expected = generate(model, inputs, 6).sequences[0, -6:]
        assert answer[0]["generated_text"].split() == tokenizer.decode(expected, skip_special_tokens=True).split()


def test_steps_after_the_end_are_none_whichever_config_says_where_it_is():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompt = prompt_of(LANGUAGE_BY_NAME["gut"])
    free = generate(model, prompt, 8, eos_token_id=None).sequences[:, prompt["input_ids"].shape[1] :]
    # a token that ends some of the texts before others
    model.generation_config.eos_token_id = int(free[0, 2])
    options = {"max_new_tokens": 8, "pad_token_id": 0, "return_dict_in_generate": True, "do_sample": False}
    expected = model.generate(**prompt, **options).ponder_steps
    assert (expected == -1).any()
    assert torch.equal(model.generate(**prompt, generation_config=GenerationConfig(**options)).ponder_steps, expected)


def test_steps_are_those_of_the_generation_alone_whoever_else_calls_the_model():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompt = prompt_of(LANGUAGE_BY_NAME["gut"])
    expected = generate(model, prompt, 3).ponder_steps

    def call_meanwhile(ids, scores):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model, ids[:, :2]).result()
        return scores

    actual = generate(model, prompt, 3, logits_processor=LogitsProcessorList([call_meanwhile]))
    assert torch.equal(actual.ponder_steps, expected)


def test_steps_after_the_end_are_none_whatever_has_ended_a_text():
    model = make_language_model(LANGUAGE_BY_NAME["gut"])
    prompt = prompt_of(LANGUAGE_BY_NAME["gut"])
    length = prompt["input_ids"].shape[1]

    class AfterTwo(StoppingCriteria):
        """Ends the first text after two tokens."""

        def __call__(self, ids, scores, **kwargs):
            return torch.arange(len(ids)) < (1 if ids.shape[1] == length + 2 else 0)

    options = {"eos_token_id": 5, "suppress_tokens": [0, 5]}
    free = generate(model, prompt, 4, **options)
    found = generate(model, prompt, 4, **options, stopping_criteria=StoppingCriteriaList([AfterTwo()]))
    assert found.ponder_steps[0].tolist() == [*free.ponder_steps[0, :2].tolist(), -1, -1]
    assert torch.equal(found.ponder_steps[1:], free.ponder_steps[1:])


def test_further_forward_passes_are_of_no_new_token():
    """Processes that share a model go on until the last one's texts have ended."""
    generated = ModelOutput(sequences=torch.tensor([[7, 8, 9, 5]]))
    calls = [torch.tensor([[steps]]) for steps in (2, 3, 4, 4, 4)]
    assert steps_of_new_tokens(generated, calls, 5, 0, num_new=2).tolist() == [[2, 3]]
