"""What the readout attends to, and where steps are spent, against what the models themselves say."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_recurrent.analysis.explain import explain
from hf_recurrent.analysis.explain.explanation import pixel_values
from hf_recurrent.benchmarks.tokenizers import framed_byte_tokenizer
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_language_model, make_model
from support.symbols import BRIGHTEST, picture, pixel_tokenizer, spelled, texts_of
from support.tokenizer import make_tokenizer

WHOLE = ["ut", "ut_global", "gut", "gut_token", "gut_no_halt", "xpos_transformer", "ouro_recurrent", "huginn_recurrent"]
PAIRS = ["ut_siamese", "gut_siamese", "xpos_transformer_siamese"]


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
    found = explain(model.train(), tokenizer, *texts_of(name))
    assert model.training
    assert (model.config._attn_implementation, getattr(model.config, "compaction", None)) == before
    inputs = tokenizer(*texts_of(name), return_tensors="pt")
    outputs = outputs_of(model.eval(), inputs)
    stages = len(found.reads)
    assert stages == len(outputs.attentions)
    assert found.stage == ("layer" if name.startswith("xpos") else "step")
    sums, reads = [], found.reads
    for number, own in enumerate(sentences_of(inputs)):
        for stage in range(stages):
            maps = outputs.attentions[stage][number, :, : len(own), : len(own)].mean(0).numpy()
            rows = {"mean": np.arange(len(own)), "end": [len(own) - 1], "cls": [0]}[pooling]
            if found.steps is not None:
                rows = [row for row in rows if found.steps[own[row]] > stage]
            if len(rows) == 0:
                assert np.isnan(reads[stage, own]).all()
                continue
            # 1 is an even share
            np.testing.assert_allclose(reads[stage, own] / len(own), maps[rows].mean(0), atol=1e-6)
            sums.append(reads[stage, own].mean())
    np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.parametrize("name", ["ut", "gut", "gut_siamese", "gutlb", "gutlb_token", "tlb", "ndr_act", "sut"])
def test_what_is_read_out(name, tokenizer):
    found = explain(make_model(BY_NAME[name]), tokenizer, *texts_of(name))
    assert (found.steps is None) == (found.halting is None) == (not BY_NAME[name].halts)
    # a memory is read out, rather than tokens
    assert found.readers.any() == (BY_NAME[name].chunked is False)
    pixels = [picture(0).tolist(), *([picture(1, 3).tolist()] if BY_NAME[name].siamese else [])]
    assert [each.values.tolist() for each in found.pictures] == pixels


def test_a_causal_classifier_attends_to_what_came_before(tokenizer):
    model = make_model(BY_NAME["xpos_transformer"], is_causal=True, pooling="mean")
    found = explain(model, tokenizer, *texts_of("ut"))
    outputs = outputs_of(model, tokenizer(*texts_of("ut"), return_tensors="pt"))
    expected = torch.stack(outputs.attentions)[:, 0].mean((1, 2)).numpy()
    np.testing.assert_allclose(found.reads / len(found.tokens), expected, atol=1e-6)
    assert expected[0, 0] > 3 * expected[0, -1]


def test_pixels_are_numbers_of_more_values_than_digits(tokenizer):
    assert sorted(pixel_values(tokenizer).values()) == list(range(BRIGHTEST + 1))
    assert pixel_values(framed_byte_tokenizer()) == pixel_values(make_tokenizer()) == {}
    digits = Tokenizer(models.WordLevel({"[UNK]": 0, **{str(digit): digit + 1 for digit in range(10)}}))
    assert pixel_values(PreTrainedTokenizerFast(tokenizer_object=digits, unk_token="[UNK]")) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3 4 5", r"5 pixels, which make no square: pass 4 or 9 of them"),
        ("7", "1 pixels, which make no square"),
        ("1 2 3 255", "word 4 of it, '255' at character 7, is not in the vocabulary"),
        ("", "there is no word in it"),
    ],
)
def test_texts_that_are_no_picture(text, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        explain(make_model(BY_NAME["ut"]), tokenizer, text)


def test_other_models_read_no_pictures(tokenizer):
    found = explain(make_language_model(LANGUAGE_BY_NAME["ut"]), tokenizer, spelled(picture()))
    assert (found.pictures, found.readout) == ((), len(found.tokens) - 1)
    assert explain(make_model(BY_NAME["ut"]), make_tokenizer(), "w4 w5 w6 w7").pictures == ()
