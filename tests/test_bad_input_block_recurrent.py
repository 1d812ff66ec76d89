"""Bad input to Block-Recurrent Transformers, and the message of its error."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_recurrent import BlockRecurrentConfig
from support.block_models import KINDS, SMALL, make_block_model, make_rows

pytestmark = pytest.mark.architecture("block_recurrent")

MEMORY = KINDS["bucketed"]
WRONG_FIELDS = [
    ({"recurrent_layers": [3]}, r"`recurrent_layers` is \[3\]: layers are numbered from -3 to 2"),
    ({"recurrent_layers": [0, -4]}, r"`recurrent_layers` is \[0, -4\]: layers are numbered from -3 to 2"),
    ({"recurrent_layers": [2, -1]}, r"`recurrent_layers` is \[2, -1\]: a layer is named twice"),
    ({"recurrent_layers": 1}, "'recurrent_layers'"),
    ({"recurrent_layers": [], "feedback": True}, "`feedback` is True: there is no recurrent layer to attend to"),
    ({"recurrent_layers": [], "pooling": "states"}, "`pooling` is 'states': there are no recurrent layers: use 'end'"),
    ({"memory_layers": [1]}, r"`memory_layers` is \[1\]: layers \[1\] are recurrent already"),
    (MEMORY | {"memory_size": 8}, r"`memory_size` is 8: it must be a multiple of window_size \(3\)"),
    (MEMORY | {"num_neighbors": 4}, r"`num_neighbors` is 4: it must divide memory_size \(6\)"),
    (
        MEMORY | {"num_neighbors": 7, "memory_retrieval": "exact"},
        r"`num_neighbors` is 7: it must be at most memory_size \(6\)",
    ),
    (
        {"relative_attention_max_distance": 2},
        r"`relative_attention_max_distance` is 2: it must be more than half the buckets \(2\)",
    ),
    ({"logit_divisor": 0}, "`logit_divisor` is 0: it must be at least 1"),
    ({"is_causal": False}, "`is_causal` is False: tokens see those before them only: leave it True"),
    ({"lm_head": "mlp"}, "`lm_head` is 'mlp': this architecture has a linear head"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS)
def test_wrong_config(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        BlockRecurrentConfig(**{**SMALL, **fields})


def test_memory_of_no_layer_is_not_looked_at():
    """Window sizes of models without memory are free."""
    config = BlockRecurrentConfig(**SMALL, memory_size=7)
    assert config.memory_indices == []


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("fixed_skip", {"window_size": 4}, "windows of 4, .*but this model is .*windows of 3"),
        ("fixed_skip", {"num_state_vectors": 5}, "5 state vectors.*but this model is .*4 state vectors"),
        ("fixed_skip", {"recurrent_layers": [0]}, r"recurrent \[0\].*but this model is .*recurrent \[1\]"),
        ("bucketed", {"memory_size": 9}, r"with memory \[1\] of 9.*but this model is .*of 6"),
        ("slide", {"head_dim": 4}, "2 heads of 4.*but this model is .*2 heads of 5"),
    ],
)
def test_caches_of_other_models_are_refused(kind, change, message):
    model, other, (row,) = make_block_model(kind), make_block_model(kind, **change), make_rows([5])
    with torch.no_grad():
        cache = other(row[None], use_cache=True).past_key_values
        before = {name: tensor.clone() for name, tensor in cache.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            model(row[None], past_key_values=cache)
    assert all(torch.equal(tensor, before[name]) for name, tensor in cache.state_dict().items())


def test_windows_need_not_fill_segments():
    """A segment that is no multiple of the window, and one that is shorter, are read as any other."""
    model, (row,) = make_block_model("feedback"), make_rows([8])
    with torch.no_grad():
        whole = model(row[None]).logits
        first = model(row[None, :1], use_cache=True)
        second = model(row[None, 1:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat((first.logits, second.logits), dim=1), whole, rtol=0, atol=1e-9)


def test_states_that_are_not_numbers_are_named():
    """Also where they are made in a block that is complete, for tokens that come later."""
    model, (row,) = make_block_model("lstm_dual"), make_rows([9])
    torch.nn.init.constant_(
        model.model.layers[model.config.recurrent_indices[-1]].state_cell.attention_gate.forget_gate.bias, float("nan")
    )
    with torch.no_grad():
        cache = model(row[None, :2], use_cache=True).past_key_values
        with pytest.raises(ValueError, match=r"NaN.*: the weights or the inputs hold NaN or infinite values"):
            model(row[None, 2:], past_key_values=cache)
        assert cache.get_seq_length() == 2
        model(row[None, 2:3], past_key_values=cache)
        with pytest.raises(ValueError, match="NaN"):
            model(row[None, 3:4], past_key_values=cache)
    assert cache.get_seq_length() == 3
