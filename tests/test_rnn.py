"""Recurrent baselines alone: cells, readouts, states as caches, graphs and how they start."""

import math

import pytest
import torch

from hf_recurrent.models.rnn.configuration_rnn import RNNConfig
from hf_recurrent.models.rnn.modeling_rnn import RNNForCausalLM, RNNForSequenceClassification, RNNModel
from support.compare import assert_close, recomputed_calls

pytestmark = pytest.mark.architecture("rnn")

VOCAB_SIZE = 24
CELLS = ("lstm", "bilstm", "dnc")
CAUSAL = ("lstm", "dnc")
cells = pytest.mark.parametrize("cell", CELLS)
causal_cells = pytest.mark.parametrize("cell", CAUSAL)
# a row with padding at every place, one with none, one with a single token
MASK = torch.tensor([[0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0]]).bool()


def config_of(cell: str, **changes) -> RNNConfig:
    fields = {
        "hidden_size": 8,
        "embedding_size": 6,
        "num_hidden_layers": 2,
        "num_memory_cells": 4,
        "memory_cell_size": 5,
        "num_read_heads": 2,
        "vocab_size": VOCAB_SIZE,
        "num_labels": 3,
        "dropout": 0.0,
        # rows must not end while they are generated
        "eos_token_id": None,
    }
    return RNNConfig(cell=cell, **{**fields, **changes})


def model_of(cell: str, model_class=RNNModel, **changes):
    return model_class(config_of(cell, **changes)).eval()


def rows_of(mask: torch.Tensor = MASK) -> torch.Tensor:
    return torch.randint(4, VOCAB_SIZE, mask.shape)


def torch_lstm(model: RNNModel) -> torch.nn.LSTM:
    """torch's own stacked LSTM with the model's weights."""
    config = model.config
    bidirectional = config.cell == "bilstm"
    width = config.hidden_size // (2 if bidirectional else 1)
    lstm = torch.nn.LSTM(
        config.embedding_size, width, config.num_hidden_layers, batch_first=True, bidirectional=bidirectional
    )
    for name, parameter in lstm.named_parameters():
        parts = name.split("_")
        layer, direction = int(parts[2][1:]), "_reverse" if name.endswith("_reverse") else ""
        own = f"layers.{layer}.lstm.{parts[0]}_{parts[1]}_l0{direction}"
        parameter.data.copy_(model.get_parameter(own))
    return lstm


@pytest.mark.parametrize("cell", ["lstm", "bilstm"])
def test_rows_are_what_torch_makes_of_them(cell):
    model, ids = model_of(cell), rows_of()
    output, lstm = model(ids, MASK), torch_lstm(model)
    assert not output.last_hidden_state[~MASK].any()
    for row, valid in enumerate(MASK):
        states, (hidden, _) = lstm(model.embed_tokens(ids[row, valid])[None])
        torch.testing.assert_close(output.last_hidden_state[row, valid], states[0], rtol=0, atol=1e-6)
        # where the last layer ends, in either direction
        final = hidden[-2:].flatten() if cell == "bilstm" else hidden[-1, 0]
        torch.testing.assert_close(output.pooler_output[row], final, rtol=0, atol=1e-6)


@cells
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_without_padding(cell, dtype):
    """torch then takes another kernel than for rows of different lengths."""
    model, ids = model_of(cell), rows_of()
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        with torch.autocast("cpu", dtype):
            actual = model(ids).last_hidden_state
    assert_close(actual.float(), expected, 0.05)


@cells
def test_autocast_leaves_float64_alone(cell):
    model, ids = model_of(cell).double(), rows_of()
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        with torch.autocast("cpu", torch.bfloat16):
            actual = model(ids).last_hidden_state
    assert actual.dtype is torch.float64
    assert_close(actual, expected, 1e-12)


@cells
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_other_readouts(cell, pooling):
    output = model_of(cell, pooling=pooling)(rows_of(), MASK)
    for row, valid in enumerate(MASK):
        states = output.last_hidden_state[row, valid]
        expected = states.mean(0) if pooling == "mean" else states[0]
        torch.testing.assert_close(output.pooler_output[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "bilstm"])
def test_unrolled_layers_are_the_fused_ones(cell):
    """Traced graphs compute the same as torch's kernel, with gradients."""
    layer = model_of(cell).layers[0].lstm.double()
    front = MASK.sort(dim=-1, descending=True, stable=True).values
    states = torch.randn(3, 6, 6, dtype=torch.float64, requires_grad=True)
    results = []
    for lengths in (front.sum(-1), None):
        outputs, final = layer(states, front, lengths, {})
        loss = outputs[front].sin().sum() + (final["cell"].sin().sum() if cell == "lstm" else 0.0)
        gradients = torch.autograd.grad(loss, [states, *layer.parameters()])
        results.append([outputs[front], *final.values(), *gradients])
    for fused, unrolled in zip(*results, strict=True):
        torch.testing.assert_close(unrolled, fused)


def test_dropout_is_behind_embeddings_and_between_layers():
    model = model_of("lstm", dropout=0.9).train()
    seen = {}
    for index, layer in enumerate(model.layers):
        layer.lstm.register_forward_pre_hook(lambda _, args, index=index: seen.update({index: args[0]}))
    output = model(rows_of().repeat(20, 1)).last_hidden_state
    for states in seen.values():
        assert 0.7 < (states == 0).float().mean() < 1
    assert (output != 0).all()


def test_reads_of_the_memory():
    model, ids = model_of("dnc"), rows_of()
    output = model(ids, MASK, output_attentions=True)
    assert output.attentions is None
    (reads,) = output.read_attentions
    assert reads.shape == (3, 2, 6, 4)
    assert (reads >= 0).all()
    assert (reads.sum(-1) <= 1 + 1e-5).all()
    last = model(ids[1:2, :5], output_attentions=True).read_attentions[0]
    torch.testing.assert_close(reads[1:2, :, :5], last)
    assert model(ids, MASK).read_attentions is None


@causal_cells
def test_caches_do_not_grow_and_cannot_be_cropped(cell):
    model, ids = model_of(cell, RNNForCausalLM), torch.randint(4, VOCAB_SIZE, (2, 9))
    cache = model(ids[:, :4], use_cache=True).past_key_values

    def values():
        return {name: tensor for layer in cache.layers for name, tensor in layer.tensors.items()}

    before = values()
    cache.crop(0)
    with pytest.raises(ValueError, match=r"crop\(-1\): a recurrent state holds no single tokens"):
        cache.crop(-1)
    with pytest.raises(ValueError, match=r"crop\(2\): pass how many tokens to remove, as a negative number"):
        cache.crop(2)
    assert cache.get_seq_length() == 4
    model(ids[:, 4:], past_key_values=cache)
    assert {name: value.shape for name, value in values().items()} == {n: v.shape for n, v in before.items()}
    assert cache.get_seq_length() == 9
    cache.reset()
    assert (cache.num_rows, cache.get_seq_length()) == (None, 0)


def test_caches_know_their_model():
    caches = {cell: model_of(cell, RNNForCausalLM).model.new_cache() for cell in CAUSAL}
    model, ids = model_of("lstm", RNNForCausalLM), torch.full((1, 3), 7)
    with pytest.raises(
        ValueError, match=r"made for rnn \(dnc, .*4 cells of 5.* but this model is rnn \(lstm, 2 layers"
    ):
        model(ids, past_key_values=caches["dnc"])
    other = model_of("lstm", RNNForCausalLM, num_hidden_layers=1).model.new_cache()
    with pytest.raises(ValueError, match=r"made for rnn \(lstm, 1 layers"):
        model(ids, past_key_values=other)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
def test_checkpointing_runs_every_layer_again(monkeypatch):
    model, ids = model_of("lstm").train(), rows_of()
    calls = recomputed_calls(model, monkeypatch)
    gradients = {}
    for enabled in (False, True):
        if enabled:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        calls.clear()
        model(ids, MASK).last_hidden_state.square().sum().backward()
        assert len(calls) == 2 * (1 + enabled)
        gradients[enabled] = [parameter.grad.clone() for parameter in model.parameters()]
    assert_close(gradients[True], gradients[False])


def test_defaults_are_the_papers_rows():
    config = RNNConfig()
    assert (config.hidden_size, config.embedding_size, config.num_hidden_layers, config.dropout) == (200, 16, 1, 0.5)
    assert RNNModel(RNNConfig(cell="bilstm")).layers[0].lstm.hidden_size == 100
    dnc = RNNModel(RNNConfig(cell="dnc")).dnc
    state = dnc.initial_state(torch.zeros(1, 1, 1))
    assert state.slots.shape == (1, 21, 200)
    assert state.read_vectors.shape == (1, 4, 200)
    assert RNNConfig(hidden_size=48, embedding_size=None).embedding_size == 48


def test_layers_start_as_torchs_and_padding_is_the_tokenizers():
    model = RNNForSequenceClassification(config_of("lstm", hidden_size=64, num_hidden_layers=1))
    for name, parameter in model.model.layers.named_parameters():
        assert 0.9 / math.sqrt(64) < parameter.abs().max() <= 1 / math.sqrt(64), name
    table = model.get_input_embeddings()
    assert table.padding_idx == 0
    # the authors freeze token 1
    assert table.weight[1].std() > 0.3
    output = model(torch.full((1, 3), 1), labels=torch.tensor([0]))
    output.loss.backward()
    assert table.weight.grad[1].any()


def test_layers_missing_from_a_checkpoint_start_as_in_training(tmp_path):
    model_of("lstm", num_hidden_layers=1).save_pretrained(tmp_path)
    model, report = RNNModel.from_pretrained(tmp_path, num_hidden_layers=2, output_loading_info=True)
    assert len(report["missing_keys"]) == 4
    for name, parameter in model.layers[1].named_parameters():
        assert 0.6 / math.sqrt(8) < parameter.abs().max() <= 1 / math.sqrt(8), name


@cells
def test_embeddings_of_another_width_are_refused(cell):
    # the fused kernel would read memory that is not theirs
    with pytest.raises(
        ValueError, match=r"`inputs_embeds` is 3 wide: pass a floating-point tensor \(batch, tokens, 6\)"
    ):
        model_of(cell)(inputs_embeds=torch.randn(2, 4, 3))
