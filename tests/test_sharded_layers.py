"""Models whose layers and blocks are sharded by themselves (FSDP2), as engines do: one process computes as unsharded.

A parameter that is used outside of the forward pass of its layer is not gathered there, whatever the number of ranks.
"""

import copy

import pytest
import torch
from torch import distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.distributed import DistributedConfig

from hf_recurrent.models.ops.sharding import is_sharded
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support.compare import assert_same
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    VOCAB_SIZE,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    slow,
)
from support.sut_models import make_sut

# it warns of what could go wrong; that nothing does is what is tested
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor:UserWarning")

CLASSIFIERS = (
    *("xpos_transformer", "ut", "gut", "gut_siamese", "tlb", "gutlb", "ndr", "rnn_lstm", "rnn_dnc", "sut"),
    *("block_recurrent", "block_recurrent_feedback", "albert_recurrent", "ouro_recurrent", "huginn_recurrent"),
)
LANGUAGE_MODELS = ("block_recurrent_feedback", "block_recurrent_types", "gutlb", "sut")
GENERATORS = (
    *("xpos_transformer", "ut", "gut", "gutlb", "ndr", "rnn_lstm", "block_recurrent_feedback", "sut"),
    *("ouro_recurrent", "huginn_recurrent"),
)
QUICK = ("gut", "block_recurrent_feedback")


@pytest.fixture(scope="module")
def mesh():
    """Of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def shard_layers(model, mesh):
    """Each module that is not to be split by itself, then what is left -> the number of the former."""
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return len(layers)


def gradients_of(model, batch):
    model.zero_grad()
    output = model(**batch)
    output.loss.backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    # what was not touched counts as zero
    whole = {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in grads.items()}
    found = {name: grad for name, grad in whole.items() if grad is not None and grad.abs().max() > 0}
    return {"logits": output.logits.detach(), **found}


def check(model, batch, mesh):
    sharded = copy.deepcopy(model).train()
    model.train()
    assert shard_layers(sharded, mesh) > 0
    for _ in range(2):
        torch.manual_seed(0)
        expected = gradients_of(model, batch)
        torch.manual_seed(0)
        found = gradients_of(sharded, batch)
        assert_same(found, expected)
    assert all(parameter.grad is not None for parameter in sharded.parameters()), "ranks would reduce different ones"


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in CLASSIFIERS])
def test_classifiers(name, mesh):
    variant = BY_NAME[name]
    check(make_model(variant), make_batch(variant), mesh)


def test_blocks_that_stay_gathered_are_still_reduced_step_by_step(mesh):
    """Their parameters are plain tensors until the backward pass, and ranks must take the same steps all the same."""
    variant = BY_NAME["gut"]
    model = make_model(variant)
    fully_shard(model.model.block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    with torch.no_grad():
        model(**make_batch(variant))
    assert not any(hasattr(parameter, "device_mesh") for parameter in model.model.block.parameters())
    assert is_sharded(model.model.block)


@pytest.mark.parametrize("name", ["gutlb", slow("block_recurrent_feedback")])
def test_blocks_in_checkpoint_wrappers(name, mesh):
    """As accelerate's `fsdp_activation_checkpointing` nests them, and shards both."""
    variant = BY_NAME[name]
    model, batch = make_model(variant).train(), make_batch(variant)
    wrapped = copy.deepcopy(model)
    for path, module in list(wrapped.named_modules()):
        if type(module).__name__ in model._no_split_modules:
            wrapped.set_submodule(path, checkpoint_wrapper(module))
            fully_shard(module, mesh=mesh)
            fully_shard(wrapped.get_submodule(path), mesh=mesh)
    fully_shard(wrapped, mesh=mesh)
    found = gradients_of(wrapped, batch)
    found = {path.replace("_checkpoint_wrapped_module.", ""): each for path, each in found.items()}
    assert_same(found, gradients_of(model, batch))


def test_parameters_without_use_have_gradients_before_their_group_is_gathered(mesh):
    """accelerate gathers a norm with the head, and a language model never pools its memory."""
    variant = LANGUAGE_BY_NAME["gutlb"]
    model, batch = make_language_model(variant).train(), make_text(variant)
    sharded = copy.deepcopy(model)
    fully_shard([sharded.model.memory_norm, sharded.lm_head], mesh=mesh)
    shard_layers(sharded, mesh)
    assert_same(gradients_of(sharded, batch), gradients_of(model, batch))
    assert all(parameter.grad is not None for parameter in sharded.parameters()), "a resumed optimiser would lack them"


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models(name, mesh):
    variant = LANGUAGE_BY_NAME[name]
    batch = make_text(variant)
    check(make_language_model(variant), {**batch, "labels": batch["input_ids"]}, mesh)


@pytest.mark.parametrize("name", ["block_recurrent_feedback", slow("tlb"), slow("gutlb"), slow("gut")])
def test_texts_go_on_from_a_cache(name, mesh):
    variant = LANGUAGE_BY_NAME[name]
    model, batch = make_language_model(variant).eval(), make_text(variant)
    sharded = copy.deepcopy(model)
    shard_layers(sharded, mesh)
    ids = batch["input_ids"][:2]
    with torch.no_grad():
        found, expected = (continued(each, ids) for each in (sharded, model))
    assert_same({"logits": found}, {"logits": expected})


def continued(model, ids):
    """Logits of the last two tokens, each read by itself after those before them."""
    cache = model(input_ids=ids[:, :-2], use_cache=True).past_key_values
    logits = []
    for place in (-2, -1):
        read = ids[:, place:].unsqueeze(-1)[:, 0]
        output = model(input_ids=read, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits.append(output.logits)
    return torch.cat(logits, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_generation(name, mesh):
    variant = LANGUAGE_BY_NAME[name]
    model, batch = make_language_model(variant).eval(), make_text(variant)
    sharded = copy.deepcopy(model)
    shard_layers(sharded, mesh)
    prompt = {key: batch[key][:3] for key in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(sharded.generate(**prompt, **options), model.generate(**prompt, **options))


@pytest.mark.slow
def test_translation(mesh):
    model = make_sut("t5", SUTForConditionalGeneration, vocab_size=VOCAB_SIZE).float()
    batch = make_text(LANGUAGE_BY_NAME["ut"])
    check(model, {**batch, "labels": batch["input_ids"]}, mesh)
    shard_layers(model.eval(), mesh)
    with pytest.raises(ValueError, match="parameters of this model are divided among processes, and `generate` calls"):
        model.generate(input_ids=batch["input_ids"], max_new_tokens=3)


@pytest.mark.parametrize("options", [{"tp_plan": "auto"}, {"distributed_config": DistributedConfig(tp_plan="auto")}])
def test_tensor_parallelism_is_refused(options, tmp_path):
    model = make_model(BY_NAME["gut"])
    with pytest.raises(ValueError, match="tp_plan is 'auto': GUTForSequenceClassification has no plan of tensor"):
        type(model).from_pretrained(tmp_path, **options)
