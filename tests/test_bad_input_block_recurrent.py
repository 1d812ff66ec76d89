"""Bad input to Block-Recurrent Transformers, and the message of its error."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_recurrent import BlockRecurrentConfig
from hf_recurrent.models.block_recurrent.modeling_block_recurrent import BlockRecurrentModel
from support.block_models import KINDS, SMALL, make_block_model, make_rows

pytestmark = pytest.mark.architecture("block_recurrent")

MEMORY = KINDS["bucketed"]
WRONG_FIELDS = [
    ({"window_size": 0}, "`window_size` is 0: it must be at least 1"),
    ({"num_state_vectors": -1}, "`num_state_vectors` is -1: it must be at least 1"),
    ({"recurrent_layers": [3]}, r"`recurrent_layers` is \[3\]: layers are numbered from -3 to 2"),
    ({"recurrent_layers": [0, -4]}, r"`recurrent_layers` is \[0, -4\]: layers are numbered from -3 to 2"),
    ({"recurrent_layers": [2, -1]}, r"`recurrent_layers` is \[2, -1\]: a layer is named twice"),
    ({"recurrent_layers": 1}, "'recurrent_layers'"),
    ({"state_gate": "full"}, "`state_gate` is 'full': it must be one of .*'fixed', 'lstm'"),
    ({"state_update": "none"}, "`state_update` is 'none': it must be one of .*'dual', 'single', 'skip'"),
    ({"recurrent_layers": [], "feedback": True}, "`feedback` is True: there is no recurrent layer to attend to"),
    ({"recurrent_layers": [], "pooling": "states"}, "`pooling` is 'states': there are no recurrent layers: use 'end'"),
    ({"pooling": "last"}, "`pooling` is 'last': it must be one of .*"),
    ({"memory_layers": [1]}, r"`memory_layers` is \[1\]: layers \[1\] are recurrent already"),
    ({"memory_layers": [-2]}, r"`memory_layers` is \[-2\]: layers \[1\] are recurrent already"),
    (MEMORY | {"memory_layers": [5]}, r"`memory_layers` is \[5\]: layers are numbered from -3 to 2"),
    (MEMORY | {"memory_size": 8}, r"`memory_size` is 8: it must be a multiple of window_size \(3\)"),
    (MEMORY | {"memory_size": 0}, "`memory_size` is 0: it must be at least 1"),
    (MEMORY | {"num_neighbors": 0}, "`num_neighbors` is 0: it must be at least 1"),
    (MEMORY | {"num_neighbors": 4}, r"`num_neighbors` is 4: it must divide memory_size \(6\)"),
    (
        MEMORY | {"num_neighbors": 7, "memory_retrieval": "exact"},
        r"`num_neighbors` is 7: it must be at most memory_size \(6\)",
    ),
    ({"memory_retrieval": "nearest"}, "`memory_retrieval` is 'nearest': it must be one of .*'bucketed', 'exact'"),
    ({"relative_attention_num_buckets": 1}, "`relative_attention_num_buckets` is 1: it must be at least 2"),
    (
        {"relative_attention_max_distance": 2},
        r"`relative_attention_max_distance` is 2: it must be more than half the buckets \(2\)",
    ),
    ({"logit_divisor": "none"}, "`logit_divisor` is 'none': it must be one of .*'hidden_size', 'vocab_size', or "),
    ({"logit_divisor": 0}, "`logit_divisor` is 0: it must be one of .*'vocab_size', or at least 1"),
    ({"attention_scale": "squared"}, "`attention_scale` is 'squared': it must be one of .*'absolute', 'signed'"),
    ({"is_causal": False}, "`is_causal` is False: tokens see those before them only: leave it True"),
    ({"lm_head": "mlp"}, "`lm_head` is 'mlp': this architecture has a linear head"),
    ({"state_initializer_range": -0.1}, "`state_initializer_range` is -0.1: it must not be negative"),
    ({"state_initializer_range": float("inf")}, "`state_initializer_range` is inf"),
    ({"attention_scale_init": float("nan")}, "`attention_scale_init` is nan: it must be a finite number"),
    ({"state_gate_bias_init": float("-inf")}, "`state_gate_bias_init` is -inf: it must be a finite number"),
    ({"head_dim": 0}, "`head_dim` is 0: it must be at least 1"),
    ({"layer_norm_eps": 0.0}, "`layer_norm_eps` is 0.0: it must be positive"),
    ({"attention_dropout": 1.0}, r"`attention_dropout` is 1.0: it must lie in \[0, 1\)"),
    ({"head_dim": None, "hidden_size": 13}, r"`num_attention_heads` is 2: it must divide hidden_size \(13\)"),
    ({"window_sizes": 4}, "no field `window_sizes`: did you mean `window_size`"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS)
def test_wrong_config(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        BlockRecurrentConfig(**{**SMALL, **fields})


def test_memory_of_no_layer_is_not_looked_at():
    """Window sizes of models without memory are free."""
    config = BlockRecurrentConfig(**SMALL, memory_size=7)
    assert config.memory_indices == []


@pytest.mark.parametrize("implementation", ["flash_attention_2", "kernels-community/flash-attn2"])
def test_kernels_without_position_biases_are_refused(implementation):
    message = f"is '{implementation}', .* learned position biases: use 'sdpa' or 'eager', or 'flex_attention' on a GPU"
    model = make_block_model("fixed_skip")
    with pytest.raises(ValueError, match=message):
        model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match=message):
        BlockRecurrentModel._from_config(BlockRecurrentConfig(**SMALL), attn_implementation=implementation)


@pytest.mark.parametrize("option", [{"max_steps": 2}, {"halting_threshold": 0.5}])
def test_depth_is_fixed(option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name} is {value}: layers of this model are not shared"):
        make_block_model("feedback")(torch.ones(1, 4, dtype=torch.long), **option)


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
    torch.nn.init.constant_(model.model.recurrent_layers[-1].state_cell.attention_gate.forget_gate.bias, float("nan"))
    with torch.no_grad():
        cache = model(row[None, :2], use_cache=True).past_key_values
        with pytest.raises(ValueError, match=r"NaN.*: the weights or the inputs hold NaN or infinite values"):
            model(row[None, 2:], past_key_values=cache)
        assert cache.get_seq_length() == 2
        model(row[None, 2:3], past_key_values=cache)
        with pytest.raises(ValueError, match="NaN"):
            model(row[None, 3:4], past_key_values=cache)
    assert cache.get_seq_length() == 3
