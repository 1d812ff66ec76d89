"""A Sparse Universal Transformer works for live tokens alone, and computes nothing that nobody asked for."""

from collections import Counter

import pytest
import torch

from hf_recurrent.models.sut import routing
from hf_recurrent.models.sut.modeling_sut import SUTForCausalLM, SUTForConditionalGeneration, SUTModel
from support.compare import assert_close, gradients
from support.sut_models import make_rows, make_sut, padded
from support.work import counted_work

pytestmark = pytest.mark.architecture("sut")

PARTS = dict.fromkeys(("router", "query_map", "output_map", "position_bias", "experts"), "served")
PARTS |= {"k_proj": "keys and values", "v_proj": "keys and values", "halting_head": "halting"}
LENGTHS = [7, 2, 5, 1]
SOURCES, TARGETS = make_rows(LENGTHS), make_rows([3, 6, 1, 4], seed=1)
EARLY = {"halting_threshold": 0.4}


def encoder_work(model, ids: torch.Tensor, mask: torch.Tensor, **options) -> tuple[Counter, torch.Tensor]:
    """Multiply-accumulates of each part, and the executed steps of all tokens."""
    with counted_work(model, PARTS) as counts, torch.no_grad():
        output = model(ids, mask, pooling=False, **options)
    return counts, output.ponder_steps[mask.bool()]


@pytest.mark.parametrize("sides", ["r", "l"])
@pytest.mark.parametrize("kind", ["released", "pre_released"])
def test_tokens_that_go_on_after_halting_cost_their_halting_alone(kind, sides):
    """Neither experts, nor routers, nor position biases of attention; keys once more, of the last state."""
    model = make_sut(kind, SUTModel, relative_positions="window")
    steps, width = model.config.num_hidden_layers, model.config.hidden_size
    of_five, _ = encoder_work(model, torch.full((1, 5), 4), torch.ones(1, 5), max_depth=1)
    done, taken = encoder_work(model, *padded(SOURCES, sides), **EARLY)
    assert len(taken.unique()) > 2
    assert done["served"] * 5 == of_five["served"] * taken.sum()
    assert done["keys and values"] * 5 == of_five["keys and values"] * (taken + 1).clamp_max(steps).sum()
    assert done["halting"] == width**2 * sum(LENGTHS) * (steps - 1)


def make_batch(model, sides: str) -> dict[str, torch.Tensor]:
    ids, mask = padded(SOURCES, sides)
    if not model.config.is_encoder_decoder:
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
    targets, target_mask = padded(TARGETS)
    return {"input_ids": ids, "attention_mask": mask, "labels": targets.masked_fill(target_mask == 0, -100)}


@pytest.mark.parametrize("model_class", [SUTForCausalLM, SUTForConditionalGeneration])
@pytest.mark.parametrize("kind", ["plain", "released"])
def test_nothing_is_computed_for_padding(kind, model_class):
    """In either stack, of the source's keys and in the head, which has one zero state for all of it."""
    model = make_sut(kind, model_class).train()
    seen, batch = {}, make_batch(model, "r")
    for name, module in model.named_modules():
        if name.endswith(("k_proj", "router", "halting_head", "lm_head")):
            module.register_forward_pre_hook(
                lambda _, arguments, name=name: seen.setdefault(name, []).append(arguments[0].shape[:-1].numel())
            )
    model(**batch)
    sources, targets = int(batch["attention_mask"].sum()), int((batch["labels"] != -100).sum())
    for name, counts in seen.items():
        of_source = "encoder." in name or "cross_attention.k_proj" in name
        rows = targets + 1 if name == "lm_head" else targets
        assert counts[0] == (sources if of_source else rows), name
    assert {name.rpartition(".")[2] for name in seen} == {"k_proj", "router", "halting_head", "lm_head"}


def test_padding_and_halted_tokens_have_no_backward_pass():
    """Each product has two of its size backward, for its two operands, unless no gradient reaches it."""
    model = make_sut("released", SUTForCausalLM, **EARLY)
    batch = make_batch(model, "r")
    with counted_work(model, {}) as forward, torch.no_grad():
        model(**batch)
    with counted_work(model, {}) as both:
        output = model(**batch)
        (output.loss + output.aux_loss).backward()
    assert 2 * forward["other"] < both["other"] <= 3 * forward["other"]


@pytest.mark.parametrize("model_class", [SUTForCausalLM, SUTForConditionalGeneration])
@pytest.mark.parametrize("kind", ["plain", "released", "pre_released", "t5"])
def test_results_are_those_of_computing_everything(kind, model_class):
    model = make_sut(kind, model_class, **EARLY)
    for sides in ("r", "l"):
        batch, found = make_batch(model, sides), []
        for compaction in (True, False):
            model.config.compaction = compaction
            with torch.no_grad():
                output = model(**batch, output_halting=True)
            mask = batch["labels"] != -100
            exact = {"logits": output.logits[mask], "loss": output.loss, "aux_loss": output.aux_loss}
            exact |= {"cost": output.ponder_cost, "steps": output.ponder_steps}
            exact["halting"] = output.halting_probabilities[mask]
            found.append((exact, gradients(model, batch)))
        assert_close(found[0], found[1], 1e-9, min_scale=1.0)


@pytest.mark.parametrize("kind", ["plain", "released"])
def test_prompts_padded_on_the_left_are_read_without_padding(kind):
    model = make_sut(kind, SUTForCausalLM, **EARLY)
    ids, mask = padded(SOURCES, "l")
    seen, logits = [], []
    model.model.block.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[0]))
    for compaction in (True, False):
        model.config.compaction = compaction
        with torch.no_grad():
            prompt = model(ids, mask, use_cache=True)
            longer = torch.nn.functional.pad(mask, (0, 1), value=1)
            after = model(ids[:, :1], longer, past_key_values=prompt.past_key_values)
        logits.append((prompt.logits[:, -1], after.logits))
        if compaction:
            assert seen[0] == sum(LENGTHS)
    assert_close(logits[0], logits[1], 1e-9)


def test_statistics_are_summed_up_in_full_precision():
    router = routing.Router(8, 4, 2, dropout=0.0).eval()
    states, weights = torch.randn(70_000, 8), torch.ones(70_000)
    with torch.no_grad():
        *_, expected = router(states, weights, statistics=True)
        with torch.autocast("cpu", torch.float16):
            *_, found = router(states, weights, statistics=True)
    for name in ("probabilities", "weighted_probabilities", "weighted_entropy"):
        assert getattr(found, name).dtype is torch.float32
        assert_close(getattr(found, name), getattr(expected, name), 1e-2)


@pytest.fixture
def sums(monkeypatch) -> list[int]:
    """An entry for each call of a router that sums up its statistics."""
    calls, statistics_of = [], routing.statistics_of

    def counting(*args):
        calls.append(1)
        return statistics_of(*args)

    monkeypatch.setattr(routing, "statistics_of", counting)
    return calls


def test_statistics_are_summed_up_if_a_loss_reads_them(sums):
    model = make_sut("plain", SUTForConditionalGeneration)
    batch = make_batch(model, "r")
    labels = batch.pop("labels")
    # the first test that asks for a model has it tried
    sums.clear()
    with torch.no_grad():
        model.generate(**batch, max_new_tokens=3, do_sample=False)
        model(**batch, decoder_input_ids=labels.clamp_min(0), output_experts=True, output_hidden_states=True)
        assert not sums
        model.config.router_loss = "none"
        assert "router_loss" not in model(**batch, labels=labels)
        assert not sums
        model.config.router_loss = "switch"
        assert model(**batch, labels=labels).router_loss > 0
    # two routers of the encoder and three of the decoder in each step
    config = model.config
    assert len(sums) == 2 * config.num_hidden_layers + 3 * config.num_decoder_layers
