"""What `explain` says of a pass, against what the models themselves return."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig

from hf_recurrent.analysis.explain import MAX_TOKENS, explain
from support.families import BY_NAME, LANGUAGE_BY_NAME, STEPS, make_config, make_language_model, make_model, per_token
from support.token_heads import TOKENS, make_head
from support.tokenizer import make_tokenizer

TEXT, PAIR = "w4 w9 w5 w21 w6 w4", "w7 w7 w12"
EVERYTHING = {"output_attentions": True, "output_gates": True, "output_halting": True}
SINGLE = [name for name, variant in BY_NAME.items() if variant.maps_rows and not variant.siamese]
SIAMESE = [name for name, variant in BY_NAME.items() if variant.maps_rows and variant.siamese]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def outputs_of(model, inputs, **options):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, **EVERYTHING, **options)


@pytest.mark.parametrize("name", SINGLE)
def test_it_is_the_models_own_pass(name, tokenizer):
    variant = BY_NAME[name]
    model = make_model(variant)
    before = model.config._attn_implementation
    found = explain(model.train(), tokenizer, TEXT)
    assert model.training
    assert model.config._attn_implementation == before == variant.implementations[0]
    inputs = tokenizer(TEXT, return_tensors="pt")
    outputs = outputs_of(model.eval(), inputs)
    assert found.tokens == ["[BOS]", *TEXT.split(), "[EOS]"]
    expected = torch.stack(outputs.attentions)[:, 0].numpy()
    heads = 2 * (variant.experts_per_token or 1) * variant.layers_per_step
    assert found.attention.shape == (len(expected), heads, 8, 8)
    np.testing.assert_allclose(found.attention, expected, atol=1e-6)
    assert (found.gates is not None) == variant.gated
    if variant.gated:
        np.testing.assert_allclose(found.gates, torch.stack(outputs.gates)[:, 0].mean(-1).numpy(), atol=1e-6)
    shares = outputs.logits[0].softmax(-1)
    assert found.prediction == model.config.id2label[int(shares.argmax())]
    assert found.probability == pytest.approx(shares.max().item())
    assert not found.predicts_next
    assert found.readout == {"end": 7, "cls": 0}.get(model.config.pooling)
    if not variant.halts:
        assert found.steps is None
        assert found.halting is None
        assert found.num_steps == len(expected)
        return
    steps = per_token(variant, outputs.ponder_steps, inputs["attention_mask"])[0]
    assert found.steps.tolist() == steps.tolist()
    assert found.num_steps == max(1, steps.max())
    for step in range(STEPS):
        halting = per_token(variant, outputs.halting_probabilities[..., step], inputs["attention_mask"])[0]
        np.testing.assert_allclose(found.halting[step], halting.numpy(), atol=1e-6)
    assert found.freezes == (not variant.act)


@pytest.mark.parametrize("name", SIAMESE)
def test_sentences_of_a_pair_stay_apart(name, tokenizer):
    variant = BY_NAME[name]
    model = make_model(variant)
    found = explain(model, tokenizer, TEXT, PAIR)
    first, second = slice(0, 8), slice(8, 13)
    assert found.tokens[second] == ["[BOS]", *PAIR.split(), "[EOS]"]
    assert not found.attention[:, :, first, second].any()
    assert not found.attention[:, :, second, first].any()
    assert found.readout is None
    outputs = outputs_of(model, tokenizer(TEXT, PAIR, return_tensors="pt"))
    maps = torch.stack(outputs.attentions)
    np.testing.assert_allclose(found.attention[:, :, first, first], maps[:, 0].numpy(), atol=1e-6)
    np.testing.assert_allclose(found.attention[:, :, second, second], maps[:, 1, :, :5, :5].numpy(), atol=1e-6)
    if variant.gated:
        gates = torch.stack(outputs.gates).mean(-1)
        np.testing.assert_allclose(found.gates[:, second], gates[:, 1, :5].numpy(), atol=1e-6)
    if not variant.halts:
        return
    steps = outputs.ponder_steps[0]
    if variant.chunked:
        # chunks of four tokens
        expected = [*[steps[0, 0]] * 4, *[steps[0, 1]] * 4, *[steps[1, 0]] * 4, steps[1, 1]]
    elif variant.token_units:
        expected = steps
    else:
        expected = [*[steps[0]] * 8, *[steps[1]] * 5]
    assert found.steps.tolist() == [int(step) for step in expected]


@pytest.mark.parametrize("name", ["xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "ndr_act"])
def test_a_language_model_continues(name, tokenizer):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    found = explain(model, tokenizer, TEXT)
    logits = outputs_of(model, tokenizer(TEXT, return_tensors="pt")).logits[0, -1]
    assert found.predicts_next
    assert found.readout == 7
    assert found.prediction == tokenizer.convert_ids_to_tokens(int(logits.argmax()))
    assert found.probability == pytest.approx(logits.softmax(-1).max().item())
    assert not np.triu(found.attention, 1).any()


def test_steps_of_a_call(tokenizer):
    model = make_model(BY_NAME["ndr"])
    assert len(explain(model, tokenizer, TEXT, max_depth=STEPS + 5).attention) == STEPS + 5
    with pytest.raises(ValueError, match=r"max_depth is 7 but this model .* within 6"):
        explain(make_model(BY_NAME["ndr_act"]), tokenizer, TEXT, max_depth=7)
    with pytest.raises(ValueError, match="max_depth is 2: layers of this model are not shared"):
        explain(make_model(BY_NAME["tlb"]), tokenizer, TEXT, max_depth=2)


@pytest.mark.parametrize(
    ("name", "texts", "message"),
    [
        ("ndr", ("",), "text is '': there is no word in it"),
        ("ndr", (" \n",), "there is no word in it"),
        ("ndr", (None,), "text is None: pass a text"),
        ("ndr", ("w4 \udcff",), "surrogates not allowed"),
        ("ndr", ("w4 w5  x w6",), "text: word 3 of it, 'x' at character 8, is not in the vocabulary.*it knows w4 w5"),
        ("ndr", ("w4 [UNK]",), r"word 2 of it, '\[UNK\]'"),
        ("ndr_siamese", (TEXT,), "text_pair is missing"),
        ("ndr_siamese", (TEXT, "w4 w99"), "text_pair: word 2 of it, 'w99' at character 4"),
        ("ndr_siamese", (TEXT, ""), "text_pair is '': there is no word"),
        (
            "ndr",
            (" ".join(["w4"] * (MAX_TOKENS - 1)),),
            f"text has {MAX_TOKENS + 1} tokens.* pass at most",
        ),
    ],
)
def test_texts_that_cannot_be_read(name, texts, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        explain(make_model(BY_NAME[name]), tokenizer, *texts)


def bert():
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1}
    return AutoModelForSequenceClassification.from_config(BertConfig(**sizes, vocab_size=24))


@pytest.mark.parametrize(
    ("make", "pair", "message"),
    [
        (lambda: make_language_model(LANGUAGE_BY_NAME["ndr"]), PAIR, "a causal language model continues one text"),
        (lambda: AutoModel.from_config(make_config(BY_NAME["ndr"])), None, "NDRModel, which predicts nothing"),
        (lambda: make_head("gut", TOKENS), None, "which gives a text no single answer"),
        (bert, None, "model is of type 'bert': expected one of"),
        (lambda: make_model(BY_NAME["rnn_lstm"]), None, "architecture 'rnn', which has no attention between"),
    ],
)
def test_models_that_do_not_route(make, pair, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        explain(make(), tokenizer, TEXT, pair)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"num_labels": 1}, lambda scores: (f"{scores[0]:.4g}", None)),
        (
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            lambda scores: (
                " + ".join(f"LABEL_{label}" for label, score in enumerate(scores) if score > 0) or "(none)",
                scores.abs().sigmoid().prod().item(),
            ),
        ),
    ],
)
def test_other_kinds_of_predictions(fields, expected, tokenizer):
    model = AutoModelForSequenceClassification.from_config(make_config(BY_NAME["ndr"], **fields)).eval()
    found = explain(model, tokenizer, TEXT)
    name, share = expected(outputs_of(model, tokenizer(TEXT, return_tensors="pt")).logits[0])
    assert found.prediction == name
    assert found.probability == (share if share is None else pytest.approx(share))
