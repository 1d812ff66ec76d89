"""Bad input to Sparse Universal Transformers, and the message of its error."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import DynamicCache

from hf_recurrent.models.sut.configuration_sut import SUTConfig
from hf_recurrent.models.sut.modeling_sut import (
    SUTForCausalLM,
    SUTForConditionalGeneration,
    SUTForSequenceClassification,
    SUTModel,
)
from support.sut_models import SMALL, make_rows, make_sut

pytestmark = pytest.mark.architecture("sut")

BOTH = {**SMALL, "is_encoder_decoder": True}
WRONG_FIELDS = [
    (
        {"attention_experts_per_token": 5},
        r"`attention_experts_per_token` is 5: a token cannot use more .*\(attention_experts is 4\)",
    ),
    (
        {"attention_router_samples": 3},
        "`attention_router_samples` is 3: it must be at most attention_experts_per_token .2",
    ),
    ({"hidden_size": 7}, "`hidden_size` is 7: sinusoids come in pairs, .*or set absolute_positions=False"),
    ({"relative_attention_num_buckets": 3}, "`relative_attention_num_buckets` is 3: it must be even and at least 4"),
    ({"relative_attention_max_distance": 2}, r"`relative_attention_max_distance` is 2: .*half the buckets \(2\)"),
    ({"halting": "global"}, "`halting` is 'global': it must be 'token' or 'none'"),
    ({"decoder_start_token_id": 13}, r"`decoder_start_token_id` is 13: it must be in \[0, 13\)"),
    ({"is_encoder_decoder": True, "is_causal": True}, "`is_causal` is True: an encoder sees all of its source"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS)
def test_wrong_config(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        SUTConfig(**{**SMALL, **fields})


def test_sizes_that_a_kernel_does_not_take():
    fields = {**SMALL, "hidden_size": 6}
    message = (
        r"'grouped_mm' but hidden_size, intermediate_size and num_attention_heads \* head_dim are \(6, 12, 8\): in "
        r"torch.float32 its kernel needs multiples of 4; change the sizes, or use 'eager' or 'batched_mm'"
    )
    with pytest.raises(ValueError, match=message):
        SUTModel._from_config(SUTConfig(**fields), experts_implementation="grouped_mm")
    model = SUTModel(SUTConfig(**fields))
    assert model.config._experts_implementation == "eager"
    with pytest.raises(ValueError, match=message):
        model.set_experts_implementation("grouped_mm")
    assert model.config._experts_implementation == "eager"
    with pytest.raises(ValueError, match='experts_implementation="fast"` is not supported'):
        model.set_experts_implementation("fast")
    assert SUTModel(SUTConfig(**SMALL)).config._experts_implementation == "grouped_mm"


def test_heads_and_stacks():
    for head in (SUTForSequenceClassification, SUTForCausalLM):
        with pytest.raises(ValueError, match=f"`is_encoder_decoder` is True but {head.__name__} has one stack"):
            head(SUTConfig(**BOTH))
    with pytest.raises(ValueError, match="`is_encoder_decoder` is False: SUTForConditionalGeneration needs a decoder"):
        SUTForConditionalGeneration(SUTConfig(**SMALL))


def both(**changes):
    return make_sut("plain", SUTForConditionalGeneration, **changes)


IDS = torch.tensor(make_rows([4, 4]))
MASK = torch.ones_like(IDS)
NO_SECOND = MASK * torch.tensor([[1], [0]])
SOURCE = {"input_ids": IDS, "attention_mask": MASK}
# mistake -> arguments, what the error says
WRONG_INPUTS = {
    "empty_target": (
        SOURCE | {"labels": IDS.masked_fill(NO_SECOND == 0, -100)},
        "`labels` row 1 is an empty target, all -100: drop the row, or give it at least the token that ends it",
    ),
    "no_target": (SOURCE, "neither `decoder_input_ids` nor `decoder_inputs_embeds` was passed: .*call generate"),
    "no_source": ({"decoder_input_ids": IDS}, "pass exactly one of `input_ids` and `inputs_embeds`"),
    "source_of_padding": (
        {"input_ids": IDS, "attention_mask": NO_SECOND, "labels": IDS},
        "`attention_mask` row 1 is all padding: drop the row or give it a token",
    ),
    "encoded_source_of_padding": (
        {"encoder_outputs": (torch.ones(2, 4, 8),), "attention_mask": NO_SECOND, "labels": IDS},
        "`attention_mask` row 1 is all padding: drop the row or give it a source",
    ),
    "narrow_mask_of_states": (
        {"encoder_outputs": (torch.ones(2, 4, 8),), "attention_mask": MASK[:, 1:], "labels": IDS},
        r"`attention_mask` has shape \(2, 3\) but the encoder's states have \(2, 4\)",
    ),
    "narrow_target_mask": (
        SOURCE | {"decoder_input_ids": IDS, "decoder_attention_mask": MASK[:, 1:]},
        r"`decoder_attention_mask` has shape \(2, 3\) but the inputs have \(2, 4\)",
    ),
    "other_rows": (
        {"encoder_outputs": (torch.ones(3, 4, 8),), "labels": IDS},
        r"`encoder_outputs` has states of shape \(3, 4\) but the target has 2 sequences",
    ),
    "other_width": (
        {"encoder_outputs": (torch.ones(2, 4, 6),), "labels": IDS},
        r"`encoder_outputs` is 6 wide: pass a floating-point tensor \(batch, tokens, 8\)",
    ),
    "labels_of_other_columns": (
        SOURCE | {"decoder_input_ids": IDS, "labels": IDS[:, 1:]},
        r"`labels` has shape \(2, 3\): expected \(2, 4\), one id or -100",
    ),
    "label_too_large": (
        SOURCE | {"labels": IDS + 13},
        "`labels` holds ids from .* but `config.vocab_size` is 13: pass token ids, or -100",
    ),
    "foreign_cache": (
        SOURCE | {"decoder_input_ids": IDS, "past_key_values": DynamicCache()},
        r"`past_key_values` is a DynamicCache: pass what this model returned, or model.new_cache",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_INPUTS)
def test_wrong_input(mistake):
    arguments, message = WRONG_INPUTS[mistake]
    arguments = {
        name: (value[0].double(),) if name == "encoder_outputs" else value for name, value in arguments.items()
    }
    with pytest.raises(ValueError, match=message):
        both()(**arguments)


def test_sources_of_padding_are_not_translated():
    with pytest.raises(ValueError, match="`attention_mask` row 1 is all padding"):
        both().generate(IDS, attention_mask=NO_SECOND, max_new_tokens=2)


def test_caches_of_other_models_and_sources_are_refused():
    model, text = both(), make_sut("plain", SUTForCausalLM)
    target = SOURCE | {"decoder_input_ids": IDS}
    cache = model(**target, use_cache=True).past_key_values
    for other, message in (
        (both(num_attention_heads=1)(**target, use_cache=True), r"sut \(1 heads of 4, width 8\), reading an encoder"),
        (text(IDS, use_cache=True), r"sut \(2 heads of 4, width 8\) but this model is .*reading an encoder: start a"),
    ):
        with pytest.raises(ValueError, match=f"`past_key_values` was made for {message}"):
            model(**target, past_key_values=other.past_key_values)
    with pytest.raises(ValueError, match="reading an encoder but this model is sut"):
        text(IDS, past_key_values=cache)
    with pytest.raises(ValueError, match="states of 3 tokens but `past_key_values` was filled from a source of 4"):
        model(input_ids=IDS[:, 1:], decoder_input_ids=IDS, past_key_values=cache)
    with pytest.raises(ValueError, match="`past_key_values` holds 2 sequences but the inputs have 1"):
        model(input_ids=IDS[:1], decoder_input_ids=IDS[:1], past_key_values=cache)
    shallow = model.model.new_cache(max_depth=2)
    with pytest.raises(ValueError, match="max_depth is 3 but `past_key_values` has room for 2 steps"):
        model(**target, past_key_values=shallow, max_depth=3)
    assert cache.get_seq_length() == 4


def test_options_that_are_not_there():
    model = make_sut("never_halts", SUTForConditionalGeneration)
    with pytest.raises(ValueError, match=r"halting_threshold is 0\.5: this model never halts"):
        model(**SOURCE, labels=IDS, halting_threshold=0.5)
    with pytest.raises(ValueError, match="`encoder_hidden_states` is missing: this decoder reads an encoder"):
        model.model.decoder(IDS)
    model.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="`decoder_start_token_id` is None: set it to the id a decoder starts with"):
        model(**SOURCE, labels=IDS)


@pytest.mark.parametrize("parameter", ["encoder.block.experts.up_proj", "decoder.block.router.hidden.weight"])
def test_nan_weights(parameter):
    model = both()
    torch.nn.init.constant_(model.model.get_parameter(parameter), float("nan"))
    with pytest.raises(ValueError, match=r"NaN.*: the weights or the inputs hold NaN or infinite values"):
        model(**SOURCE, labels=IDS)
