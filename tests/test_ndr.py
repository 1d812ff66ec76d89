"""The Neural Data Router against its naive twin, and its own options."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_recurrent import NDRConfig, NDRForCausalLM, NDRForSequenceClassification, NDRModel
from hf_recurrent.models.ops.layers import Dropout, dropout
from reference.ndr import Router, adaptive_computation
from support.compare import assert_close, assert_same, compute, gradients
from support.families import BY_NAME, LANGUAGE_BY_NAME, STEPS, TINY, make_batch, make_language_model, make_model

pytestmark = pytest.mark.architecture("ndr")


@pytest.mark.parametrize("heads", [1, 4])
def test_router_is_its_naive_twin(heads):
    torch.manual_seed(heads)
    config = NDRConfig(**{**TINY, "num_attention_heads": heads, "gate_dropout": 0.0})
    model = NDRForSequenceClassification(config).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    twin = Router(config).eval()
    twin.load_state_dict(model.state_dict())
    batch = make_batch(BY_NAME["ndr"])
    output = model(**batch)
    loss, logits = twin(batch["input_ids"], batch["attention_mask"].bool(), batch["labels"])
    torch.testing.assert_close(output.logits, logits, rtol=0, atol=1e-5)
    loss.backward()
    expected = {name: parameter.grad for name, parameter in twin.named_parameters()}
    actual = gradients(model, batch)
    # the twin knows of no padding token, whose embedding never learns
    for table in (expected, actual):
        table["model.embed_tokens.weight"][config.pad_token_id] = 0.0
    assert_same(actual, expected)


@pytest.mark.parametrize("name", ["ndr_act", "ndr_act_universal"])
def test_adaptive_computation_is_its_naive_twin(name):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    inputs = batch["input_ids"], batch["attention_mask"]
    with torch.no_grad():
        recorded = model.model(*inputs, output_hidden_states=True, output_halting=True)
        plain = model.model(*inputs)
        before = torch.stack(recorded.hidden_states[:-1], dim=-2)
        probabilities = model.model.halting_head(before)
    states = torch.stack(recorded.hidden_states[1:], dim=-2)
    universal = variant.halting == "act_universal"
    mask = batch["attention_mask"].bool()
    costs = torch.zeros(mask.shape)
    for row, column in mask.nonzero().tolist():
        own = states[row, column].unbind(0), probabilities[row, column], model.config.halting_threshold
        output, steps, remainder = adaptive_computation(*own, universal)
        torch.testing.assert_close(plain.last_hidden_state[row, column], output, rtol=0, atol=2e-5)
        assert plain.ponder_steps[row, column] == steps
        costs[row, column] = steps + remainder
    torch.testing.assert_close(plain.ponder_cost, costs.sum(-1) / mask.sum(-1), rtol=0, atol=1e-5)


def test_a_token_that_never_crosses_keeps_what_it_has():
    """Without a forced stop the weights of universal adaptive computation add up to less than one."""
    variant = BY_NAME["ndr_act_universal"]
    model, batch = make_model(variant), make_batch(variant)
    torch.nn.init.zeros_(model.model.halting_head.proj.weight)
    torch.nn.init.constant_(model.model.halting_head.proj.bias, -5.0)
    with torch.no_grad():
        output = model.model(batch["input_ids"], batch["attention_mask"])
    assert (output.ponder_steps[batch["attention_mask"].bool()] == STEPS).all()
    torch.testing.assert_close(output.ponder_cost, torch.full((10,), float(STEPS)))
    model.config.halting = "act"
    with torch.no_grad():
        forced = model.model(batch["input_ids"], batch["attention_mask"])
    remainder = 1 - (STEPS - 1) * torch.tensor(-5.0).sigmoid()
    torch.testing.assert_close(forced.ponder_cost, (STEPS + remainder).expand(10))


def test_padding_in_ponder_cost_is_the_reference_mean():
    variant = BY_NAME["ndr_act"]
    batch = make_batch(variant)
    own, padded = (
        compute(make_model(variant, padding_in_ponder_cost=flag), variant, batch)["ponder_cost"]
        for flag in (False, True)
    )
    torch.testing.assert_close(padded, own * batch["attention_mask"].sum(-1) / batch["attention_mask"].shape[1])


@pytest.mark.parametrize("max_depth", [2, STEPS + 3])
def test_more_or_fewer_steps_than_trained(max_depth):
    variant = BY_NAME["ndr"]
    batch = make_batch(variant)
    limited = compute(make_model(variant), variant, batch, max_depth=max_depth)
    assert_same(limited, compute(make_model(variant, num_hidden_layers=max_depth), variant, batch))
    with torch.no_grad():
        output = make_model(variant)(**batch, max_depth=max_depth)
    assert torch.equal(output.ponder_steps, torch.full((10,), max_depth))


@pytest.mark.parametrize("name", ["ndr", "ndr_act", "ndr_act_universal"])
def test_steps_of_a_cache_are_fixed(name):
    model = make_language_model(LANGUAGE_BY_NAME[name])
    ids = torch.tensor([[5, 6, 7]])
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(
        ValueError, match=rf"takes 3 steps but `past_key_values` was made for {STEPS}: .* the same number"
    ):
        model(ids[:, :1], past_key_values=cache, max_depth=3)
    assert cache.get_seq_length() == 3


@pytest.mark.parametrize("name", ["ndr_act", "ndr_act_universal"])
def test_halting_is_decided_in_float32_under_autocast(name):
    model, batch = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    states = model.get_input_embeddings()(batch["input_ids"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        probability = model.model.halting_head(states)
    assert_close(probability, model.model.halting_head(states))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"halting": "act"}, "`halting` is 'act': .* set copy_gate=False"),
        ({"attention": "relative", "normalize_attention": True}, "`normalize_attention` is True: softmax attention"),
        ({"gated_update": "relu"}, "'gated_update'"),
    ],
)
def test_wrong_config(fields, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        NDRConfig(**fields)


def test_implementations_are_vetoed_by_name():
    for kind, implementation in (
        ("geometric", "sdpa"),
        ("relative", "triton"),
        ("absolute_relative", "flex_attention"),
    ):
        with pytest.raises(
            ValueError, match=f"attn_implementation is '{implementation}' but scores of {kind} attention"
        ):
            NDRModel._from_config(NDRConfig(**TINY, attention=kind), attn_implementation=implementation)
    assert NDRModel(NDRConfig(**TINY, attention="absolute")).config._attn_implementation == "sdpa"
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"a CUDA device or Triton, 3\.4 or later, is missing: use 'eager'"):
            NDRModel._from_config(NDRConfig(**TINY), attn_implementation="triton")


def test_causal_geometric_attention_is_stick_breaking():
    model = make_language_model(LANGUAGE_BY_NAME["ndr"])
    attention = model.model.block.attention
    ids = torch.randint(4, 24, (1, 7))
    with torch.no_grad():
        output = model(ids, output_attentions=True, output_hidden_states=True)
        states = output.hidden_states[0]
        query, key = (attention.heads(each(states)).transpose(1, 2) for each in (attention.q_proj, attention.k_proj))
        left = (attention.direction_scale * attention.direction(states) + attention.match_bias).unflatten(-1, (-1, 2))
        scores = attention.scale * (query + attention.content_bias[:, None]) @ key.transpose(-1, -2)
        match = (scores + left[..., 0].transpose(1, 2)[..., None]).sigmoid()
    for place in range(7):
        left_over = torch.ones(2)
        for before in reversed(range(place)):
            expected = left_over * match[0, :, place, before]
            torch.testing.assert_close(output.attentions[0][0, :, place, before], expected, rtol=0, atol=1e-6)
            left_over = left_over * (1 - match[0, :, place, before])


@pytest.mark.parametrize(("p", "dtype"), [(0.1, torch.float32), (0.5, torch.bfloat16), (0.9, torch.float64)])
def test_dropout_keeps_the_mean(p, dtype):
    states = torch.ones(1001, 333, dtype=dtype, requires_grad=True)
    dropped = dropout(states, p, training=True)
    assert dropped.dtype is dtype
    kept = (dropped != 0).double()
    # four standard deviations
    assert abs(kept.mean().item() - (1 - p)) < 4 * (p * (1 - p) / kept.numel()) ** 0.5
    torch.testing.assert_close(dropped[dropped != 0].double().mean().item(), 1 / (1 - p), rtol=5e-3, atol=0)
    dropped.sum().backward()
    assert_close(states.grad, dropped.detach())
    # fates are independent of those of neighbours, which share a draw
    both = (kept[:, 1:] * kept[:, :-1]).mean().item()
    assert abs(both - (1 - p) ** 2) < 6 * ((1 - p) ** 2 / kept.numel()) ** 0.5


def test_dropout_can_be_turned_off_and_seeded():
    layer, states = Dropout(0.5), torch.randn(7, 5)
    assert layer.eval()(states) is states
    layer.train()
    torch.manual_seed(1)
    first = layer(states)
    torch.manual_seed(1)
    assert_close(layer(states), first)
    assert not torch.allclose(layer(states), first)
    assert Dropout(0.0)(states) is states
    assert not Dropout(1.0)(states).any()
    # so near to one that no level is kept
    torch.manual_seed(0)
    assert (dropout(torch.ones(10_000), 1 - 2**-20, training=True) == 0).all()


@pytest.mark.parametrize("field", ["gate_dropout", "attention_dropout", "dropout"])
def test_each_dropout_works_alone(field):
    variant = BY_NAME["ndr"]
    batch = make_batch(variant)
    torch.manual_seed(0)
    model = NDRForSequenceClassification(NDRConfig(**{**TINY, "gate_dropout": 0.0, field: 0.5})).train()
    first, second = (model(**batch).logits for _ in range(2))
    assert not torch.allclose(first, second)
    assert_close(*(model.eval()(**batch).logits for _ in range(2)))


def test_a_closed_gate_copies():
    model = NDRModel(NDRConfig(**{**TINY, "gate_bias_init": -1e4})).eval()
    ids = torch.randint(4, 24, (2, 5))
    assert_close(model(ids).last_hidden_state, model.get_input_embeddings()(ids))


def test_language_model_head_starts_small():
    head = NDRForCausalLM(NDRConfig(**TINY)).lm_head.weight
    assert 0 < head.abs().max() <= 32**-0.5


def test_padding_is_masked_in_float64_too():
    torch.manual_seed(0)
    config = {**TINY, "attention": "relative", "halting": "act_universal", "copy_gate": False, "num_hidden_layers": 6}
    model = NDRForCausalLM(NDRConfig(**config)).double().eval()
    ids, mask = torch.randint(3, TINY["vocab_size"], (2, 7)), torch.ones(2, 7, dtype=torch.long)
    mask[0, :2] = 0
    with torch.no_grad():
        cached = model(ids, attention_mask=mask, use_cache=True)
        expected = model(ids, attention_mask=mask, use_cache=False)
    assert_close(cached.logits[mask.bool()], expected.logits[mask.bool()], 1e-9)


@pytest.mark.parametrize("attention", ["geometric", "relative", "absolute_relative"])
def test_products_that_float16_cannot_hold(attention):
    """Queries are scaled before they meet keys where the product alone would be infinite."""
    torch.manual_seed(0)
    sizes = TINY | {"hidden_size": 256, "num_attention_heads": 1, "gate_dropout": 0.0}
    model = NDRForSequenceClassification(NDRConfig(**sizes, attention=attention)).eval()
    for layer in (model.model.block.attention.q_proj, model.model.block.attention.k_proj):
        layer.weight.data.mul_(60)
    batch = make_batch(BY_NAME["ndr"])
    with torch.no_grad():
        states = model.get_input_embeddings()(batch["input_ids"])
        layer = model.model.block.attention
        query, key = (layer.heads(each(states)).transpose(1, 2) for each in (layer.q_proj, layer.k_proj))
        assert (query @ key.transpose(-1, -2)).abs().max() > torch.finfo(torch.float16).max
    half = model.half()
    assert half(**batch).logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(half, batch).values())
