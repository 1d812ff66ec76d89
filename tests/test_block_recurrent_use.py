"""Block-Recurrent Transformers in use: generation, caches of constant size, memory, gates, readouts and dropout."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hf_recurrent.models.block_recurrent.modeling_block_recurrent import BlockRecurrentForSequenceClassification
from support.block_models import make_block_model, make_rows, padded
from support.compare import assert_close

pytestmark = pytest.mark.architecture("block_recurrent")

TOLERANCE = 1e-9


def prompt(left: bool = True):
    ids, mask = padded(make_rows([1, 4, 7, 8]), [left] * 4)
    return {"input_ids": ids, "attention_mask": mask}


def whole(model, sequences: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Logits of sequences that go on from rows with this mask, read at once."""
    repeats = len(sequences) // len(mask)
    mask = mask.repeat_interleave(repeats, dim=0)
    mask = torch.cat((mask, mask.new_ones(len(mask), sequences.shape[1] - mask.shape[1])), dim=1)
    with torch.no_grad():
        return model(sequences, mask).logits


@pytest.mark.parametrize("kind", ["feedback_two_layers", "exact"])
@pytest.mark.parametrize(
    "options",
    [{"do_sample": False}, {"do_sample": True, "num_return_sequences": 3, "temperature": 2.0}],
    ids=["greedy", "sampling"],
)
def test_what_is_generated_is_what_the_whole_says(kind, options):
    model, inputs = make_block_model(kind), prompt()
    generated = model.generate(
        **inputs, **options, max_new_tokens=8, pad_token_id=0, return_dict_in_generate=True, output_logits=True
    )
    assert generated.sequences.shape[1] == 16
    expected = whole(model, generated.sequences, inputs["attention_mask"])[:, 7:-1]
    torch.testing.assert_close(torch.stack(generated.logits, dim=1).double(), expected, rtol=0, atol=1e-5)
    if not options["do_sample"]:
        assert torch.equal(generated.sequences[:, 8:], expected.argmax(-1))


def size_of(cache) -> int:
    """Bytes that it keeps in memory."""
    storages = [tensor.untyped_storage() for tensor in cache.state_dict().values()]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("kind", ["lstm_dual", "feedback", "exact", "everything"])
@pytest.mark.parametrize("ragged", [False, True])
def test_caches_do_not_grow(kind, ragged):
    """They are as large after many blocks as after one, at each place of a block."""
    model, (row,) = make_block_model(kind), make_rows([40])
    ids = torch.stack((row, row.flip(0)))
    mask = torch.ones_like(ids)
    mask[1, :2] = not ragged
    cache, sizes = model.model.new_cache(), []
    with torch.no_grad():
        for token in range(40):
            model(ids[:, token : token + 1], mask[:, token : token + 1], past_key_values=cache)
            sizes.append(size_of(cache))
        at_once = model(ids, mask, use_cache=True).past_key_values
    for place in range(3):
        assert len(set(sizes[3 + place :: 3])) == 1
    config = model.config
    pairs = 2 * 2 * config.num_attention_heads * config.head_dim * 8
    most = config.num_hidden_layers * 2 * config.window_size
    most += len(config.memory_layers) * config.memory_size + len(config.recurrent_layers) * config.num_state_vectors
    states = len(config.recurrent_layers) * 2 * config.num_state_vectors * config.hidden_size * 8
    assert max(sizes) <= pairs * most + states + 200
    # nor does it keep the blocks of a long call
    assert size_of(at_once) <= max(sizes)


class LargestTensor(TorchDispatchMode):
    """Remembers the most bytes that any operation's result takes."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.most = max([self.most, *sizes])
        return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "implementation"),
    [("slide", "eager"), ("slide", "sdpa"), ("lstm_dual", "sdpa"), ("feedback", "eager"), ("bucketed", "sdpa")],
)
def test_memory_is_linear_in_length(kind, implementation):
    """No tensor, forward or backward, grows with more than the number of tokens; none comes near tokens squared."""
    model = make_block_model(kind).float()
    model.set_attn_implementation(implementation)
    most = {}
    for length in (48, 96):
        ids, mask = padded(make_rows([length, length - 5]), [True] * 2)
        with LargestTensor() as largest:
            model(ids, mask, labels=ids).loss.backward()
        most[length] = largest.most
        assert most[length] < 4 * length**2
    assert most[96] <= 2.1 * most[48]


def test_the_count_of_memory_sees_what_is_quadratic():
    with LargestTensor() as largest:
        states = torch.ones(1, 192, 4)
        (states @ states.transpose(1, 2)).softmax(-1)
    assert largest.most == 4 * 192**2


def test_gates_of_a_fixed_share_are_the_share():
    """Share of each unit that is forgotten, alike for all state vectors; two gates in turn forget together."""
    model, inputs = make_block_model("fixed_dual"), prompt(left=False)
    gates = model(**inputs, output_gates=True).gates
    cell = model.model.layers[1].state_cell
    kept = cell.attention_gate.bias.weight.sigmoid() * cell.feed_forward_gate.bias.weight.sigmoid()
    complete = torch.tensor([0, 1, 2, 2])
    assert len(gates) == 2
    for block, gate in enumerate(gates):
        expected = torch.where(complete[:, None, None] > block, 1 - kept, 0.0).expand(4, 4, 12)
        torch.testing.assert_close(gate, expected, rtol=0, atol=TOLERANCE)


def test_models_without_state_vectors_have_none_to_show():
    model = make_block_model("slide")
    output = model(**prompt(), output_gates=True, output_hidden_states=True)
    assert (output.gates, output.memory_states) == (None, None)
    assert not hasattr(model.model, "state_cell")
    assert not model.config.recurrent_layers


@pytest.mark.parametrize("pooling", ["states", "mean", "end", "cls"])
def test_readouts(pooling):
    model = make_block_model("lstm_dual", BlockRecurrentForSequenceClassification, pooling=pooling)
    inputs = prompt(left=False)
    base = model.model(**inputs, output_hidden_states=True)
    for row, valid in enumerate(inputs["attention_mask"].bool()):
        states = base.last_hidden_state[row, valid]
        vectors = base.memory_states[-1][row]
        vectors = vectors / (vectors.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        expected = {"states": states[-1] + vectors.mean(0), "mean": states.mean(0), "end": states[-1], "cls": states[0]}
        # means over tokens are taken in float32
        torch.testing.assert_close(base.pooler_output[row], expected[pooling], rtol=0, atol=1e-6)
    torch.testing.assert_close(model(**inputs).logits, model.classifier(base.pooler_output), rtol=0, atol=TOLERANCE)


def test_a_resized_vocabulary_leaves_the_scale_of_logits(tmp_path):
    model, inputs = make_block_model("first_release"), prompt()
    expected = model(**inputs).logits
    for size in (24, 31):
        model.resize_token_embeddings(size)
        torch.testing.assert_close(model(**inputs).logits[..., :19], expected, rtol=0, atol=TOLERANCE)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(**inputs).logits[..., :19], expected, rtol=0, atol=TOLERANCE)


def test_dropout_is_of_tokens_only():
    """Between calls in training the states' own update differs only by what it sees of tokens: not without any."""
    model = make_block_model("fixed_dual", dropout=0.5).train()
    inputs = prompt()
    first, second = (model(**inputs).logits for _ in range(2))
    assert not torch.allclose(first, second)
    cell = model.model.layers[model.config.recurrent_indices[-1]].state_cell
    state = cell.initial_state()[None]
    tokens = cell.keys_values({"state": state})
    assert_close(*(cell.update(state, tokens, tokens)[0] for _ in range(2)))
