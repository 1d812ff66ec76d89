"""Requirements of transformers on causal language models: saving, heads, losses, precisions, training."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForCausalLM

from support.batches import right_padded, tokens_of
from support.compare import (
    assert_close,
    assert_finite_gradients,
    assert_same,
    compute,
    gradients,
    recomputed_calls,
)
from support.families import LANGUAGE_BY_NAME, STEPS, VOCAB_SIZE, make_config, make_language_model, make_text

TIED = ["gut_token", "gut_types", "tlb", "gutlb_token", "ndr_act", "rnn_dnc", "sut", "ouro_computed"]
TIED += ["block_recurrent", "block_recurrent_types"]


def load(folder, auto_class=AutoModelForCausalLM, **options):
    model, info = auto_class.from_pretrained(folder, output_loading_info=True, **options)
    return model, {name: problems for name, problems in info.items() if problems}


def states(model, text):
    with torch.no_grad():
        return model(text["input_ids"], text["attention_mask"], text.get("token_type_ids")).last_hidden_state


def test_saved_model_computes_the_same(language_model, language_variant, text, tmp_path):
    language_model.save_pretrained(tmp_path / "head")
    loaded, problems = load(tmp_path / "head")
    assert problems == {}
    assert type(loaded) is type(language_model)
    assert_close(compute(loaded, language_variant, text), compute(language_model, language_variant, text))
    tied = loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert tied == (language_variant.name in TIED)

    base, problems = load(tmp_path / "head", AutoModel)
    assert set(problems) <= {"unexpected_keys"}
    assert all(name.startswith("lm_head.") for name in problems.get("unexpected_keys", ()))
    assert base.config.is_causal
    assert_close(states(base, text), states(language_model.model, text))

    base.save_pretrained(tmp_path / "base")
    head, problems = load(tmp_path / "base")
    assert set(problems) <= {"missing_keys"}
    assert all(name.startswith("lm_head.") for name in problems.get("missing_keys", ()))
    assert_close(states(head.model, text), states(language_model.model, text))
    assert all(parameter.isfinite().all() for parameter in head.parameters())


@pytest.mark.parametrize("use_cache", [False, True])
def test_use_cache_may_be_told_as_a_model_is_loaded(tmp_path, use_cache):
    make_language_model(LANGUAGE_BY_NAME["ut"]).save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, use_cache=use_cache).config.use_cache is use_cache


def test_a_language_model_is_causal_and_leaves_its_config_alone(language_variant):
    config = make_config(language_variant)
    assert config.is_causal == language_variant.always_causal
    model = AutoModelForCausalLM.from_config(config)
    assert model.config.is_causal
    assert model.model.config is model.config
    assert config.is_causal == language_variant.always_causal


def hand_written_loss(model, text) -> torch.Tensor:
    """Every token but a sequence's last predicts the next, if that is labelled: the mean over all such tokens."""
    losses = []
    for row, labels in enumerate(text["labels"]):
        mask, inputs = text["attention_mask"][row].bool(), tokens_of(text, row)
        output = model(**{name: value for name, value in inputs.items() if name != "labels"})
        log_probabilities = output.logits[0].log_softmax(-1)
        for place, label in enumerate(labels[mask][1:].tolist()):
            if label != -100:
                losses.append(-log_probabilities[place, label])
    return torch.stack(losses).mean()


def test_loss_is_the_mean_over_labelled_tokens(language_model, language_variant, text):
    if "depth_objective" in language_variant.fields:
        pytest.skip("other losses have a twin in test_depth_objectives.py")
    # rows are padded on the left, so the first token of each comes after padding
    first = text["attention_mask"].argmax(-1)
    text["labels"][torch.arange(4), first] = text["input_ids"][torch.arange(4), first]
    with torch.no_grad():
        expected = hand_written_loss(language_model, text)
        shifted = F.pad(text["labels"][:, 1:], (0, 1), value=-100)
        inputs = {name: value for name, value in text.items() if name != "labels"}
        for batch in (text, right_padded(text), {**inputs, "shift_labels": shifted}):
            torch.testing.assert_close(language_model(**batch).loss, expected, rtol=1e-5, atol=1e-5)
        both = language_model(**inputs, labels=torch.full_like(shifted, 5), shift_labels=shifted)
        torch.testing.assert_close(both.loss, expected, rtol=1e-5, atol=1e-5)
        unlabelled = language_model(**inputs, labels=torch.full_like(shifted, -100))
        torch.testing.assert_close(unlabelled.loss, torch.tensor(0.0))


def test_outputs(language_model, text):
    with torch.no_grad():
        expected = language_model(**text, output_halting=True)
        values = language_model(**text, output_halting=True, return_dict=False)
        assert isinstance(values, tuple)
        assert_close(values, expected.to_tuple())
        assert expected.past_key_values is None
        del text["labels"]
        plain = language_model(**text, output_halting=True)
        assert plain.loss is None
        assert plain.aux_loss is None
        assert all(value.shape[0] == 4 for value in plain.values())
        last = language_model(**text, logits_to_keep=2).logits
        assert last.shape == (4, 2, VOCAB_SIZE)
        torch.testing.assert_close(last, plain.logits[:, -2:], rtol=0, atol=1e-4)


def test_shapes_of_halting(language_variant, language_model, text):
    with torch.no_grad():
        output = language_model(**text, output_halting=True, output_hidden_states=True)
    assert len(output.hidden_states) == STEPS + 1
    assert all(state.shape == (4, 14, 32) for state in output.hidden_states)
    if language_variant.fixed_layers:
        assert output.ponder_steps is None
        return
    assert output.ponder_steps.shape == (4, 14)
    assert torch.equal(output.ponder_steps < 0, text["attention_mask"] == 0)
    if language_variant.halts:
        assert output.ponder_cost.shape == (4,)
        assert output.halting_probabilities.shape == (4, 14, STEPS)


def test_embeddings_instead_of_ids(language_model, language_variant, text):
    embedded = {name: value for name, value in text.items() if name != "input_ids"}
    embedded["inputs_embeds"] = language_model.get_input_embeddings()(text["input_ids"]).detach()
    assert_same(compute(language_model, language_variant, embedded), compute(language_model, language_variant, text))


@pytest.mark.parametrize("name", ["gut", "tlb", "gut_token", "block_recurrent"])
def test_resized_vocabulary(name, tmp_path):
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    expected = model(**text).logits
    model.resize_token_embeddings(VOCAB_SIZE + 3)
    assert model.config.vocab_size == VOCAB_SIZE + 3
    assert model.get_output_embeddings().weight.shape == (VOCAB_SIZE + 3, 32)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == (name in TIED)
    assert_close(model(**text).logits[..., :VOCAB_SIZE], expected)
    text["input_ids"][0, 0] = text["labels"][0, 1] = VOCAB_SIZE + 2
    model.save_pretrained(tmp_path)
    loaded, problems = load(tmp_path)
    assert problems == {}
    assert_close(compute(loaded, variant, text), compute(model, variant, text))


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_half_precision_is_near(language_variant, language_model, text, tmp_path, dtype):
    language_model.save_pretrained(tmp_path)
    half, problems = load(tmp_path, dtype=dtype)
    assert problems == {}
    if language_variant.halts:
        assert {parameter.dtype for parameter in half.model.halting_head.parameters()} == {torch.float32}
        # at this threshold nothing halts, so that rounding cannot move a unit by a whole step
        language_model.config.halting_threshold = half.config.halting_threshold = 1.0
    expected = compute(language_model, language_variant, text)["logits"]
    actual = compute(half, language_variant, text)["logits"]
    assert actual.dtype is dtype
    with torch.autocast("cpu", dtype):
        autocast = compute(language_model, language_variant, text)["logits"]
        loss = language_model(**text).loss
    for logits in (actual, autocast):
        assert ((logits - expected).abs().max() / expected.abs().max()).item() < 0.25
        assert ((logits - expected).abs().mean() / expected.abs().mean()).item() < 0.05
    loss.backward()
    assert_finite_gradients(language_model)
    assert all(gradient.isfinite().all() for gradient in gradients(half.train(), text).values())


def test_features_are_single_states_whatever_pairs_are():
    """A config that reads sentences of pairs separately does so for heads of whole sequences alone."""
    variant = LANGUAGE_BY_NAME["gut"]
    fields = {"pair_encoding": "siamese", "exit_probe_size": 3, "exit_criterion": "probe", "exit_threshold": 0.5}
    model = AutoModelForCausalLM.from_config(make_config(variant, **fields)).eval()
    assert model.exit_probe(torch.zeros(2, model.config.hidden_size)).shape[0] == 2
    assert model(**make_text(variant)).logits.isfinite().all()


def test_training_moves_every_parameter(language_model, text):
    unused = {name for name, gradient in gradients(language_model.train(), text).items() if not gradient.any()}
    # pooling is for classifiers
    assert unused == {name for name, _ in language_model.named_parameters() if "memory_norm" in name}


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.slow
def test_gradient_checkpointing_changes_nothing(language_model, language_variant, text, use_cache, monkeypatch):
    if use_cache and language_variant.chunking == "count":
        pytest.skip("cannot be read in pieces")
    language_model.train()
    calls = recomputed_calls(language_model, monkeypatch)
    expected, num_calls = gradients(language_model, text, use_cache=use_cache), len(calls)
    values = compute(language_model, language_variant, text)
    calls.clear()
    language_model.gradient_checkpointing_enable()
    assert_same(gradients(language_model, text, use_cache=use_cache), expected)
    assert len(calls) == 2 * num_calls > 0, "the block was not recomputed"
    assert_same(compute(language_model, language_variant, text), values)
