"""Bad input to recurrent baselines, and the message of its error."""

import pytest
from huggingface_hub.errors import StrictDataclassError

from hf_recurrent.models.rnn.modeling_rnn import RNNForCausalLM, RNNForSequenceClassification, RNNModel
from test_rnn import MASK, config_of, model_of, rows_of

pytestmark = pytest.mark.architecture("rnn")

WRONG_FIELDS = [
    ({"cell": "gru"}, "`cell` is 'gru': it must be 'lstm' or 'bilstm' or 'dnc'"),
    ({"cell": "bilstm", "hidden_size": 7}, "`hidden_size` is 7: a bilstm has two halves: make it even"),
    ({"cell": "bilstm", "is_causal": True}, "`cell` is 'bilstm': its states depend on later tokens"),
    ({"tie_word_embeddings": True}, "embeddings are 6 wide and states 8: make embedding_size equal"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS)
def test_wrong_config(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        config_of("lstm", **fields) if "cell" not in fields else config_of(**fields)


def test_a_bilstm_is_no_language_model():
    config = config_of("bilstm")
    with pytest.raises(ValueError, match="`cell` is 'bilstm': its states depend on later tokens"):
        RNNForCausalLM(config)
    assert not config.is_causal
    with pytest.raises(ValueError, match="only a causal model can read a row in pieces"):
        RNNModel(config)(rows_of(), use_cache=True)


@pytest.mark.parametrize("implementation", ["sdpa", "flash_attention_2", "flex_attention"])
def test_there_is_no_attention_to_implement(implementation):
    message = f"attn_implementation is '{implementation}' but a recurrent network has no attention: .* use 'eager'"
    model = model_of("lstm")
    assert model.config._attn_implementation == "eager"
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match=message):
        model.set_attn_implementation(implementation)
    with pytest.raises(ValueError, match=message):
        RNNForSequenceClassification._from_config(config_of("dnc"), attn_implementation=implementation)


@pytest.mark.parametrize("cell", ["lstm", "bilstm"])
def test_lstms_attend_to_nothing(cell):
    with pytest.raises(ValueError, match=f"output_attentions=True but cell='{cell}' has no attention"):
        model_of(cell)(rows_of(), MASK, output_attentions=True)
