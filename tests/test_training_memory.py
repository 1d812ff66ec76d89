"""What a training step keeps for its backward pass follows the units that are live, not those that have halted."""

import functools
import gc
from collections.abc import Iterator

import pytest
import torch
from torch.utils._pytree import tree_leaves

from hf_recurrent.models.depth import loop
from hf_recurrent.models.ops.attention import PackedContext
from hf_recurrent.models.ops.row_groups import GroupedRows
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text, slow

# of what the whole batch keeps: masks and places of a layout, and before all the keys of tokens that have halted but
# that live ones attend to
OVERHEAD, OVERHEAD_OF_KEYS = 0.2, 0.3
# of what is kept without checkpointing: inputs of blocks, keys of halted tokens among them
CHECKPOINTED = 0.35


class Kept:
    """Bytes of storages that are kept for a backward pass, weights left out, each storage once."""

    def __init__(self, model):
        self.weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self.tensors: dict[int, torch.Tensor] = {}

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in self.weights:
            # kept, so that no other tensor gets its place
            self.tensors[place] = tensor.detach()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors.values())


def training_step(model, batch, checkpointing, **options) -> tuple[int, int]:
    """Bytes that a forward pass keeps, inputs of checkpointed blocks included, and numbers that its block read."""
    model.train()
    kept, read = Kept(model), 0
    if checkpointing:
        model.gradient_checkpointing_enable()
        for module in model.modules():
            if hasattr(module, "_gradient_checkpointing_func"):
                module._gradient_checkpointing_func = recording(module._gradient_checkpointing_func, kept)

    def count(block, inputs):
        nonlocal read
        read += inputs[0].numel()

    handle = model.base_model.block.register_forward_pre_hook(count)
    with torch.autograd.graph.saved_tensors_hooks(kept.add, lambda tensor: tensor):
        model(**batch, **options)
    handle.remove()
    return kept.bytes, read


def tensors_in(value) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(value):
        if isinstance(leaf, (PackedContext, GroupedRows)):
            yield from tensors_in(vars(leaf))
        elif isinstance(leaf, torch.Tensor):
            yield leaf


def recording(checkpoint, kept):
    """A checkpoint function that adds what it is called with to `kept`."""

    def call(function, *args, **kwargs):
        for tensor in tensors_in((args, kwargs, getattr(function, "keywords", {}))):
            kept.add(tensor)
        return checkpoint(function, *args, **kwargs)

    return functools.wraps(checkpoint)(call)


def models(variant):
    return (make_model(variant, hard_stop=True, compaction=compaction) for compaction in (True, False))


def test_halted_units_are_not_kept(halting_variant):
    batch = make_batch(halting_variant, rows=40, length=24)
    (found, read), (whole, all_read) = (training_step(model, batch, False) for model in models(halting_variant))
    overhead = OVERHEAD_OF_KEYS if halting_variant.token_units else OVERHEAD
    assert found / whole < read / all_read + overhead


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_checkpointed_steps_keep_inputs_alone(halting_variant):
    batch = make_batch(halting_variant, rows=40, length=24)
    (found, read), (same, read_again) = (
        training_step(make_model(halting_variant, hard_stop=True), batch, checkpointing)
        for checkpointing in (True, False)
    )
    assert read == read_again
    assert found < CHECKPOINTED * same


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("name", ["ut", "gut_token"])
def test_checkpointed_steps_keep_each_frozen_key_once(name, monkeypatch):
    # a compaction for single tokens keeps more indices than it spares states
    monkeypatch.setattr(loop, "PRODUCTS_PER_COMPACTION", 1 << 19)
    batch = make_batch(BY_NAME[name], rows=40, length=24)
    (found, _), (whole, _) = (training_step(model, batch, True) for model in models(BY_NAME[name]))
    assert found < whole


@pytest.mark.parametrize(
    "name", ["gut", "sut", *map(slow, ("ut", "tlb", "gutlb", "ndr", "ouro_recurrent", "huginn_recurrent"))]
)
def test_nothing_waits_for_cycles_to_be_collected(name):
    """Tensors of a step, and a cache, are freed when their last user leaves: a GPU's memory starts no collection."""
    variant = LANGUAGE_BY_NAME[name]
    model, batch = make_language_model(variant).train(), make_text(variant)
    model(**batch).loss.backward()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        model(**batch).loss.backward()
        with torch.no_grad():
            model.eval()(batch["input_ids"], batch["attention_mask"])
        gc.collect()
        assert [kept for kept in gc.garbage if isinstance(kept, torch.Tensor)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
