"""What the readout attends to, and where steps are spent, against what the models themselves say."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from hf_recurrent.analysis.explain import readout
from hf_recurrent.analysis.explain.canvas import NotDrawableError, symbol_kind
from hf_recurrent.analysis.explain.explanation import explain_symbols
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer
from support.families import BY_NAME, LANGUAGE_BY_NAME, chunk_numbers, make_config, make_language_model, make_model
from support.symbols import pixel_tokenizer, texts_of
from support.tokenizer import make_tokenizer

WHOLE = ["ut", "ut_global", "gut", "gut_token", "gut_no_halt", "xpos_transformer", "ouro_recurrent", "huginn_recurrent"]
PAIRS = ["ut_siamese", "gut_siamese", "xpos_transformer_siamese"]
CHUNKED = ["tlb", "tlb_balanced", "gutlb", "gutlb_token", "gutlb_count", "gutlb_siamese"]


@pytest.fixture(scope="module")
def tokenizer():
    return pixel_tokenizer()


def sentences_of(inputs):
    """The columns of each text, special tokens included."""
    types = inputs["token_type_ids"][0]
    return [torch.nonzero(types == text).squeeze(-1).numpy() for text in range(int(types.max()) + 1)]


def outputs_of(model, inputs):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, output_attentions=True, output_halting=True)


@pytest.mark.parametrize("name", WHOLE + PAIRS)
def test_attention_is_that_of_the_models_own_maps(name, tokenizer):
    model = make_model(BY_NAME[name])
    pooling = model.config.pooling
    before = model.config._attn_implementation, getattr(model.config, "compaction", None)
    found = explain_symbols(model.train(), tokenizer, *texts_of(name))
    assert model.training
    assert (model.config._attn_implementation, getattr(model.config, "compaction", None)) == before
    inputs = tokenizer(*texts_of(name), return_tensors="pt")
    outputs = outputs_of(model.eval(), inputs)
    stages = len(outputs.attentions) if found.steps is None else found.num_steps
    assert len(found.reads) == stages
    assert found.stage == ("layer" if name.startswith("xpos") else "step")
    sums = []
    for number, own in enumerate(sentences_of(inputs)):
        for stage in range(stages):
            maps = outputs.attentions[stage][number, :, : len(own), : len(own)].mean(0).numpy()
            rows = {"mean": np.arange(len(own)), "end": [len(own) - 1], "cls": [0]}[pooling]
            if found.steps is not None:
                rows = [row for row in rows if found.steps[own[row]] > stage]
            if len(rows) == 0:
                assert np.isnan(found.reads[stage, own]).all()
                continue
            np.testing.assert_allclose(found.reads[stage, own], maps[rows].mean(0), atol=1e-6)
            sums.append(found.reads[stage, own].sum())
        np.testing.assert_allclose(found.relative[:, own], found.reads[:, own] * len(own))
    np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.parametrize("name", CHUNKED)
def test_memory_reads_are_those_that_write_it(name, tokenizer):
    variant, model = BY_NAME[name], make_model(BY_NAME[name])
    found = explain_symbols(model, tokenizer, *texts_of(name))
    inputs = tokenizer(*texts_of(name), return_tensors="pt")
    layers = model.model.memory_layers
    assert found.stage == "memory layer"
    assert found.reads.shape == (len(layers), inputs["input_ids"].shape[1])
    model.set_attn_implementation("eager")
    first = 0
    for own in sentences_of(inputs):
        weights = [[] for _ in layers]
        hooks = [
            layer.attention.register_forward_hook(lambda module, given, made, kept=kept: kept.append(made[1][0]))
            for layer, kept in zip(layers, weights, strict=True)
        ]
        with torch.no_grad():
            model.model(inputs["input_ids"][:, own])
        for hook in hooks:
            hook.remove()
        chunk = chunk_numbers(variant, torch.ones(1, len(own), dtype=torch.long))[0].numpy()
        assert len(weights[0]) == chunk.max() + 1 > 2
        assert (found.chunks[own] == first + chunk).all()
        first += chunk.max() + 1
        for number in range(chunk.max() + 1):
            columns = own[chunk == number]
            np.testing.assert_allclose(found.relative[:, columns], found.reads[:, columns] * len(columns))
            for layer, kept in enumerate(weights):
                expected = kept[number].mean((0, 1))[: len(columns)].numpy()
                np.testing.assert_allclose(found.reads[layer, columns], expected, atol=1e-6)
                assert found.reads[layer, columns].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ut", "token"),
        ("gut", "row"),
        ("gut_siamese", "sentence"),
        ("gutlb", "chunk"),
        ("gutlb_token", "token"),
        ("tlb", None),
        ("ndr_act", "token"),
        ("sut", "token"),
    ],
)
def test_what_halts_and_whether_its_attention_is_known(name, unit, tokenizer):
    found = explain_symbols(make_model(BY_NAME[name]), tokenizer, *texts_of(name))
    assert found.unit == unit
    assert (found.steps is None) == (found.halting is None) == (unit is None)
    assert (found.reads is None) == (found.reader is None) == (name in ("ndr_act", "sut"))


def test_long_rows_are_read_block_by_block(tokenizer, monkeypatch):
    model = make_model(BY_NAME["ut"])
    whole = explain_symbols(model, tokenizer, *texts_of("ut"))
    monkeypatch.setattr(readout, "QUERIES", 3)
    parts = explain_symbols(model, tokenizer, *texts_of("ut"))
    np.testing.assert_allclose(parts.reads, whole.reads, atol=1e-7)


def test_a_causal_classifier_attends_to_what_came_before(tokenizer):
    model = make_model(BY_NAME["xpos_transformer"], is_causal=True, pooling="mean")
    found = explain_symbols(model, tokenizer, *texts_of("ut"))
    outputs = outputs_of(model, tokenizer(*texts_of("ut"), return_tensors="pt"))
    expected = torch.stack(outputs.attentions)[:, 0].mean((1, 2)).numpy()
    np.testing.assert_allclose(found.reads, expected, atol=1e-6)
    assert expected[0, 0] > 3 * expected[0, -1]


def test_kinds_of_tokenizers(tokenizer):
    assert symbol_kind(tokenizer) == "pixels"
    assert symbol_kind(framed_byte_tokenizer()) == "bytes"
    assert symbol_kind(make_tokenizer()) is None
    with pytest.raises(NotDrawableError, match="neither numbers, the values of pixels, nor the 256 bytes"):
        explain_symbols(make_model(BY_NAME["ut"]), make_tokenizer(), "w4 w5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3 4 5", r"5 pixels, which make no square: pass 2 x 2 = 4 or 3 x 3 = 9 of them"),
        ("7", "1 pixels, which make no square"),
        ("1 2 3 255", "word 4 of it, '255' at character 7, is not in the vocabulary"),
        ("", "there is no word in it"),
    ],
)
def test_texts_that_are_no_picture(text, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        explain_symbols(make_model(BY_NAME["ut"]), tokenizer, text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_model(BY_NAME["rnn_lstm"]), "architecture .rnn., of whose depth and attention there is nothing"),
        (lambda: make_language_model(LANGUAGE_BY_NAME["ut"]), "only what a classifier reads is drawn"),
        (lambda: AutoModel.from_config(make_config(BY_NAME["ut"])), "only what a classifier reads is drawn"),
    ],
)
def test_models_of_which_there_is_nothing_to_draw(make, message, tokenizer):
    with pytest.raises(NotDrawableError, match=message):
        explain_symbols(make(), tokenizer, *texts_of("ut"))
